"""Backends with demands: the first word counts, the root first, every span knows its trace."""

from typing import Any

from fakes.observed import observed, until
from lib.events import NewEvent
from lib.events import kinds as k
from lib.testing.logs import at

from .delivery_kit import CALL, Backend, Engine, begun, called, main


def test_a_sink_for_which_the_first_word_counts_gets_no_open_span_and_none_twice():
    backend = Backend(updates="first")

    async def body(engine: Engine) -> None:
        async with observed(engine, backend) as observer:
            await engine.has(begun())
            assert await observer.flush_open() == 0
            await engine.grows("run", (2, k.TOOL_REQUESTED, CALL))
            await engine.grows("run", (3, k.TOOL_COMPLETED, {"key": "t", "output": "x"}))
            assert await observer.flush_open() == 1
            assert await observer.export_trace("run") == 0
            await engine.store.claim("worker", ttl_s=5, run_id="run")
            engine.clock.advance(10)
            assert await observer.flush_open() == 1  # the root, as interrupted
            await engine.grows("run", (120, k.RUN_COMPLETED, {"outcome": "COMPLETED"}))
            assert await observer.drain()
            assert await observer.export_trace("run") == 0

    main(body)

    assert len(set(backend.ids())) == len(backend.ids()) == 2


def test_periodic_flushes_leave_a_dead_run_a_minute_to_be_taken_over():
    backend = Backend(updates="first")

    async def body(engine: Engine) -> None:
        await engine.has(begun())
        await engine.store.claim("worker", ttl_s=5, run_id="run")
        async with observed(engine, backend, flush_interval_s=30):
            for _ in range(2):
                await until(lambda: engine.clock.sleepers)
                assert backend.spans == []
                engine.clock.advance(30)
            await until(lambda: engine.clock.sleepers)
            engine.clock.advance(30)
            await until(lambda: backend.spans)

    main(body)


def test_a_backend_that_needs_the_root_gets_nothing_before_it():
    sink = Backend(updates="first", needs_root=True)

    async def body(engine: Engine) -> None:
        await engine.has(called())
        async with observed(engine, sink) as observer:
            assert await observer.flush_open() == 0
            await engine.grows("run", (3, k.RUN_COMPLETED, {"outcome": "COMPLETED"}))
            assert await observer.drain()
        await engine.has(called("dead"))
        await engine.store.claim("worker", ttl_s=1, run_id="dead")
        engine.clock.advance(5)
        async with observed(engine, sink) as observer:
            assert await observer.flush_open() == 2

    main(body)

    assert [len(export) for export in sink.exports] == [2, 2]


def test_attributes_of_a_trace_are_on_each_of_its_spans():
    sink = Backend()

    async def body(engine: Engine) -> None:
        turn: dict[str, Any] = {"signal_id": "s", "input": []}
        await engine.has(called())
        await engine.store.append("run", [NewEvent(k.TURN_REQUESTED, turn, at(3))], expected=None)
        async with observed(engine, sink) as observer:
            await observer.flush_open()

    main(body)

    assert {span.trace["lib.trace.name"] for span in sink.spans} == {"invoke_workflow a"}
    assert {span.trace["gen_ai.conversation.id"] for span in sink.spans} == {"run"}
