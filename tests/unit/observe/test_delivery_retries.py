"""A sink in trouble is tried again, in time, and delays no other."""

import asyncio

import pytest

from fakes.observed import ended, observed, until
from lib.errors import ExportError
from lib.events import kinds as k
from lib.observe import span_id_of

from .delivery_kit import Backend, Engine, called, main


def test_a_sink_is_tried_again_and_left_alone_as_long_as_it_asks_for():
    backend = Backend(ExportError("busy", retry_after_s=7.0), ExportError("busy"))

    async def body(engine: Engine) -> None:
        async with observed(engine, backend):
            await engine.has(ended("one"), ended("two"))
            await engine.bus.flush()
            await until(lambda: engine.clock.sleepers)
            assert backend.exports == [["one"]]
            engine.clock.advance(6.9)
            await until(lambda: engine.clock.sleepers)
            assert backend.exports == [["one"]]
            engine.clock.advance(0.2)
            await until(lambda: len(backend.exports) == 2 and engine.clock.sleepers)
            assert backend.exports == [["one"], ["two"]]
            engine.clock.advance(60)
            await until(lambda: len(backend.spans) == 2)

    main(body)

    assert backend.exports == [["one"], ["two"], ["one"], ["two"]]


def test_the_pauses_of_a_sink_that_keeps_failing_grow_up_to_a_minute():
    backend = Backend()

    async def body(engine: Engine) -> list[float]:
        async with observed(engine, backend):
            backend.trouble = [ExportError("down")] * 12
            await engine.has(ended("run"))
            await engine.bus.flush()
            pauses: list[float] = []
            for tries in range(1, 10):
                await until(lambda tries=tries: len(backend.exports) == tries)
                await until(lambda: engine.clock.sleepers)
                before = engine.clock.monotonic()
                while len(backend.exports) == tries:
                    engine.clock.advance(0.5)
                    await until(lambda: engine.clock.sleepers)
                pauses.append(engine.clock.monotonic() - before)
            backend.trouble = []
            return pauses

    pauses = main(body)

    assert pauses[:4] == sorted(pauses[:4])
    assert pauses[-1] == pytest.approx(60, abs=1)


def test_a_hanging_sink_delays_no_other_when_open_runs_are_flushed():
    stuck, healthy = Backend(*[asyncio.Event().wait] * 9), Backend(destination="healthy")

    async def body(engine: Engine) -> None:
        await engine.has(*[called(f"run-{number}") for number in range(5)])
        async with observed(engine, stuck, healthy, sink_timeout_s=30) as observer:
            flushing = asyncio.create_task(observer.flush_open())
            await until(lambda: len(healthy.exports) == 5)
            assert len(stuck.exports) == 1
            flushing.cancel()
            raise ZeroDivisionError  # leaves without draining

    with pytest.raises(ZeroDivisionError):
        main(body)


def test_a_periodic_flush_leaves_a_sink_alone_that_rests():
    sink = Backend(ExportError("busy", retry_after_s=300))

    async def body(engine: Engine) -> None:
        await engine.has(called())
        async with observed(engine, sink, flush_interval_s=10):
            await engine.has(ended("other"))
            await engine.bus.flush()
            await until(lambda: sink.exports)
            for _ in range(10):
                for _ in range(50):
                    await asyncio.sleep(0)  # noqa: TID251 - lets the observer run
                engine.clock.advance(10)
            assert len(sink.exports) == 1
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        main(body)


def test_a_wait_that_a_backend_asks_for_is_an_hour_at_most():
    sink = Backend(ExportError("later", retry_after_s=1e12))

    async def body(engine: Engine) -> None:
        async with observed(engine, sink):
            await engine.has(ended("run"))
            await engine.bus.flush()
            await until(lambda: sink.exports)
            await until(lambda: engine.clock.sleepers)
            engine.clock.advance(3601)
            await until(lambda: sink.spans)

    main(body)


def test_an_odd_error_of_a_sink_is_one_that_passes_and_ends_no_lane():
    odd = RuntimeError("odd")
    odd.retry_after_s = "30"  # type: ignore[attr-defined] - that is what is odd
    odd.taken = 7  # type: ignore[attr-defined] - likewise
    sink = Backend(odd, ValueError("not JSON"), ExportError("down"))

    async def body(engine: Engine) -> None:
        async with observed(engine, sink):
            await engine.has(ended("run"))
            await engine.bus.flush()
            while not sink.spans:
                await asyncio.sleep(0)  # noqa: TID251 - lets the observer run
                engine.clock.advance(1)

    main(body)

    assert len(sink.exports) == 4


def test_a_sink_that_ends_with_the_process_is_tried_again_with_what_it_lacks():
    taken = frozenset({span_id_of("run", "run", "")})
    sink = Backend(ExportError("down", taken=taken), destination=None, updates="first")

    async def body(engine: Engine) -> None:
        await engine.has(called())
        await engine.grows("run", (3, k.RUN_COMPLETED, {"outcome": "COMPLETED"}))
        async with observed(engine, sink) as observer:
            assert await observer.backfill() == 0
            assert await observer.backfill() == 1

    main(body)

    assert [span.kind for span in sink.spans] == ["tool"]
