"""What tests of the bus share: an open store, a bus that runs, and waiting for what it does."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from typing import TypeVar

from lib.events import MemoryEventStore
from lib.events.bus import Bus

Store = TypeVar("Store", bound=MemoryEventStore)


@asynccontextmanager
async def opened(store: Store) -> AsyncGenerator[Store]:
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
