"""What tests of the Redis event store share: a store that is open, its feeds, and commands."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from lib.events import Event, RedisEventStore
from lib.events.store import START
from lib.events.stores.redis.server import Server


@asynccontextmanager
async def opened(url: str, **options: Any) -> AsyncGenerator[RedisEventStore]:
    """Open a store on a server, as a process of its own would."""
    store = RedisEventStore(url, **options)
    await store.setup()
    try:
        yield store
    finally:
        await store.close()


async def everything(store: RedisEventStore) -> list[Event]:
    """Return the feeds of all partitions, one after the other."""
    pages = [await store.feed(START, limit=100_000, partition=p) for p in range(store.partitions)]
    return [event for page in pages for event in page.events]


async def commands(url: str, *lines: tuple[Any, ...]) -> list[Any]:
    """Return the answers of the server to commands of somebody else."""
    server = Server(url, "admin", connections=1, timeout_s=5)
    answers = [await server.call(*line) for line in lines]
    await server.close()
    return answers


async def do(call: Any, *args: Any) -> Any:
    """Call what blocks."""
    return await asyncio.to_thread(call, *args)
