import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from lib._util.clock import Clock
from lib.errors import ExportError, RunNotFound, StoreCorrupt
from lib.events import Event, MemoryEventStore, NewEvent, SQLiteEventStore
from lib.events import kinds as k
from lib.events.bus import Bus
from lib.llm import Reply, ScriptedClient, ToolCall, message_to_json
from lib.observe import CallableSink, InMemorySink, Observer, Span, spans_from_events, trace_id_of
from lib.testing.agents import make_engine
from lib.testing.aio import run
from lib.testing.clock import ManualClock
from lib.testing.logs import at, make_log, store_log
from lib.tools import tool


@dataclass
class Observed:
    """What an observer needs of an engine, with logs written by hand."""

    clock: Clock = field(default_factory=lambda: ManualClock(at(100)))

    def __post_init__(self) -> None:
        self.store = MemoryEventStore(clock=self.clock)
        self.bus = Bus(self.store)

    async def has(self, log: list[Event]) -> list[Event]:
        await store_log(self.store, log)
        return log

    async def grows(self, run_id: str, *entries: tuple[float, str, dict[str, Any]]) -> None:
        info = await self.store.run(run_id)
        assert info is not None
        events = [NewEvent(kind, data, at(seconds)) for seconds, kind, data in entries]
        await self.store.append(run_id, events, expected=info.head)


@asynccontextmanager
async def observed(
    *sinks: Any, engine: Observed | None = None, **options: Any
) -> AsyncGenerator[tuple[Observed, Observer]]:
    """Open a store and an observer that does not wait for anything to settle."""
    engine = engine or Observed()
    await engine.store.setup()
    settings: dict[str, Any] = {"settle_s": 0, **options}
    async with Observer(engine, list(sinks), **settings) as observer:
        yield engine, observer


async def until(ready: Callable[[], object]) -> None:
    while not ready():  # noqa: ASYNC110 - nothing tells
        await asyncio.sleep(0)  # noqa: TID251 - lets the observer run


def ended(run_id: str, *, child_of: str = "", **more: Any) -> list[Event]:
    above = {"root": child_of, "parent": {"run_id": child_of, "key": "?"}} if child_of else {}
    return make_log(
        (0, k.RUN_STARTED, {"algorithm": "a", "input": [], **above}),
        (1, k.RUN_COMPLETED, {"outcome": "COMPLETED"}),
        run_id=run_id,
        **more,
    )


def cut_off(run_id: str = "run") -> list[Event]:
    """Return the log of a run that has made one call and makes another."""

    def call(name: str) -> dict[str, Any]:
        return {"key": name, "call_id": name, "name": "search", "args": {}, "effects": "none"}

    return make_log(
        (0, k.RUN_STARTED, {"algorithm": "a", "input": []}),
        (1, k.TOOL_REQUESTED, call("one")),
        (2, k.TOOL_COMPLETED, {"key": "one", "call_id": "one", "output": "x"}),
        (3, k.TOOL_REQUESTED, call("two")),
        run_id=run_id,
    )


def names(spans: Sequence[Span]) -> list[str]:
    return [span.run_id for span in spans]


class Recorder:
    """A sink that keeps every export, and does with it what a test says."""

    def __init__(self, then: Callable[[], Any] | None = None) -> None:
        self.exports: list[Sequence[Span]] = []
        self._then = then

    async def export(self, spans: Sequence[Span]) -> None:
        self.exports.append(spans)
        if self._then is not None:
            await self._then()


# -- runs that end -----------------------------------------------------------------------------


def test_the_trace_of_an_agent_is_exported_whole_when_it_has_ended():
    client = ScriptedClient([Reply((ToolCall("c", "look", {"at": "x"}),)), "I see."])
    sent: list[Any] = []
    sink = InMemorySink()

    @tool(effects="none")
    def look(at: str) -> str:
        """Look at something."""
        return f"{at} is red"

    class Client(ScriptedClient):
        async def complete(self, messages: Any, **options: Any) -> Reply:
            sent.append([message_to_json(message) for message in messages])
            return await client.complete(messages, **options)

    async def main() -> list[Event]:
        async with (
            make_engine(Client([]), look) as engine,
            Observer(engine, sink, capture_content=True),
        ):
            started = await engine.start("What is x?")
            await started.result()
            return await engine.store.read(started.id)

    log = run(main())

    assert sink.spans == spans_from_events(log, capture_content=True)
    assert [span.name for span in sink.spans] == [
        "invoke_agent react",
        "chat scripted",
        "execute_tool look",
        "chat scripted",
    ]
    assert [span.input for span in sink.spans if span.kind == "llm"] == sent


