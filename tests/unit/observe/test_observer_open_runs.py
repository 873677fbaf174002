"""Exports on demand: a trace at any time, open runs, and runs that ended before."""

from pathlib import Path
from typing import Any

import pytest

from fakes.observed import HandEngine, until
from lib.errors import RunNotFound, StoreCorrupt
from lib.events import Event, MemoryEventStore, SQLiteEventStore
from lib.events import kinds as k
from lib.llm import ScriptedClient
from lib.observe import InMemorySink, Observer, spans_from_events
from lib.testing.agents import make_engine
from lib.testing.clock import ManualClock
from lib.testing.logs import at, make_log, store_log
from lib.tools import tool

from .observer_kit import Recorder, cut_off, ended, names, observing


async def test_a_trace_can_be_exported_at_any_time_and_again():
    sink = Recorder()

    async def main() -> tuple[int, int]:
        async with observing(sink) as (engine, observer):
            await engine.has(cut_off())
            return await observer.export_trace("run"), await observer.export_trace("run")

    assert (await main()) == (3, 3)
    assert sink.exports == [spans_from_events(cut_off())] * 2


async def test_a_long_log_is_read_off_the_event_loop_with_the_same_result():
    verdict = {"guard": "pii", "stage": "input", "verdict": "allow"}
    log = make_log(
        (0, k.RUN_STARTED, {"algorithm": "a", "input": []}), *[(1, k.GUARD_VERDICT, verdict)] * 200
    )
    sink = InMemorySink()

    async with observing(sink) as (engine, observer):
        await engine.has(log)
        assert await observer.export_trace("run") == 201

    assert sink.spans == spans_from_events(log)


async def test_only_root_runs_that_exist_have_a_trace():
    missing: list[str] = []
    async with observing(InMemorySink()) as (engine, observer):
        await engine.has(ended("root"))
        await engine.has(ended("child", child_of="root"))
        for run_id in ("child", "nothing"):
            with pytest.raises(RunNotFound) as raised:
                await observer.export_trace(run_id)
            missing.append(raised.value.run_id)
    assert missing == ["child", "nothing"]


async def test_an_open_run_is_exported_bit_by_bit():
    sink = Recorder()

    async def main() -> list[int]:
        async with observing(sink) as (engine, observer):
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

    assert (await main()) == [2, 0, 1, 1, 0]
    assert [[(span.name, span.end) for span in spans] for spans in sink.exports] == [
        [("invoke_agent a", None), ("execute_tool search", at(2))],
        [("execute_tool search", at(4))],
        [("invoke_agent a", at(5))],
    ]


async def test_a_run_whose_process_died_is_exported_as_interrupted_once_and_corrected_later():
    sink = Recorder()

    async def main() -> list[int]:
        async with observing(sink) as (engine, observer):
            await engine.has(cut_off())
            await engine.grows("run", (50, k.TURN_REQUESTED, {"signal_id": "s", "input": []}))
            await engine.store.claim("worker", ttl_s=30, run_id="run")
            sent = [await observer.flush_open()]
            engine.clock.advance(30)
            sent += [await observer.flush_open(), await observer.flush_open()]
            await engine.grows(
                "run",
                (60, k.TOOL_COMPLETED, {"key": "two", "call_id": "two", "output": "y"}),
                (61, k.RUN_COMPLETED, {"outcome": "COMPLETED"}),
            )
            await observer.drain()
            return sent

    assert (await main()) == [2, 2, 0]
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


