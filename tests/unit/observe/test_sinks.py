import asyncio
import io
import threading
from collections.abc import Awaitable, Sequence
from typing import Any

import pytest

import lib.observe
from lib.errors import ExportError
from lib.observe import CallableSink, ConsoleSink, InMemorySink, Span
from lib.testing.sink import make_trace

# -- in memory ---------------------------------------------------------------------------------


async def test_the_memory_sink_keeps_the_last_version_of_each_span_in_its_first_place():
    sink = InMemorySink()

    await sink.export([*make_trace(1, end=False), *make_trace(2)])
    await sink.export(make_trace(1))

    assert sink.spans == [*make_trace(1), *make_trace(2)]
    assert sink.trace(make_trace(2)[0].trace_id) == make_trace(2)
    assert sink.trace("nothing") == []


# -- functions ---------------------------------------------------------------------------------


async def test_a_function_that_returns_an_awaitable_is_awaited():
    taken: list[Span] = []

    async def take(spans: Sequence[Span]) -> None:
        taken.extend(spans)

    class Taking:
        def __call__(self, spans: Sequence[Span]) -> Awaitable[None]:
            return take(spans)

    await CallableSink(Taking()).export(make_trace())

    assert taken == make_trace()


async def test_a_function_may_block_and_an_object_may_be_called():
    class Blocking:
        thread: threading.Thread | None = None

        def __call__(self, spans: Sequence[Span]) -> None:
            threading.Event().wait(0.001)
            self.thread = threading.current_thread()

    export = Blocking()

    await CallableSink(export).export(make_trace())

    assert export.thread is not None
    assert export.thread.daemon
    assert export.thread.name == f"CallableSink {Blocking.__qualname__}"


async def test_what_a_function_raises_is_the_cause_of_the_export_error():
    def fail(_: Sequence[Span]) -> None:
        raise ZeroDivisionError

    with pytest.raises(ExportError, match="fail raised ZeroDivisionError") as raised:
        await CallableSink(fail).export(make_trace())

    assert isinstance(raised.value.__cause__, ZeroDivisionError)


async def test_an_export_error_of_a_function_stays_what_it_is():
    error = ExportError("come back later", retry_after_s=5)

    async def fail(_: Sequence[Span]) -> None:
        raise error

    with pytest.raises(ExportError) as raised:
        await CallableSink(fail).export(make_trace())

    assert raised.value is error


async def test_a_function_that_hangs_is_not_called_again_until_it_has_returned():
    gate, calls = threading.Event(), list[Sequence[Span]]()

    def hang(spans: Sequence[Span]) -> None:
        calls.append(spans)
        gate.wait()

    sink = CallableSink(hang)

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(sink.export(make_trace(1)), 0.02)
    with pytest.raises(ExportError, match="has not returned from its last call"):
        await sink.export(make_trace(2))
    gate.set()
    while len(calls) == 1:
        try:
            await sink.export(make_trace(3))
        except ExportError:
            await asyncio.sleep(0)  # noqa: TID251 - lets the thread end

    assert calls == [make_trace(1), make_trace(3)]


# -- the console -------------------------------------------------------------------------------


async def test_the_console_gets_one_tree_for_each_trace():
    out = io.StringIO()

    await ConsoleSink(out).export([*make_trace(1), *make_trace(2, end=False)[:1]])

    assert out.getvalue() == (
        "run run-1  2026-01-01 12:00:00 UTC  trace 4e65d3fbe8ad6535681b021b30785b12\n"
        "◆ agent agent-1     10.00 s              ✓\n"
        "├─ ● chat model-1    1.00 s  1,200 → 30  ✓\n"
        "└─ ■ tool search-1   1.00 s              ✗ timeout\n"
        "10.00 s · 1 model call · 1 tool call · 1,200 → 30 tokens · 1 error\n"
        "run run-2  2026-01-01 12:00:00 UTC  trace b9d17232a4c83d9928ee0d4e6fab81d3\n"
        "◆ agent agent-2  … open\n"
        "… open · 0 model calls · 0 tool calls · 0 → 0 tokens\n"
    )


async def test_without_a_file_the_console_is_whatever_standard_output_is_then(
    capsys: pytest.CaptureFixture[str],
):
    sink = ConsoleSink()

    await sink.export(make_trace())

    assert "agent agent-1" in capsys.readouterr().out


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("no_color", "coloured"), [(None, True), ("1", False)])
async def test_terminals_get_colour_unless_no_color_is_set(
    no_color: str | None, coloured: bool, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("NO_COLOR", "FORCE_COLOR", "COLORTERM"):
        monkeypatch.delenv(name, raising=False)
    if no_color:
        monkeypatch.setenv("NO_COLOR", no_color)
    terminal, file = Terminal(), io.StringIO()

    await ConsoleSink(terminal).export(make_trace())
    await ConsoleSink(file).export(make_trace())

    assert ("\x1b[1;31m✗ timeout" in terminal.getvalue()) is coloured
    assert "\x1b" not in file.getvalue()


async def test_a_closed_pipe_is_an_export_error_and_does_not_end_the_process():
    class Pipe(io.StringIO):
        def write(self, text: str, /) -> int:
            raise BrokenPipeError

    with pytest.raises(ExportError, match="the console cannot be written"):
        await ConsoleSink(Pipe()).export(make_trace())


# -- the package -------------------------------------------------------------------------------


def test_every_declared_name_is_there_and_no_other_is_made_up():
    missing: Any = "Nothing"

    assert [name for name in lib.observe.__all__ if not hasattr(lib.observe, name)] == []
    assert len(lib.observe.__all__) == len(set(lib.observe.__all__))  # ruff keeps them sorted
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        getattr(lib.observe, missing)
