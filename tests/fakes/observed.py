"""Parts for tests of observers and of their sinks, with logs written by hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from lib.events import Event, MemoryEventStore, NewEvent
from lib.events import kinds as k
from lib.events.bus import Bus
from lib.observe import Observer
from lib.testing.aio import run
from lib.testing.clock import ManualClock
from lib.testing.logs import at, make_log, store_log

T = TypeVar("T")


class HandEngine:
    """An engine whose runs are written down; another one over the same store is another process."""

    def __init__(self, store: MemoryEventStore | None = None) -> None:
        """Begin 100 seconds after noon, with an empty store or with this one."""
        self.clock = ManualClock(at(100))
        self.store = store or MemoryEventStore(clock=self.clock)
        self.bus = Bus(self.store)

    async def has(self, *logs: list[Event]) -> None:
        """Store whole logs."""
        for log in logs:
            await store_log(self.store, log)

    async def grows(self, run_id: str, *entries: tuple[float, str, dict[str, Any]]) -> None:
        """Append events to a log, as `make_log` takes them."""
        info = await self.store.run(run_id)
        assert info is not None
        events = [NewEvent(kind, data, at(seconds)) for seconds, kind, data in entries]
        await self.store.append(run_id, events, expected=info.head)


def ended(run_id: str) -> list[Event]:
    """Return the log of a run that does nothing."""
    return make_log(
        (0, k.RUN_STARTED, {"algorithm": "a", "input": []}),
        (1, k.RUN_COMPLETED, {"outcome": "COMPLETED"}),
        run_id=run_id,
    )


@asynccontextmanager
async def observed(engine: HandEngine, *sinks: Any, **options: Any) -> AsyncGenerator[Observer]:
    """Observe an engine, without waiting for anything to settle."""
    settings: dict[str, Any] = {"settle_s": 0, **options}
    async with Observer(engine, list(sinks), **settings) as observer:
        yield observer


async def until(ready: Callable[[], object]) -> None:
    """Let everything else on the event loop run until that is so."""
    while not ready():  # noqa: ASYNC110 - nothing tells
        await asyncio.sleep(0)  # noqa: TID251 - lets others run


def within(engine: HandEngine, body: Callable[[Any], Awaitable[T]]) -> T:
    """Return what the body returns for this engine, whose store is set up for it."""

    async def whole() -> T:
        await engine.store.setup()
        return await body(engine)

    return run(whole())