async def test_a_run_that_died_with_its_process_is_exported_by_the_next_one_and_then_finished(
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

    log = await lives(await dies())

    interrupted, finished = sink.exports
    assert [span.attributes.get("error.type") for span in interrupted] == [
        "interrupted",
        None,
        "interrupted",
    ]
    root, first, call, *rest = spans_from_events(log)
    assert finished == [root, call, *rest]  # the first model call was sent, and has not changed
    assert interrupted[1] == first
    assert root.attributes["lib.run.outcome"] == "COMPLETED"
    assert call.attributes["lib.resumes"] == 1


async def test_a_run_that_was_given_back_is_open_and_not_interrupted():
    sink = Recorder()

    async with observing(sink) as (engine, observer):
        await engine.has(cut_off())
        [lease] = await engine.store.claim("worker", ttl_s=30, run_id="run")
        await engine.store.release(lease)
        await observer.flush_open()

    assert [(span.end, span.status) for span in sink.exports[0]] == [(None, "ok"), (at(2), "ok")]


async def test_open_runs_are_flushed_at_intervals():
    sink = Recorder()

    async with observing(sink, flush_interval_s=60) as (engine, _):
        await engine.has(cut_off())
        for _ in range(2):
            await until(lambda: engine.clock.sleepers)
            engine.clock.advance(60)
        await until(lambda: sink.exports)

    assert [len(spans) for spans in sink.exports] == [2]


async def test_a_log_that_cannot_be_read_stops_neither_flushes_nor_lanes(
    caplog: pytest.LogCaptureFixture,
):
    sink = Recorder()

    class Damaged(MemoryEventStore):
        async def read(self, run_id: str, **rest: Any) -> list[Event]:
            if run_id == "broken":
                raise StoreCorrupt("a page cannot be read")
            return await super().read(run_id, **rest)

    async def main() -> bool:
        engine = HandEngine(Damaged())
        async with observing(sink, engine=engine, flush_interval_s=60) as (_, observer):
            started: dict[str, Any] = {"algorithm": "a", "input": []}
            await engine.has(make_log((0, k.RUN_STARTED, started), run_id="broken"))
            for _ in range(2):
                await until(lambda: engine.clock.sleepers)
                engine.clock.advance(60)
            await engine.grows("broken", (1, k.RUN_COMPLETED, {"outcome": "COMPLETED"}))
            await engine.has(ended("sound"))
            return await observer.drain()

    assert not (await main())
    assert [names(spans) for spans in sink.exports] == [["sound"]]
    (line,) = set(caplog.messages)
    assert line.startswith("the trace of run 'broken' does not get to Recorder: StoreCorrupt: ")


async def test_a_root_that_is_erased_while_others_are_flushed_is_left_out():
    async def main() -> int:
        engine = HandEngine()
        sink = Recorder(lambda: engine.store.erase("two"))
        async with observing(sink, engine=engine) as (_, observer):
            for run_id in ("one", "two"):
                await engine.has(cut_off(run_id))
            return await observer.flush_open()

    assert (await main()) == 2


async def test_backfill_exports_what_has_ended_oldest_first():
    sink = Recorder()

    async def main() -> tuple[int, int, int]:
        engine = HandEngine()
        await engine.store.setup()
        for number in range(300):
            await engine.has(ended(f"run-{number}"))
        await engine.has(cut_off("open"))
        await engine.has(ended("child", child_of="run-0"))
        async with observing(sink, engine=engine) as (_, observer):
            limited = await observer.backfill(limit=2)
            return limited, await observer.backfill(), await observer.backfill()

    assert (await main()) == (3, 298, 0)
    assert names([spans[0] for spans in sink.exports]) == [f"run-{n}" for n in range(300)]


async def test_backfill_can_begin_at_a_time_and_can_be_switched_off():
    sink = Recorder()

    async def main() -> tuple[int, int]:
        engine = HandEngine()
        await engine.store.setup()
        for second in (10, 20, 30):
            log = make_log(
                (second, k.RUN_STARTED, {"algorithm": "a", "input": []}),
                (second + 1, k.RUN_COMPLETED, {"outcome": "COMPLETED"}),
                run_id=f"run-{second}",
            )
            await engine.has(log)
        async with observing(sink, engine=engine) as (_, observer):
            return await observer.backfill(limit=0), await observer.backfill(since=at(20))

    assert (await main()) == (0, 2)
    assert names([spans[0] for spans in sink.exports]) == ["run-20", "run-30"]