def test_children_come_with_their_root_parents_first_and_in_one_export():
    sink = Recorder()

    async def main() -> None:
        async with observed(sink) as (engine, _):
            for log in (ended("root"), ended("child", child_of="root")):
                await engine.has(log)

    run(main())

    assert [names(spans) for spans in sink.exports] == [["root", "child"]]
    assert {span.trace_id for span in sink.exports[0]} == {trace_id_of("root")}


def test_a_trace_is_exported_only_once_it_has_settled():
    sink, clock = Recorder(), ManualClock(at(100))

    async def main() -> None:
        async with observed(sink, engine=Observed(clock), settle_s=5) as (engine, observer):
            await engine.has(ended("root"))
            assert not await observer.drain(timeout_s=0.01)
            clock.advance(4.9)
            assert not await observer.drain(timeout_s=0.01)
            assert sink.exports == []
            clock.advance(0.2)
            assert await observer.drain()
            assert names(sink.exports[0]) == ["root"]

    run(main())


def test_a_run_that_is_erased_before_it_is_exported_leaves_no_trace():
    sink, clock = Recorder(), ManualClock(at(100))

    async def main() -> bool:
        async with observed(sink, engine=Observed(clock), settle_s=5) as (engine, observer):
            await engine.has(ended("root"))
            await engine.bus.flush()
            await engine.store.erase("root")
            clock.advance(5)
            return await observer.drain()

    assert run(main())
    assert sink.exports == []


def test_runs_that_had_ended_before_are_left_to_backfill():
    sink = Recorder()

    async def main() -> None:
        engine = Observed()
        await engine.store.setup()
        await engine.has(ended("before"))
        async with observed(sink, engine=engine) as (_, observer):
            assert await observer.drain()
            await engine.has(ended("after"))

    run(main())

    assert [names(spans) for spans in sink.exports] == [["after"]]


def test_an_observer_goes_on_where_its_group_has_stopped():
    first, second = Recorder(), Recorder()

    async def main() -> None:
        engine = Observed()
        async with observed(first, engine=engine):
            await engine.has(ended("one"))
        await engine.has(ended("two"))
        async with observed(second, engine=engine):
            pass

    run(main())

    assert [names(spans) for spans in first.exports] == [["one"]]
    assert [names(spans) for spans in second.exports] == [["two"]]


