"""Tests the end of a Qdrant store, and places that are empty, dropped or closed."""

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from qdrant_client import AsyncQdrantClient

from lib.errors import DimensionMismatch, StoreClosed, StoreUnavailable
from lib.vector import QdrantVectorStore, Record

RECORDS = [Record(str(row), [1.0, row / 10]) for row in range(300)]


class Transport(httpx.AsyncBaseTransport):
    """A server without collections; it answers once `let` is set."""

    def __init__(self) -> None:
        self.requested = asyncio.Event()
        self.let = asyncio.Event()
        self.closings = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.requested.set()
        await self.let.wait()
        found = {"result": {"exists": False}, "status": "ok", "time": 0.0}
        return httpx.Response(200, content=json.dumps(found), request=request)

    async def aclose(self) -> None:
        self.closings += 1


def at(transport: Transport) -> QdrantVectorStore:
    return QdrantVectorStore(dimension=2, url="http://qdrant.test:6333", transport=transport)


def in_folder(place: Path) -> QdrantVectorStore:
    return QdrantVectorStore(dimension=2, path=str(place))


async def opens(place: Path) -> int:
    """Return how many records another store finds in a folder."""
    store = in_folder(place)
    try:
        return await store.count()
    finally:
        await store.close()


async def test_a_cancelled_close_lets_the_folder_go_and_may_be_repeated(tmp_path: Path) -> None:
    store = in_folder(tmp_path)
    await store.setup()
    writing = asyncio.create_task(store.upsert(RECORDS))
    await asyncio.wait([writing], timeout=0.02)
    closing = asyncio.create_task(store.close())
    await asyncio.wait([closing], timeout=0)  # it begins
    closing.cancel()
    await asyncio.wait([closing])
    assert closing.cancelled()
    await store.close()

    # All or nothing: on a busy machine the store may be closed before the write has begun.
    (refused,) = await asyncio.gather(writing, return_exceptions=True)
    assert refused is None or isinstance(refused, StoreClosed)
    assert await opens(tmp_path) == (0 if refused else len(RECORDS))
    with pytest.raises(StoreClosed):
        await store.count()


async def test_a_store_that_is_closed_during_its_first_call_is_done_when_it_is_closed(
    tmp_path: Path,
) -> None:
    store = in_folder(tmp_path)
    first = asyncio.create_task(store.upsert(RECORDS[:3]))
    await asyncio.wait([first], timeout=0)
    await store.close()

    assert first.done()
    await first
    assert await opens(tmp_path) == 3


async def test_a_first_call_that_is_cancelled_leaves_nothing_open(tmp_path: Path) -> None:
    transport = Transport()
    for store in (at(transport), in_folder(tmp_path)):
        first = asyncio.create_task(store.count())
        await asyncio.wait([first], timeout=0)
        first.cancel()
        await asyncio.wait([first])
        await store.close()

    assert transport.closings == 1
    assert await opens(tmp_path) == 0


async def test_a_server_is_let_go_after_the_calls_that_it_has_to_answer() -> None:
    transport = Transport()
    store = at(transport)
    call = asyncio.create_task(store.existing())
    await transport.requested.wait()
    closing = asyncio.create_task(store.close())
    await asyncio.wait([closing], timeout=0.01)
    assert transport.closings == 0
    with pytest.raises(StoreClosed):
        await store.existing()
    transport.let.set()
    await closing

    assert await call is None
    assert transport.closings == 1


async def test_asking_what_is_in_a_folder_without_a_store_leaves_it_as_it_is(
    tmp_path: Path,
) -> None:
    for place in (tmp_path, tmp_path / "missing"):
        store = in_folder(place)
        assert await store.existing() is None
        await store.close()
    assert list(tmp_path.iterdir()) == []


async def test_a_folder_that_cannot_be_read_or_made_is_unavailable(tmp_path: Path) -> None:
    store = in_folder(tmp_path / ("x" * 300))
    with pytest.raises(StoreUnavailable, match="File name too long"):
        await store.existing()
    with pytest.raises(StoreUnavailable, match="File name too long"):
        await store.setup()
    await store.close()


async def test_a_dropped_collection_is_unavailable_until_the_next_setup() -> None:
    client = AsyncQdrantClient(location=":memory:")
    store = QdrantVectorStore(dimension=2, client=client)
    await store.upsert(RECORDS[:3])
    await client.delete_collection("lib_vectors")
    calls: list[Any] = [
        store.count(),
        store.namespaces(),
        store.query([1.0, 0.0]),
        store.get(["1"]),
        store.scan(),
        store.upsert(RECORDS[:1]),
        store.delete(["1"]),
    ]
    for call in calls:
        with pytest.raises(StoreUnavailable, match="ValueError"):
            await call
    await store.setup()
    await store.upsert(RECORDS[:2])

    assert await store.count() == 2
    await store.close()
    await client.close()


async def test_a_collection_that_was_made_anew_is_looked_at_by_setup() -> None:
    client = AsyncQdrantClient(location=":memory:")
    store = QdrantVectorStore(dimension=2, client=client)
    await store.setup()
    await client.delete_collection("lib_vectors")
    other = QdrantVectorStore(dimension=3, client=client)
    await other.setup()

    with pytest.raises(DimensionMismatch):
        await store.setup()
    with pytest.raises(DimensionMismatch):
        await store.count()
    await client.close()


async def test_a_given_client_that_its_owner_has_closed_is_unavailable() -> None:
    client = AsyncQdrantClient(location=":memory:")
    store = QdrantVectorStore(dimension=2, client=client)
    await store.setup()
    await client.close()

    with pytest.raises(StoreUnavailable, match="RuntimeError"):
        await store.count()
    await store.close()
