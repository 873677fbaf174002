"""Observers of one group share the work: each trace is exported by one of them, once."""

import asyncio
from datetime import datetime

from fakes.observed import ended, observed, until
from lib.errors import ExportError
from lib.events import MemoryEventStore
from lib.observe import Observer, Span, span_id_of, trace_id_of
from lib.observe.export.outbox import Checkpoint, StoreOutbox
from lib.testing.logs import at

from .delivery_kit import Backend, Engine, QueryableBackend, called, main


def test_observers_of_one_group_share_the_work():
    async def body(engine: Engine) -> None:
        gate = asyncio.Event()
        backend = Backend(gate.wait)
        other = Engine(engine.store)
        other.clock = engine.clock
        async with observed(engine, backend) as one, observed(other, backend) as two:
            await engine.has(ended("run"))
            first = asyncio.create_task(one.backfill())
            await until(lambda: backend.exports)
            assert await two.backfill() == 0  # the other one exports it just now
            gate.set()
            assert await first == 1
            engine.clock.advance(60)
            assert await two.drain()
        assert backend.exports == [["run"]]

    main(body)


def test_a_trace_claimed_by_another_observer_is_retried_when_the_claim_expires():
    gate = asyncio.Event()
    backend = Backend(gate.wait)

    async def body(engine: Engine) -> None:
        other = Engine(engine.store)
        other.clock = engine.clock
        async with observed(engine, backend) as one:
            async with observed(other, backend) as two:
                await engine.has(ended("run"))
                first = asyncio.create_task(one.backfill())
                await until(lambda: backend.exports)
                draining = asyncio.create_task(two.drain())
                await until(lambda: engine.clock.sleepers)
                gate.set()
                await first
                engine.clock.advance(60)
                assert await draining
            assert await one.drain()

    main(body)

    assert backend.exports == [["run"]]


def test_one_of_two_concurrent_claims_of_a_trace_succeeds():
    async def body(engine: Engine) -> list[object]:
        outboxes = [
            StoreOutbox(engine.store, "x", owner=owner, claim_s=30) for owner in ("one", "two")
        ]
        now = engine.clock.now()
        return await asyncio.gather(*[outbox.claim("run", now=now) for outbox in outboxes])

    class Slow(MemoryEventStore):
        async def mark(self, name: str) -> str | None:
            found = await super().mark(name)
            await asyncio.sleep(0)  # noqa: TID251 - the other one reads the same
            return found

    found = main(body, Engine(Slow()))

    assert [type(each) for each in found] == [Checkpoint, datetime]


def test_a_trace_of_a_dead_observer_is_exported_once_its_claim_expires():
    backend = QueryableBackend()

    async def body(engine: Engine) -> None:
        await engine.has(ended("run"))
        dead = Observer(engine, backend, settle_s=0, group="g")
        backend.trouble = [asyncio.Event().wait]
        async with asyncio.timeout(200):
            dying = asyncio.create_task(dead.backfill())
            await until(lambda: backend.exports)
            dying.cancel()
        async with observed(engine, backend, group="g") as observer:
            assert await observer.backfill() == 0
            await until(lambda: engine.clock.sleepers)
            engine.clock.advance(60)
            assert await observer.drain()

    main(body)

    assert len(backend.spans) == 1


def test_spans_sent_by_a_dead_observer_are_not_sent_again_to_a_queryable_sink():
    async def body(engine: Engine, backend: Backend) -> int:
        await engine.has(ended("run"))

        async def taken_then_dead() -> None:
            backend.spans += [span]
            raise ExportError("the connection was lost")

        async with observed(engine, Backend(destination="other")) as observer:
            await observer.backfill()
        span = Span(
            trace_id_of("run"), span_id_of("run", "run", ""), None, "x", "agent", at(0), at(1)
        )
        backend.trouble = [taken_then_dead]
        async with observed(engine, backend) as observer:
            assert await observer.backfill() == 0
            return await observer.backfill()

    for backend, again in ((QueryableBackend(updates="first"), 0), (Backend(updates="first"), 1)):
        assert main(lambda engine, backend=backend: body(engine, backend)) == again
        assert len(backend.spans) == 1 + again


def test_two_observers_of_one_group_drain_as_soon_as_one_of_them_has_exported():
    sink = Backend(updates="first")

    async def body(engine: Engine) -> None:
        other = Engine(engine.store)
        other.clock = engine.clock
        async with observed(engine, sink) as one, observed(other, sink) as two:
            await engine.has(*[ended(f"run-{number}") for number in range(5)])
            draining = asyncio.gather(one.drain(), two.drain())
            while not draining.done():
                await asyncio.sleep(0)  # noqa: TID251 - lets the observers run
                engine.clock.advance(0.1)
            assert await draining == [True, True]
            assert engine.clock.monotonic() < 100 + 15

    main(body)

    assert sorted(sink.exports) == [[f"run-{number}"] for number in range(5)]


def test_a_run_is_not_called_interrupted_early_because_another_observer_was_at_it():
    gate = asyncio.Event()
    sink = Backend(gate.wait, updates="first")

    async def body(engine: Engine) -> None:
        other = Engine(engine.store)
        other.clock = engine.clock
        await engine.has(called())
        await engine.store.claim("worker", ttl_s=30, run_id="run")
        async with observed(engine, sink) as one, observed(other, sink):
            first = asyncio.create_task(one.flush_open())
            await until(lambda: sink.exports)
            gate.set()
            await first
            engine.clock.advance(45)  # the lease has ended 15 seconds ago
            async with observed(engine, sink, group="other") as third:
                await third._flush(dead_for_s=60.0)  # pyright: ignore[reportPrivateUsage] - as the periodic one
            for _ in range(20):
                await asyncio.sleep(0)  # noqa: TID251 - lets the lanes run

    main(body)

    assert all(span.attributes.get("error.type") is None for span in sink.spans)
