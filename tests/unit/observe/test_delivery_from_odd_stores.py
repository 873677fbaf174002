"""Logs that make no sense, runs that are erased meanwhile, and stores that fail."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from fakes.observed import ended, observed, until
from lib.errors import ExportError, StoreCorrupt
from lib.events import Event, MemoryEventStore
from lib.events import kinds as k
from lib.events.store import run_mark
from lib.testing.logs import make_log

from .delivery_kit import Backend, Engine, begun, called, main

# -- logs that make no sense -------------------------------------------------------------------


def test_a_damaged_log_is_abandoned():
    backend = Backend()

    class Odd(MemoryEventStore):
        async def read(self, run_id: str, **rest: Any) -> list[Event]:
            events = await super().read(run_id, **rest)
            return [replace(event, data=None) for event in events]

    async def body(engine: Engine) -> bool:
        async with observed(engine, backend) as observer:
            await engine.has(ended("run"))
            return await observer.drain()

    assert not main(body, Engine(Odd()))


def test_a_damaged_log_of_a_child_leaves_the_rest_of_the_trace(
    caplog: pytest.LogCaptureFixture,
):
    sink = Backend()

    class Odd(MemoryEventStore):
        async def read(self, run_id: str, **rest: Any) -> list[Event]:
            events = await super().read(run_id, **rest)
            return events[1:] if run_id == "child" else events

    async def body(engine: Engine) -> int:
        below = {"root": "run", "parent": {"run_id": "run", "key": "t"}}
        child = make_log(
            (1, k.RUN_STARTED, {"algorithm": "a", "input": [], **below}),
            (2, k.RUN_COMPLETED, {"outcome": "COMPLETED"}),
            run_id="child",
        )
        await engine.has(called(), child)
        await engine.grows("run", (3, k.RUN_COMPLETED, {"outcome": "COMPLETED"}))
        async with observed(engine, sink) as observer:
            return await observer.backfill()

    assert main(body, Engine(Odd())) == 2
    assert "the log of run 'child' is damaged" in caplog.text


def test_a_run_that_is_erased_between_looking_and_claiming_leaves_nothing():
    sink = Backend()

    class Erasing(MemoryEventStore):
        async def compare_and_set_mark(
            self, name: str, *, expected: str | None, value: str | None
        ) -> bool:
            if name.startswith("run/") and expected is None:
                await self.erase("run")
            return await super().compare_and_set_mark(name, expected=expected, value=value)

    async def body(engine: Engine) -> None:
        await engine.has(ended("run"))
        async with observed(engine, sink) as observer:
            assert await observer.backfill() == 0
        mark = run_mark("run", "observe/lib.observe/backend")
        assert await engine.store.mark(mark) is None

    main(body, Engine(Erasing()))

    assert sink.exports == []


def test_the_same_holds_for_a_sink_that_ends_with_the_process():
    class Erasing(MemoryEventStore):
        runs_read = 0

        async def read(self, run_id: str, **rest: Any) -> list[Event]:
            await self.erase("run")
            return await super().read(run_id, **rest)

    sink = Backend(destination=None)

    async def body(engine: Engine) -> None:
        await engine.has(ended("run"))
        async with observed(engine, sink) as observer:
            assert await observer.backfill() == 0

    main(body, Engine(Erasing()))

    assert sink.exports == []


# -- stores that fail --------------------------------------------------------------------------


def test_flushes_go_on_after_a_store_that_could_not_be_read(
    caplog: pytest.LogCaptureFixture,
):
    backend = Backend()

    class Flaky(MemoryEventStore):
        broken = 1

        async def runs(self, query: Any = None) -> Any:
            if query.status == "open" and self.broken:
                self.broken -= 1
                raise StoreCorrupt("a page cannot be read")
            return await super().runs(query)

    async def body(engine: Engine) -> None:
        async with observed(engine, backend, flush_interval_s=1):
            await engine.has(begun())
            for _ in range(2):
                await until(lambda: engine.clock.sleepers)
                engine.clock.advance(1)
            await until(lambda: backend.spans)

    main(body, Engine(Flaky()))

    assert "open runs cannot be read for lib.observe" in caplog.text


def test_a_failed_commit_is_logged_and_the_trace_is_sent_again():
    backend = Backend()

    class Full(MemoryEventStore):
        full = False

        async def compare_and_set_mark(self, name: str, **rest: Any) -> bool:
            if self.full:
                raise StoreCorrupt("no room")
            return await super().compare_and_set_mark(name, **rest)

    store = Full()

    async def fill() -> None:
        store.full = True

    backend.trouble = [fill]

    async def body(engine: Engine) -> None:
        async with observed(engine, backend) as observer:
            await engine.has(ended("run"))
            assert not await observer.drain()
            store.full = False
            assert await observer.drain()

    main(body, Engine(store))

    assert backend.exports == [["run"], ["run"]]


def test_the_queue_goes_on_if_pending_traces_cannot_be_read():
    backend = Backend()

    class Broken(MemoryEventStore):
        broken = True

        async def compare_and_set_mark(self, name: str, **rest: Any) -> bool:
            if self.broken and not name.startswith("bus/"):
                raise StoreCorrupt("a page cannot be read")
            return await super().compare_and_set_mark(name, **rest)

    store = Broken()

    async def body(engine: Engine) -> None:
        async with observed(engine, backend) as observer:
            await asyncio.sleep(0)  # noqa: TID251 - the lane begins
            store.broken = False
            await engine.has(ended("run"))
            assert await observer.drain()

    main(body, Engine(store))

    assert backend.exports == [["run"]]


def test_claims_that_cannot_be_released_expire():
    backend = Backend()

    class Stuck(MemoryEventStore):
        async def compare_and_set_mark(
            self, name: str, *, expected: str | None, value: str | None
        ) -> bool:
            if expected and "claim" in expected:
                raise StoreCorrupt("no room")
            return await super().compare_and_set_mark(name, expected=expected, value=value)

    backend.trouble = [ExportError("down")]

    async def body(engine: Engine) -> None:
        await engine.has(ended("run"))
        async with observed(engine, backend) as observer:
            assert await observer.backfill() == 0

    main(body, Engine(Stuck()))


def test_the_queue_goes_on_after_an_unexpected_error_of_the_store(caplog: pytest.LogCaptureFixture):
    class Odd(MemoryEventStore):
        faults = 1

        async def compare_and_set_mark(
            self, name: str, *, expected: str | None, value: str | None
        ) -> bool:
            if self.faults and expected and "claim" in expected:
                self.faults -= 1
                raise RuntimeError("odd")
            return await super().compare_and_set_mark(name, expected=expected, value=value)

    sink = Backend(ExportError("down"))

    async def body(engine: Engine) -> None:
        async with observed(engine, sink):
            await engine.has(ended("run"))
            await engine.bus.flush()
            while not sink.spans:
                await asyncio.sleep(0)  # noqa: TID251 - lets the observer run
                engine.clock.advance(10)

    main(body, Engine(Odd()))

    assert "the queue of Backend goes on after an error" in caplog.text
