"""Helpers of the tests of the Redis event store: an open store, its feeds, and commands."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from lib.errors import StoreError
from lib.events import Event, RedisEventStore
from lib.events.store import START
from lib.events.stores.redis.server import Server

T = TypeVar("T")


@asynccontextmanager
async def opened(
    url: str, *, kind: type[RedisEventStore] = RedisEventStore, **options: Any
) -> AsyncGenerator[RedisEventStore]:
    """Open a store on a server, as a process of its own would."""
    store = kind(url, **options)
    await store.setup()
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def hasty(url: str, timeout_s: float, **options: Any) -> AsyncGenerator[RedisEventStore]:
    """Open a store that soon gives up, however often this process is too slow for it."""
    store = RedisEventStore(url, timeout_s=timeout_s, **options)
    await surely(store.setup)
    try:
        yield store
    finally:
        await store.close()


async def surely(call: Callable[[], Awaitable[T]]) -> T:
    """Return what a call answers that can be repeated, once it is answered in time."""
    while True:
        try:
            return await call()
        except StoreError as error:
            if not error.retryable:
                raise


async def feeds(store: RedisEventStore) -> list[list[Event]]:
    """Return the feed of each partition."""
    pages = [await store.feed(START, limit=10**6, partition=p) for p in range(store.partitions)]
    return [page.events for page in pages]


async def everything(store: RedisEventStore) -> list[Event]:
    """Return the feeds of all partitions, one after the other."""
    return [event for events in await feeds(store) for event in events]


@asynccontextmanager
async def admin(url: str) -> AsyncGenerator[Server]:
    """Open a connection of another client."""
    server = Server(url, "admin", connections=2, timeout_s=200)
    try:
        yield server
    finally:
        await server.close()


async def commands(url: str, *lines: tuple[Any, ...]) -> list[Any]:
    """Send commands as another client, and return the replies."""
    async with admin(url) as server:
        return [await server.call(*line) for line in lines]


async def do(call: Any, *args: Any) -> Any:
    """Call what blocks."""
    return await asyncio.to_thread(call, *args)
