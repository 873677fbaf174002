"""The contract of trace sinks, for those of the library and for yours.

Subclass `SinkContract` and give it a fixture `kind`:

    class TestMySink(SinkContract):
        @pytest.fixture
        def kind(self) -> SinkKind:
            return SinkKind(open=open_my_sink, repeats="replace")
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from lib.errors import ExportError
from lib.evals import Score
from lib.observe import (
    Span,
    SpanEvent,
    TraceSink,
    span_id_of,
    spans_from_events,
    trace_id_of,
)
from lib.observe.sink import ScoringSink, traits_of
from lib.testing.aio import run
from lib.testing.extra import pytest
from lib.testing.logs import talkative_log

_START = datetime(2026, 1, 1, 12, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class OpenSink:
    """A sink, and a look at what has arrived behind it.

    Attributes:
        count: how many times the backend holds, or was given, a span; by its name if need be,
            whose last word is unique.
        received: everything that the backend was given, as text.
        scores: under how many ids the backend holds scores; None for a sink without scores.
        around: makes what is there while the sink is used, such as its server; called once.
    """

    sink: TraceSink
    count: Callable[[Span], int]
    received: Callable[[], str]
    scores: Callable[[], int] | None = None
    around: Callable[[], AbstractAsyncContextManager[Any]] = nullcontext


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkKind:
    """One sink for the contract to look at.

    Attributes:
        open: makes a new sink with a backend of its own.
        repeats: what a span that comes again does to the one before: "replace" it, or "append".
        open_broken: makes one whose backend fails; None for a sink that cannot fail.
        sends_open: whether it sends spans that have not ended.
    """

    open: Callable[[], OpenSink]
    repeats: Literal["replace", "append"]
    open_broken: Callable[[], OpenSink] | None = None
    sends_open: bool = True

    def after(self, exports: int) -> int:
        """Return how often a span is there after so many exports."""
        return 1 if self.repeats == "replace" else exports


def make_trace(number: int = 1, *, end: bool = True) -> list[Span]:
    """Return a trace of a run with a model call and a tool call, unique by its number."""
    run_id = f"run-{number}"

    def span(family: str, name: str, **more: Any) -> Span:
        whole = Span(
            trace_id=trace_id_of(run_id),
            span_id=span_id_of(run_id, family, ""),
            parent_id=span_id_of(run_id, "run", ""),
            name=f"{name}-{number}",
            kind="internal",
            start=_START,
            end=_START + timedelta(seconds=number),
            run_id=run_id,
            tenant="acme",
            user="ann",
        )
        return replace(whole, **more)

    root_end = _START + timedelta(seconds=10) if end else None
    usage = {"gen_ai.usage.input_tokens": 1200, "gen_ai.usage.output_tokens": 30}
    failed: dict[str, Any] = {"status": "error", "attributes": {"error.type": "timeout"}}
    return [
        span("run", "invoke_agent agent", kind="agent", parent_id=None, end=root_end),
        span("llm", "chat model", kind="llm", attributes=usage),
        span("tool", "execute_tool search", kind="tool", **failed),
    ]


def _odd(span: Span) -> Span:
    """Return the span with everything in it that a log may hold."""
    values: dict[str, Any] = {
        "text": "tab\t, \x1b[31mescape\x1b[0m, \u202egnp.exe, lone \ud800",
        "numbers": [0, -1, 2**70, 1e300, True],
        "nested": {"list": [{"deep": [None, ""]}]},
        "nothing": None,
    }
    return replace(
        span,
        name="execute_tool \x1b[31m\ud800\nodd",
        status_message="line\nbreak",
        attributes=values,
        events=[SpanEvent("moment", span.start, values)],
        input=values,
        output="x" * 100_000,
    )


def _counts(opened: OpenSink, spans: Sequence[Span]) -> list[int]:
    return [opened.count(span) for span in spans]


def _use(opened: OpenSink, work: Callable[[], Awaitable[object]]) -> None:
    """Do some work with a sink, and close it if it can be closed."""

    async def main() -> None:
        async with opened.around():
            await work()
            await _close(opened.sink)

    run(main())


async def _close(sink: TraceSink) -> None:
    close = getattr(sink, "aclose", None)
    if close is not None:
        await close()


class SinkContract:
    """The contract of sinks; the fixture `kind` opens the one to test."""

    def test_every_span_of_an_export_arrives(self, kind: SinkKind) -> None:
        opened, spans = kind.open(), make_trace()

        _use(opened, lambda: opened.sink.export(spans))

        assert _counts(opened, spans) == [1, 1, 1]

    def test_exporting_nothing_does_nothing(self, kind: SinkKind) -> None:
        opened = kind.open()

        _use(opened, lambda: opened.sink.export([]))

        assert _counts(opened, make_trace()) == [0, 0, 0]

    def test_a_trace_may_come_again(self, kind: SinkKind) -> None:
        opened, spans = kind.open(), make_trace()

        async def main() -> None:
            await opened.sink.export(spans)
            await opened.sink.export(spans)

        _use(opened, main)

        assert _counts(opened, spans) == [kind.after(2)] * 3

    def test_an_open_root_may_come_first_and_closed_later(self, kind: SinkKind) -> None:
        opened, spans = kind.open(), make_trace()

        async def main() -> None:
            await opened.sink.export(make_trace(end=False)[:2])
            await opened.sink.export(spans)

        _use(opened, main)

        root = kind.after(2) if kind.sends_open else 1
        assert _counts(opened, spans) == [root, kind.after(2), 1]

    def test_children_may_come_without_their_parent(self, kind: SinkKind) -> None:
        opened, spans = kind.open(), make_trace()

        _use(opened, lambda: opened.sink.export(spans[1:]))

        assert _counts(opened, spans) == [0, 1, 1]

    def test_several_traces_may_come_at_once(self, kind: SinkKind) -> None:
        opened, exports = kind.open(), [[*make_trace(1), *make_trace(2)], make_trace(3)]

        async def main() -> None:
            await asyncio.gather(*[opened.sink.export(spans) for spans in exports])

        _use(opened, main)

        assert [_counts(opened, spans) for spans in exports] == [[1] * 6, [1] * 3]

    def test_whatever_a_log_can_hold_does_not_keep_the_rest_from_arriving(
        self, kind: SinkKind
    ) -> None:
        opened, (root, call, tool) = kind.open(), make_trace()

        _use(opened, lambda: opened.sink.export([root, _odd(tool), call]))

        assert _counts(opened, [root, call]) == [1, 1]

    def test_spans_are_left_as_they_are(self, kind: SinkKind) -> None:
        opened, spans = kind.open(), [_odd(span) for span in make_trace()]
        before = copy.deepcopy(spans)

        _use(opened, lambda: opened.sink.export(spans))

        assert spans == before

    def test_closing_loses_nothing_and_may_be_repeated(self, kind: SinkKind) -> None:
        opened, spans = kind.open(), make_trace()

        async def main() -> None:
            exporting = asyncio.ensure_future(opened.sink.export(spans))
            await asyncio.wait([exporting], timeout=0)  # so that it begins
            await _close(opened.sink)
            await exporting

        _use(opened, main)  # which closes it once more

        assert _counts(opened, spans) == [1, 1, 1]

    def test_nothing_leaves_that_was_not_captured(self, kind: SinkKind) -> None:
        opened, secret = kind.open(), "swordfish"
        spans = spans_from_events(talkative_log(secret))
        score = Score(name="quality", value=1, at=_START)

        async def main() -> None:
            await opened.sink.export(spans)
            if isinstance(opened.sink, ScoringSink) and opened.scores is not None:
                await opened.sink.score(spans[0].trace_id, [score], span_id=spans[0].span_id)

        _use(opened, main)

        assert secret not in opened.received()

    def test_a_score_that_comes_again_is_the_same_score(self, kind: SinkKind) -> None:
        opened, root = kind.open(), make_trace()[0]
        if opened.scores is None:
            return  # it has no scores
        scores = [Score(name=name, value=1, at=_START) for name in ("a", "b")]
        sink: Any = opened.sink

        async def main() -> None:
            await sink.export(make_trace())
            for _ in range(2):
                await sink.score(root.trace_id, scores, span_id=root.span_id)

        _use(opened, main)

        assert opened.scores() == len(scores)

    def test_spans_are_reported_as_soon_as_they_are_taken(self, kind: SinkKind) -> None:
        opened, spans, taken = kind.open(), make_trace(), list[str]()
        sink: Any = opened.sink
        if not traits_of(sink).reports_taken:
            return  # it does not report them

        _use(opened, lambda: sink.export(spans, on_taken=taken.extend))

        assert taken == [span.span_id for span in spans]

    def test_it_fails_with_an_export_error_and_no_other(self, kind: SinkKind) -> None:
        if kind.open_broken is None:
            return  # it cannot fail
        broken = kind.open_broken()

        with pytest.raises(ExportError) as raised:
            _use(broken, lambda: broken.sink.export(make_trace()))

        assert raised.type is ExportError
