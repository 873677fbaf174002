"""Helpers of the tests of the bus: an open store, a handler, and a bus that runs."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Container
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

from lib.errors import StoreError
from lib.events import Event, FeedPage, MemoryEventStore
from lib.events.bus import Bus

PLACE = "bus/group/0"
AnyStore = TypeVar("AnyStore", bound=MemoryEventStore)


@asynccontextmanager
async def opened(store: AnyStore) -> AsyncGenerator[AnyStore]:
    """Open a store, and close it in the end."""
    await store.setup()
    yield store
    await store.close()


@asynccontextmanager
async def running(bus: Bus) -> AsyncGenerator[asyncio.Task[None]]:
    """Run a bus until the block ends."""
    task = asyncio.create_task(bus.run())
    try:
        yield task
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def pause(seconds: float = 0.0) -> None:
    """Let the bus work."""
    await asyncio.sleep(seconds)  # noqa: TID251 - that is what it is for


async def until(ready: Callable[[], object]) -> None:
    """Let the bus work until that is so."""
    while not ready():
        await pause()


class Store(MemoryEventStore):
    """Counts the calls of a bus; its next `fail_feeds` or `fail_swaps` calls fail."""

    def __init__(self) -> None:
        super().__init__()
        self.swaps = self.feeds = 0
        self.fail_feeds = self.fail_swaps = 0
        self.passing = True

    async def feed(self, after: str = "", *, limit: int = 512, partition: int = 0) -> FeedPage:
        self.feeds += 1
        if self.fail_feeds:
            self.fail_feeds -= 1
            raise StoreError("no connection", retryable=self.passing)
        return await super().feed(after, limit=limit, partition=partition)

    async def compare_and_set_mark(
        self, name: str, *, expected: str | None, value: str | None
    ) -> bool:
        self.swaps += 1
        if self.fail_swaps:
            self.fail_swaps -= 1
            raise StoreError("no connection")
        return await super().compare_and_set_mark(name, expected=expected, value=value)

    async def place(self) -> dict[str, Any]:
        return json.loads(await self.mark(PLACE) or "{}")

    async def put(self, **fields: Any) -> None:
        await self.set_mark(PLACE, json.dumps({"cursor": "", **fields}))


class Handler:
    """Keeps its events; fails for events of some numbers, and in some calls, counted from 1."""

    def __init__(
        self, error: Exception | None = None, *bad: int, fails: Container[int] = ()
    ) -> None:
        self.batches: list[list[Event]] = []
        self.calls = 0
        self.error, self.bad, self.fails = error, set(bad), fails

    async def __call__(self, events: list[Event]) -> None:
        self.calls += 1
        if self.calls in self.fails:
            raise ConnectionError("no receiver")
        numbers = [event.seq for event in events]
        if self.error is not None and (not self.bad or self.bad.intersection(numbers)):
            raise self.error
        self.batches.append(events)

    @property
    def events(self) -> list[Event]:
        return [event for batch in self.batches for event in batch]

    @property
    def seen(self) -> list[int]:
        """The numbers of the events."""
        return [event.seq for event in self.events]


async def subscribed(
    store: Store, handler: Handler | None = None, **options: Any
) -> tuple[Bus, Handler]:
    """Return a bus, and the handler of its group."""
    bus, handler = Bus(store, **options), handler or Handler()
    await bus.subscribe("group", handler)
    return bus, handler