def test_an_exception_is_not_kept_waiting_for_sinks():
    sink = Recorder(asyncio.Event().wait)

    async def main() -> None:
        async with observed(sink) as (engine, _):
            await engine.has(ended("root"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(main(), timeout_s=5)


def test_one_group_has_one_observer():
    async def main() -> None:
        async with observed(InMemorySink()) as (engine, _):
            with pytest.raises(ValueError, match=r"group 'lib\.observe' has a handler already"):
                await Observer(engine, InMemorySink()).__aenter__()
            async with Observer(engine, InMemorySink(), group="another"):
                pass

    run(main())


# -- export_trace, flush_open, backfill --------------------------------------------------------


def test_a_trace_can_be_exported_at_any_time_and_again():
    sink = Recorder()

    async def main() -> tuple[int, int]:
        async with observed(sink) as (engine, observer):
            await engine.has(cut_off())
            return await observer.export_trace("run"), await observer.export_trace("run")

    assert run(main()) == (3, 3)
    assert sink.exports == [spans_from_events(cut_off())] * 2


def test_a_long_log_is_read_off_the_event_loop_with_the_same_result():
    verdict = {"guard": "pii", "stage": "input", "verdict": "allow"}
    log = make_log(
        (0, k.RUN_STARTED, {"algorithm": "a", "input": []}), *[(1, k.GUARD_VERDICT, verdict)] * 200
    )
    sink = InMemorySink()

    async def main() -> None:
        async with observed(sink) as (engine, observer):
            await engine.has(log)
            assert await observer.export_trace("run") == 201

    run(main())

    assert sink.spans == spans_from_events(log)


def test_only_root_runs_that_exist_have_a_trace():
    async def main() -> list[str]:
        missing: list[str] = []
        async with observed(InMemorySink()) as (engine, observer):
            await engine.has(ended("root"))
            await engine.has(ended("child", child_of="root"))
            for run_id in ("child", "nothing"):
                with pytest.raises(RunNotFound) as raised:
                    await observer.export_trace(run_id)
                missing.append(raised.value.run_id)
        return missing

    assert run(main()) == ["child", "nothing"]


def test_an_open_run_is_exported_bit_by_bit():
    sink = Recorder()

    async def main() -> list[int]:
        async with observed(sink) as (engine, observer):
            await engine.has(cut_off())
            sent = [await observer.export_trace("run", final=False)]
            sent.append(await observer.flush_open())
            await engine.grows(
                "run", (4, k.TOOL_COMPLETED, {"key": "two", "call_id": "two", "output": "y"})
            )
            sent.append(await observer.flush_open())
            await engine.grows("run", (5, k.RUN_COMPLETED, {"outcome": "COMPLETED"}))
            sent.append(await observer.export_trace("run", final=False))
            sent.append(await observer.export_trace("run", final=False))
            return sent

    assert run(main()) == [2, 0, 1, 1, 0]
    assert [[(span.name, span.end) for span in spans] for spans in sink.exports] == [
        [("invoke_agent a", None), ("execute_tool search", at(2))],
        [("execute_tool search", at(4))],
        [("invoke_agent a", at(5))],
    ]


def test_a_run_whose_process_has_died_is_told_as_interrupted_once_and_corrected_later():
    sink, clock = Recorder(), ManualClock(at(100))

    async def main() -> list[int]:
        async with observed(sink, engine=Observed(clock)) as (engine, observer):
            await engine.has(cut_off())
            await engine.grows("run", (50, k.TURN_REQUESTED, {"signal_id": "s", "input": []}))
            await engine.store.claim("worker", ttl_s=30, run_id="run")
            sent = [await observer.flush_open()]
            clock.advance(30)
            sent += [await observer.flush_open(), await observer.flush_open()]
            await engine.grows(
                "run",
                (60, k.TOOL_COMPLETED, {"key": "two", "call_id": "two", "output": "y"}),
                (61, k.RUN_COMPLETED, {"outcome": "COMPLETED"}),
            )
            await observer.drain()
            return sent

    assert run(main()) == [2, 2, 0]
    alive, dead, corrected = [
        [(span.name, span.end, span.attributes.get("error.type")) for span in spans]
        for spans in sink.exports
    ]
    assert alive == [("invoke_workflow a", None, None), ("execute_tool search", at(2), None)]
    assert dead == [
        ("invoke_workflow a", at(3), "interrupted"),
        ("execute_tool search", at(3), "interrupted"),
    ]
    assert corrected == [
        ("invoke_workflow a", at(61), None),
        ("execute_tool search", at(60), None),
        ("turn", at(61), "unanswered"),
    ]


def test_a_run_that_died_with_its_process_is_told_by_the_next_one_and_then_finished(
    tmp_path: Path,
):
    path, clock, sink = tmp_path / "log.db", ManualClock(at(100)), Recorder()

    @tool(effects="none")
    def search() -> str:
        """Search."""
        return "found"

    async def dies() -> str:
        store = SQLiteEventStore(path, clock=clock)
        async with make_engine(ScriptedClient([]), store=store, clock=clock) as engine:
            reply = {"parts": [{"type": "tool_call", "id": "c", "name": "search"}]}
            call: dict[str, Any] = {"key": "tool/1/c", "call_id": "c", "name": "search", "args": {}}
            log = make_log(
                (0, k.RUN_STARTED, {"algorithm": "react", "input": []}),
                (1, k.LLM_REQUESTED, {"key": "llm/1", "upto": 1, "digest": "d"}),
                (2, k.LLM_COMPLETED, {"key": "llm/1", "reply": reply}),
                (3, k.TOOL_REQUESTED, {**call, "effects": "none", "idempotency_key": "run:1/c"}),
            )
            await store_log(engine.store, log)
            await engine.store.claim("dead", ttl_s=30, run_id="run")
        return "run"

    async def lives(run_id: str) -> list[Event]:
        store = SQLiteEventStore(path, clock=clock)
        clock.advance(31)
        client = ScriptedClient(["done"])
        async with (
            make_engine(client, search, store=store, clock=clock) as engine,
            Observer(engine, sink, settle_s=0) as observer,
        ):
            assert await observer.flush_open() == 3
            await engine.resume(run_id)
            await engine.run(run_id).result()
            await observer.drain()
            return await engine.store.read(run_id)

    log = run(lives(run(dies())))

    interrupted, finished = sink.exports
    assert [span.attributes.get("error.type") for span in interrupted] == [
        "interrupted",
        None,
        "interrupted",
    ]
    root, first, call, *rest = spans_from_events(log)
    assert finished == [root, call, *rest]  # the first model call was told, and has not changed
    assert interrupted[1] == first
    assert root.attributes["lib.run.outcome"] == "COMPLETED"
    assert call.attributes["lib.resumes"] == 1


def test_a_run_that_was_given_back_is_open_and_not_interrupted():
    sink = Recorder()

    async def main() -> None:
        async with observed(sink) as (engine, observer):
            await engine.has(cut_off())
            [lease] = await engine.store.claim("worker", ttl_s=30, run_id="run")
            await engine.store.release(lease)
            await observer.flush_open()

    run(main())

    assert [(span.end, span.status) for span in sink.exports[0]] == [(None, "ok"), (at(2), "ok")]


def test_open_runs_are_flushed_at_intervals():
    sink, clock = Recorder(), ManualClock(at(100))

    async def main() -> None:
        async with observed(sink, engine=Observed(clock), flush_interval_s=60) as (engine, _):
            await engine.has(cut_off())
            for _ in range(2):
                await until(lambda: clock.sleepers)
                clock.advance(60)
            await until(lambda: sink.exports)

    run(main())

    assert [len(spans) for spans in sink.exports] == [2]


def test_a_log_that_cannot_be_read_stops_neither_flushes_nor_lanes(
    caplog: pytest.LogCaptureFixture,
):
    sink, clock = Recorder(), ManualClock(at(100))

    class Damaged(MemoryEventStore):
        async def read(self, run_id: str, **rest: Any) -> list[Event]:
            if run_id == "broken":
                raise StoreCorrupt("a page cannot be read")
            return await super().read(run_id, **rest)

    async def main() -> bool:
        engine = Observed(clock)
        engine.store = Damaged(clock=clock)
        engine.bus = Bus(engine.store)
        async with observed(sink, engine=engine, flush_interval_s=60) as (engine, observer):
            started: dict[str, Any] = {"algorithm": "a", "input": []}
            await engine.has(make_log((0, k.RUN_STARTED, started), run_id="broken"))
            for _ in range(2):
                await until(lambda: clock.sleepers)
                clock.advance(60)
            await engine.grows("broken", (1, k.RUN_COMPLETED, {"outcome": "COMPLETED"}))
            await engine.has(ended("sound"))
            return await observer.drain()

    assert not run(main())
    assert [names(spans) for spans in sink.exports] == [["sound"]]
    assert {record.getMessage() for record in caplog.records} == {
        "the trace of run 'broken' does not get to Recorder",
    }


def test_a_root_that_is_erased_while_others_are_flushed_is_left_out():
    async def main() -> int:
        engine = Observed()
        sink = Recorder(lambda: engine.store.erase("two"))
        async with observed(sink, engine=engine) as (_, observer):
            for run_id in ("one", "two"):
                await engine.has(cut_off(run_id))
            return await observer.flush_open()

    assert run(main()) == 2


def test_backfill_exports_what_has_ended_oldest_first():
    sink = Recorder()

    async def main() -> tuple[int, int, int]:
        engine = Observed()
        await engine.store.setup()
        for number in range(300):
            await engine.has(ended(f"run-{number}"))
        await engine.has(cut_off("open"))
        await engine.has(ended("child", child_of="run-0"))
        async with observed(sink, engine=engine) as (_, observer):
            limited = await observer.backfill(limit=2)
            return limited, await observer.backfill(), await observer.backfill()

    assert run(main()) == (3, 298, 0)
    assert names([spans[0] for spans in sink.exports]) == [f"run-{n}" for n in range(300)]


def test_backfill_can_begin_at_a_time_and_can_be_told_to_do_nothing():
    sink = Recorder()

    async def main() -> tuple[int, int]:
        engine = Observed()
        await engine.store.setup()
        for second in (10, 20, 30):
            log = make_log(
                (second, k.RUN_STARTED, {"algorithm": "a", "input": []}),
                (second + 1, k.RUN_COMPLETED, {"outcome": "COMPLETED"}),
                run_id=f"run-{second}",
            )
            await engine.has(log)
        async with observed(sink, engine=engine) as (_, observer):
            return await observer.backfill(limit=0), await observer.backfill(since=at(20))

    assert run(main()) == (0, 2)
    assert names([spans[0] for spans in sink.exports]) == ["run-20", "run-30"]


# -- which traces ------------------------------------------------------------------------------


@pytest.mark.parametrize("sample", [0, 0.3, 1])
def test_a_sample_holds_whole_traces_by_the_last_64_bits_of_their_ids(sample: float):
    sink = Recorder()

    async def main() -> list[int]:
        async with observed(sink, sample=sample) as (engine, observer):
            for number in range(40):
                await engine.has(ended(f"run-{number}"))
                await engine.has(ended(f"child-{number}", child_of=f"run-{number}"))
            await observer.drain()
            assert await observer.backfill() == 0
            return [await observer.export_trace(f"run-{number}") for number in range(40)]

    counts = run(main())

    kept = [
        [f"run-{number}", f"child-{number}"]
        for number in range(40)
        if int(trace_id_of(f"run-{number}")[16:], 16) < round(sample * 2**64)
    ]
    assert [names(spans) for spans in sink.exports][: len(kept)] == kept
    assert len(kept) == {0: 0, 0.3: 15, 1: 40}[sample]
    assert sum(counts) == 2 * len(kept)


def test_an_observer_of_one_tenant_sees_no_other():
    sink = Recorder()

    async def main() -> int:
        engine = Observed()
        await engine.store.setup()
        await engine.has(ended("old-theirs", tenant="theirs"))
        async with observed(sink, engine=engine, tenant="ours") as (_, observer):
            await engine.has(ended("theirs", tenant="theirs"))
            await engine.has(ended("nobodys", tenant=None))
            await engine.has(make_log((0, k.RUN_STARTED, {"algorithm": "a"}), tenant="theirs"))
            await engine.has(ended("ours", tenant="ours"))
            await observer.drain()
            return (
                await observer.backfill()
                + await observer.flush_open()
                + await observer.export_trace("theirs")
            )

    assert run(main()) == 0
    assert [names(spans) for spans in sink.exports] == [["ours"]]


# -- sinks that do not do what they should -----------------------------------------------------


async def fail() -> None:
    raise ExportError("no")


async def refuse() -> None:
    raise ExportError("never", permanent=True)


async def blow_up() -> None:
    raise ZeroDivisionError


async def hang() -> None:
    await asyncio.Event().wait()


async def cancel() -> None:
    raise asyncio.CancelledError


async def ignore() -> None:
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.Event().wait()


async def fail_late() -> None:
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        raise ExportError("too late") from None


@pytest.mark.parametrize("trouble", [fail, blow_up, hang, cancel, ignore, fail_late])
def test_a_sink_in_trouble_is_logged_and_keeps_nobody_else_from_anything(
    trouble: Callable[[], Any], caplog: pytest.LogCaptureFixture
):
    bad, good = Recorder(trouble), Recorder()

    async def main() -> tuple[bool, int]:
        async with observed(bad, good, sink_timeout_s=0.02) as (engine, observer):
            await engine.has(ended("one"))
            await engine.has(ended("two"))
            return await observer.drain(), await observer.export_trace("one")

    assert run(main()) == (False, 1)
    assert [names(spans) for spans in bad.exports][:3] == [["one"], ["two"], ["one"]]
    assert [names(spans) for spans in good.exports] == [["one"], ["two"], ["one"]]
    assert [(record.levelno, record.getMessage()) for record in caplog.records][:3] == [
        (logging.ERROR, f"Recorder did not take the traces of runs ['{run_id}']")
        for run_id in ("one", "two", "one")
    ]


def test_a_sink_that_recovers_can_be_given_what_it_has_missed():
    down = True

    async def maybe() -> None:
        if down:
            raise ExportError("down")

    sink = Recorder(maybe)

    async def main() -> tuple[bool, int, bool]:
        nonlocal down
        async with observed(sink) as (engine, observer):
            await engine.has(ended("root"))
            before = await observer.drain()
            down = False
            return before, await observer.backfill(), await observer.drain()

    assert run(main()) == (False, 1, True)


def test_a_slow_sink_delays_no_other():
    slow, fast = Recorder(hang), Recorder()

    async def main() -> None:
        async with observed(slow, fast, sink_timeout_s=30) as (engine, observer):
            for number in range(5):
                await engine.has(ended(f"run-{number}"))
            assert not await observer.drain(timeout_s=0.05)
            assert len(slow.exports) == 1
            assert len(fast.exports) == 5
            raise ZeroDivisionError  # leaves without draining again

    with pytest.raises(ZeroDivisionError):
        run(main())


def test_draining_waits_for_what_has_ended_before_and_for_nothing_that_ends_meanwhile():
    async def main() -> bool:
        engine = Observed()

        async def another_ends() -> None:
            if len(sink.exports) > 1:
                await hang()
            await engine.has(ended("two"))
            await engine.bus.flush()

        sink = Recorder(another_ends)
        observer = Observer(engine, sink, settle_s=0)
        await engine.store.setup()
        await observer.__aenter__()
        await engine.has(ended("one"))
        drained = await observer.drain()
        await until(lambda: len(sink.exports) == 2)
        await observer.__aexit__(ZeroDivisionError, None, None)
        return drained

    assert run(main())


def test_when_too_many_wait_for_a_sink_the_rest_waits_in_the_log_and_is_not_lost():
    gate = asyncio.Event()
    sink = Recorder(gate.wait)

    async def main() -> None:
        engine = Observed()
        async with observed(sink, engine=engine, max_tracked=1) as (_, observer):
            for number in range(3):
                await engine.has(ended(f"run-{number}"))
            assert not await observer.drain(timeout_s=0.02)
            assert len(sink.exports) == 1
            gate.set()
            assert await observer.drain()

    run(main())

    assert [names(spans) for spans in sink.exports] == [["run-0"], ["run-1"], ["run-2"]]


def test_what_waits_in_the_log_when_an_observer_closes_is_for_the_next_one(
    caplog: pytest.LogCaptureFixture,
):
    stuck, later = Recorder(hang), Recorder()

    async def main() -> None:
        engine = Observed()
        await engine.store.setup()
        observer = Observer(engine, stuck, settle_s=0, max_tracked=1)
        await observer.__aenter__()
        for number in range(3):
            await engine.has(ended(f"run-{number}"))
        flushing = asyncio.create_task(engine.bus.flush())
        await until(lambda: stuck.exports)
        await observer.__aexit__(ZeroDivisionError, None, None)
        assert not await flushing
        async with observed(later, engine=engine):
            pass

    run(main())

    assert [names(spans) for spans in later.exports] == [["run-0"], ["run-1"], ["run-2"]]
    assert "bus group 'lib.observe': a batch will be tried again" in caplog.text


def test_of_a_sink_that_ends_with_the_process_only_so_many_traces_are_remembered():
    sink = InMemorySink()

    async def main() -> int:
        async with observed(sink, max_tracked=2) as (engine, observer):
            for number in range(3):
                await engine.has(ended(f"run-{number}"))
            await observer.drain()
            return await observer.backfill(limit=1)

    assert run(main()) == 1  # nobody knows any more that it was exported


def test_only_so_many_failures_are_remembered():
    sink = Recorder(refuse)

    async def main() -> bool:
        async with observed(sink, max_tracked=1) as (engine, observer):
            for number in range(3):
                await engine.has(ended(f"run-{number}"))
            return await observer.drain()

    assert not run(main())
    assert len(sink.exports) == 3


def test_one_sink_needs_no_list_and_no_sink_is_fine_too():
    sink = InMemorySink()

    async def main() -> None:
        engine = Observed()
        await engine.store.setup()
        async with (
            Observer(engine, sink, settle_s=0),
            Observer(engine, [], settle_s=0, group="idle") as idle,
        ):
            await engine.has(ended("root"))
            assert await idle.drain()
            assert await idle.export_trace("root") == 0

    run(main())

    assert names(sink.spans) == ["root"]


def test_drain_says_so_when_the_bus_could_not_deliver():
    async def main() -> bool:
        async with observed(InMemorySink()) as (engine, observer):

            async def refuse(_: list[Event]) -> None:
                raise ZeroDivisionError

            await engine.bus.subscribe("other", refuse)
            await engine.has(ended("root"))
            return await observer.drain()

    assert not run(main())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("content_limit", -1),
        ("sample", 1.1),
        ("sample", -0.1),
        ("settle_s", -1),
        ("flush_interval_s", 0),
        ("sink_timeout_s", 0),
        ("max_tracked", 0),
    ],
)
def test_arguments_out_of_range_are_refused_at_once(name: str, value: Any):
    with pytest.raises(ValueError, match=f"{name}={value!r} is out of the range"):
        Observer(Observed(), InMemorySink(), **{name: value})


def test_a_callable_is_a_sink():
    taken: list[Span] = []

    async def main() -> None:
        async with observed(CallableSink(taken.extend)) as (engine, _):
            await engine.has(ended("root"))

    run(main())

    assert names(taken) == ["root"]
