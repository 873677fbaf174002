"""Spans that a sink took before it failed are not sent again; only a bad trace is lost."""

import asyncio
from collections.abc import Callable, Sequence

from fakes.observed import ended, observed
from lib.errors import ExportError
from lib.events import kinds as k
from lib.observe import Span, span_id_of

from .delivery_kit import CALL, Backend, Engine, begun, called, main


def test_several_traces_go_into_one_export_where_the_sink_says_so_and_a_bad_one_alone_is_lost():
    backend = Backend(traces_per_export=2)

    async def refuse_two() -> None:
        if "two" in backend.exports[-1]:
            raise ExportError("malformed", permanent=True)

    backend.trouble = [refuse_two] * 9

    async def body(engine: Engine) -> bool:
        async with observed(engine, backend) as observer:
            await engine.has(ended("one"), ended("two"), ended("three"))
            drained = await observer.drain()
            assert await observer.backfill() == 0
            backend.trouble = []
            assert await observer.backfill() == 1
            assert await observer.drain()
            return drained

    assert not main(body)
    assert backend.exports[:4] == [["one", "two"], ["one"], ["two"], ["three"]]
    assert sorted(span.run_id for span in backend.spans) == ["one", "three", "two"]


def test_spans_that_were_taken_before_a_failure_are_not_sent_again():
    backend = Backend(updates="first")

    async def take_one_and_fail() -> None:
        taken = frozenset({span_id_of("run", "run", "")})
        raise ExportError("the second request failed", taken=taken)

    backend.trouble = [take_one_and_fail]

    async def body(engine: Engine) -> None:
        await engine.has(begun())
        await engine.grows("run", (2, k.TOOL_REQUESTED, CALL))
        await engine.grows("run", (3, k.RUN_COMPLETED, {"outcome": "COMPLETED"}))
        async with observed(engine, backend) as observer:
            assert await observer.backfill() == 0
            assert await observer.backfill() == 1

    main(body)

    assert [len(export) for export in backend.exports] == [2, 1]


def test_of_several_traces_what_was_taken_before_one_is_refused_is_not_sent_again():
    backend = Backend(updates="first", traces_per_export=3)

    async def take_one_and_refuse() -> None:
        if len(backend.exports) == 1:
            taken = frozenset({span_id_of("one", "run", "")})
            raise ExportError("the second span is malformed", permanent=True, taken=taken)
        if backend.exports[-1] == ["two"]:
            raise ExportError("malformed", permanent=True)

    backend.trouble = [take_one_and_refuse] * 3

    async def body(engine: Engine) -> None:
        async with observed(engine, backend) as observer:
            await engine.has(ended("one"), ended("two"), ended("three"))
            assert not await observer.drain()

    main(body)

    assert backend.exports == [["one", "two", "three"], ["two"], ["three"]]


def test_a_trace_that_a_backend_stumbles_over_does_not_keep_the_others_back():
    sink = Backend(traces_per_export=8)

    async def stumble() -> None:
        if "run-3" in sink.exports[-1]:
            raise ExportError("internal error")

    sink.trouble = [stumble] * 100

    async def body(engine: Engine) -> None:
        async with observed(engine, sink):
            await engine.has(*[ended(f"run-{number}") for number in range(8)])
            await engine.bus.flush()
            while len(sink.spans) < 7:
                await asyncio.sleep(0)  # noqa: TID251 - lets the observer run
                engine.clock.advance(1)
            assert engine.clock.monotonic() < 100 + 120
            sink.trouble = []

    main(body)

    assert "run-3" in {span.run_id for span in sink.spans}


def test_lost_spans_are_reported_and_not_sent_again():
    taken = frozenset(span_id_of(run_id, "run", "") for run_id in ("one", "two"))
    partial = ExportError("2 of 2 spans were refused", permanent=True, taken=taken, lost=2)
    sink = Backend(partial, updates="first", traces_per_export=2)

    async def body(engine: Engine) -> None:
        async with observed(engine, sink) as observer:
            await engine.has(ended("one"), ended("two"))
            assert not await observer.drain()
            assert await observer.backfill() == 0

    main(body)

    assert sink.exports == [["one", "two"]]


def test_what_a_sink_has_taken_before_the_time_was_up_is_not_sent_again():
    class Reporting(Backend):
        async def export(
            self, spans: Sequence[Span], *, on_taken: Callable[[Sequence[str]], None] | None = None
        ) -> None:
            assert on_taken is not None
            self.exports.append([span.name for span in spans])
            on_taken([spans[0].span_id])
            if len(self.exports) == 1:
                await asyncio.Event().wait()

    sink = Reporting(updates="first", reports_taken=True)

    async def body(engine: Engine) -> None:
        await engine.has(called())
        await engine.grows("run", (3, k.RUN_COMPLETED, {"outcome": "COMPLETED"}))
        async with observed(engine, sink, sink_timeout_s=0.02) as observer:
            assert await observer.backfill() == 0
            assert await observer.backfill() == 1

    main(body)

    assert sink.exports == [["invoke_agent a", "execute_tool n"], ["execute_tool n"]]
