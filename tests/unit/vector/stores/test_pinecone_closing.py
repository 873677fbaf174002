"""Tests the end of a `PineconeVectorStore` and of its connections."""

import asyncio
import threading
from typing import Any

import httpx2
import pytest

from fakes.pinecone_server import API_KEY, PineconeServer
from lib.errors import StoreClosed, StoreUnavailable
from lib.vector import PineconeVectorStore

from .pinecone_kit import ONCE, opened


async def test_a_client_of_its_own_is_closed_and_one_that_is_given_is_not() -> None:
    server = PineconeServer()
    async with opened(server) as store:
        await store.setup()
        client: Any = store._api._http._client  # pyright: ignore[reportPrivateUsage] - what it keeps open is tested
        await store.close()

        assert not client.is_closed
        with pytest.raises(StoreClosed):
            await store.existing()
    own = PineconeVectorStore(dimension=2, api_key="k", index_host="http://127.0.0.1:9")
    with pytest.raises(StoreUnavailable, match="connection"):
        await PineconeVectorStore(
            dimension=2, api_key="k", index_host="http://127.0.0.1:9", retries=ONCE
        ).setup()
    await own.close()


@pytest.mark.parametrize("first", ["setup", "existing"])
async def test_closing_during_the_first_call_lets_it_end_and_leaves_no_connections(
    monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    server = PineconeServer()
    server.make_index("test", dimension=2)
    made: list[httpx2.AsyncClient] = []
    go = threading.Event()

    def make(*_: Any, **__: Any) -> httpx2.AsyncClient:
        go.wait()
        made.append(server.client())
        return made[-1]

    monkeypatch.setattr("lib.http.client._make_client", make)

    store = PineconeVectorStore(dimension=2, api_key=API_KEY, index_name="test")
    call = asyncio.create_task(getattr(store, first)())
    await asyncio.wait([call], timeout=0)
    cancelled = asyncio.create_task(store.close())
    await asyncio.wait([cancelled], timeout=0)
    cancelled.cancel()
    await asyncio.wait([cancelled])
    closers = [asyncio.create_task(store.close()) for _ in range(2)]
    await asyncio.wait(closers, timeout=0)
    go.set()
    await asyncio.gather(*closers)

    assert call.done()
    await call
    assert [client.is_closed for client in made] == [True]
    for late in (store.count, store.existing):
        with pytest.raises(StoreClosed):
            await late()
