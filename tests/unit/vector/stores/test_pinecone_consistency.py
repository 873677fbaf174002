"""Pinecone's searches lag behind its writes; the store waits."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import httpx2
import pytest

from fakes.pinecone_server import HurryingClock, PineconeServer
from lib.errors import ConsistencyTimeout, StoreUnavailable
from lib.testing.clock import ManualClock
from lib.vector import EVERYTHING, PineconeVectorStore, Record

from .pinecone_kit import opened

A = Record("a", [1.0, 0.0], "", {"x": 1})


def polls(server: PineconeServer) -> int:
    return sum(path == "/query" for _, path, _ in server.requests)


async def test_a_write_returns_when_everybody_reads_it() -> None:
    server = PineconeServer(lag=5)
    async with opened(server) as writer, opened(server) as reader:
        await writer.upsert([A])
        assert polls(server) == 5
        assert await reader.count() == 1
        assert [match.id for match in await reader.query([1.0, 0.0])] == ["a"]

        await writer.delete(["a"])
        assert await reader.get(["a"]) == []


async def test_without_consistency_writes_do_not_wait_and_reads_lag() -> None:
    server = PineconeServer(lag=3)
    async with opened(server, consistent=False) as store:
        await store.upsert([A])

        assert polls(server) == 0
        assert await store.query([1.0, 0.0]) == []
        assert await store.namespaces() == []
        await store.query([1.0, 0.0])
        await store.query([1.0, 0.0])
        assert len(await store.query([1.0, 0.0])) == 1


async def test_a_write_that_stays_invisible_is_an_error_with_its_position_and_stays_written() -> (
    None
):
    server, clock = PineconeServer(), HurryingClock()
    async with opened(server, consistency_timeout_s=3.0, clock=clock) as store:
        await store.upsert([A], namespace="n")
        server.lag = 1000

        with pytest.raises(ConsistencyTimeout) as timeout:
            await store.upsert([Record("b", [1.0, 0.0])], namespace="n")
        error = timeout.value
        assert (error.namespace, error.wanted, error.seen, error.timeout_s) == ("n", 2, 1, 3.0)
        assert 2.0 < clock.monotonic() <= 3.0

        with pytest.raises(ConsistencyTimeout):  # a read waits for it, too
            await store.query([1.0, 0.0], namespace="n")
        server.indexes["test"].namespaces["n"].catch_up(1000)
        assert await store.count(namespace="n") == 2


async def test_a_wait_for_a_new_namespace_has_seen_nothing() -> None:
    async with opened(PineconeServer(lag=1000), consistency_timeout_s=0.0) as store:
        with pytest.raises(ConsistencyTimeout) as timeout:
            await store.upsert([A])
        assert timeout.value.seen is None


async def test_another_namespace_is_not_waited_for() -> None:
    server = PineconeServer()
    async with opened(server, consistency_timeout_s=0.0) as store:
        await store.upsert([A], namespace="other")
        server.lag = 1000
        with pytest.raises(ConsistencyTimeout):
            await store.upsert([A], namespace="n")

        assert await store.count(namespace="other") == 1
        with pytest.raises(ConsistencyTimeout):
            await store.namespaces()


async def test_a_cancelled_wait_is_taken_up_by_the_next_read() -> None:
    server = PineconeServer(lag=4)
    async with opened(server, clock=ManualClock()) as store:
        await store.setup()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await store.upsert([A])
        assert polls(server) == 1  # the store sleeps until the clock goes on
        server.indexes["test"].namespaces["__default__"].catch_up(4)
        assert [record.id for record in await store.get(["a"])] == ["a"]
        assert polls(server) == 2


async def test_a_namespace_that_goes_with_its_last_record_counts_as_seen() -> None:
    server = PineconeServer(lag=2)
    async with opened(server) as store:
        await store.upsert([A])
        await store.delete(filter=EVERYTHING)

        assert await store.count() == 0
        assert await store.count(filter={"x": 1}) == 0
        assert await store.namespaces() == []
        await store.delete(filter=EVERYTHING)  # nothing is there to delete


@asynccontextmanager
async def interrupted(server: PineconeServer) -> AsyncGenerator[PineconeVectorStore]:
    """Yield a store that waits for a write to a namespace that another process has erased."""
    async with opened(server, consistency_timeout_s=5.0) as store:
        await store.upsert([A], namespace="n")
        server.lag = 1000
        with pytest.raises(ConsistencyTimeout):
            await store.upsert([A], namespace="n")
        server.lag = 0
        erased = server.indexes["test"].namespaces.pop("n")
        yield store
        assert erased.pending


async def test_a_namespace_erased_elsewhere_holds_up_the_store_once() -> None:
    server = PineconeServer()
    async with interrupted(server) as store:
        with pytest.raises(ConsistencyTimeout) as timeout:
            await store.count(namespace="n")
        assert timeout.value.seen is None

        assert await store.count(namespace="n") == 0
        await store.delete(filter=EVERYTHING, namespace="n")
        assert await store.namespaces() == []
        await store.upsert([A], namespace="n")
        assert await store.count(namespace="n") == 1


async def test_a_deletion_in_a_namespace_that_is_not_there_yet_times_out() -> None:
    async with interrupted(PineconeServer()) as store:
        with pytest.raises(ConsistencyTimeout):
            await store.delete(["a"], namespace="n")
        await store.delete(["a"], namespace="n")


async def test_a_deletion_is_sent_though_searches_are_late_unless_it_needs_them() -> None:
    server = PineconeServer()
    async with opened(server, consistency_timeout_s=1.0) as store:
        await store.upsert([A])
        server.lag = 1000
        with pytest.raises(ConsistencyTimeout):
            await store.upsert([A])
        with pytest.raises(ConsistencyTimeout):
            await store.delete(filter={"x": 1})
        assert [path for _, path, _ in server.requests].count("/vectors/delete") == 0

        with pytest.raises(ConsistencyTimeout) as timeout:
            await store.delete(["a"])
        assert (timeout.value.wanted, timeout.value.seen) == (3, 1)
        server.indexes["test"].namespaces["__default__"].catch_up(1000)
        assert await store.count() == 0


async def test_an_index_that_tells_no_positions_is_not_waited_for_which_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = PineconeServer()
    server.tells_positions = False
    async with opened(server) as store:
        with caplog.at_level(logging.WARNING):
            await store.upsert([A])
            await store.upsert([A])

        assert await store.count() == 1
        assert [record.message for record in caplog.records] == [
            "this Pinecone index tells no log positions: reads may lag behind writes"
        ]


async def test_queries_that_tell_no_position_end_the_wait() -> None:
    server = PineconeServer()
    async with opened(server) as store:
        await store.setup()
        server.plan(httpx2.Response(200, json={}, headers={"x-pinecone-request-lsn": "7"}))
        server.plan(httpx2.Response(200, json={"matches": []}))
        await store.upsert([A])

        assert server.requests[-1][1] == "/query"


async def test_a_position_that_is_no_number_is_an_unreadable_answer() -> None:
    server = PineconeServer()
    async with opened(server) as store:
        await store.setup()
        server.plan(httpx2.Response(200, json={}, headers={"x-pinecone-request-lsn": "x"}))
        with pytest.raises(StoreUnavailable, match="position"):
            await store.upsert([A])
