"""Connections to Redis after a cancellation, and while the store closes."""

import asyncio

import pytest

from lib.errors import StoreClosed, StoreError
from lib.events import RedisEventStore
from lib.events.stores.redis.server import Server
from lib.testing.event_store.kit import begin, note
from servers.redis import fresh_url

from .redis_kit import opened


async def test_a_cancelled_read_leaves_no_answer_behind_for_the_next() -> None:
    url = fresh_url()

    async with opened(url, partitions=1, max_connections=3) as store:
        await begin(store, "a", 200)
        await begin(store, "b", 1)
        for turns in range(12):
            reads = [asyncio.create_task(store.read("a")) for _ in range(6)]
            for _ in range(turns):
                await asyncio.sleep(0)  # noqa: TID251 - lets them get under way
            for task in reads:
                task.cancel()
            await asyncio.gather(*reads, return_exceptions=True)
            assert len(await store.read("b")) == 2


async def test_a_cancellation_is_never_swallowed_whenever_it_comes() -> None:
    async def reads_on(store: RedisEventStore) -> None:
        await store.mark("m")
        await asyncio.Event().wait()

    async def cut_off(store: RedisEventStore, ticks: int) -> None:
        task = asyncio.create_task(reads_on(store))
        for _ in range(ticks):
            await asyncio.sleep(0)  # noqa: TID251 - lets the driver take a step
        task.cancel()
        await asyncio.wait([task], timeout=200)
        assert task.cancelled(), f"swallowed after {ticks} ticks"

    url = fresh_url()
    async with opened(url) as store:
        for ticks in range(30):
            await cut_off(store, ticks)


async def test_a_read_under_way_ends_before_the_store_disconnects_and_none_begins_after() -> None:
    url = fresh_url()

    async with opened(url, partitions=1, max_connections=3) as store:
        log = await begin(store, "run", 50)
        reads = [asyncio.create_task(store.read("run")) for _ in range(8)]
        signals = [
            asyncio.create_task(store.append("other", [note()], expected=None)) for _ in range(3)
        ]
        await asyncio.sleep(0)  # noqa: TID251 - lets them begin
        await store.close()
        found = await asyncio.gather(*reads, *signals, return_exceptions=True)

    assert all(one == log or isinstance(one, StoreError) for one in found)
    assert log in found
    assert any(isinstance(one, StoreClosed) for one in found) or found.count(log) == 8


async def test_connections_that_were_closed_are_not_made_again() -> None:
    url = fresh_url()

    server = Server(url, "the store", connections=2, timeout_s=200)
    under_way = asyncio.create_task(server.call("PING"))
    await asyncio.sleep(0)  # noqa: TID251 - lets it begin
    await server.close()
    assert await under_way == b"PONG"
    with pytest.raises(StoreClosed, match="the store has been closed"):
        await server.call("PING")
