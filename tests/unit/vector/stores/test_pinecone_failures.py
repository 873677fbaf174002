"""Refusals and impossible answers of Pinecone become errors of the library."""

from typing import Any

import httpx2
import pytest

from fakes.pinecone_server import API_KEY, HurryingClock, PineconeServer
from lib.errors import StoreCorrupt, StoreUnavailable
from lib.vector import Record

from .pinecone_kit import ONCE, bodies, opened


async def test_what_may_pass_is_tried_again_as_late_as_the_server_asks() -> None:
    server, clock = PineconeServer(), HurryingClock()
    async with opened(server, clock=clock) as store:
        await store.setup()
        server.plan(
            httpx2.Response(429, json={}, headers={"retry-after": "7"}),
            httpx2.ConnectError("away"),
            httpx2.Response(503, json={}),
        )
        await store.upsert([Record("a", [1.0, 0.0])])

        assert len(bodies(server, "/vectors/upsert")) == 4
        assert 7.0 <= clock.monotonic() < 8.0


@pytest.mark.parametrize(
    ("answer", "status", "retryable"),
    [
        (httpx2.Response(401, json={}), 401, False),
        (httpx2.Response(400, json={"message": "secret words"}), 400, False),
        (httpx2.Response(429, json={}), 429, True),
        (httpx2.Response(502, text="<html>"), 502, True),
        (httpx2.ConnectError("secret words"), None, True),
        (httpx2.Response(200, text="<html>"), None, True),
        (httpx2.Response(200, json=[]), None, True),
        (httpx2.Response(200, json={"vectors": []}), None, False),
        (httpx2.Response(200, json={"vectors": {"a": 1}}), None, False),
    ],
)
async def test_failures_are_store_unavailable_and_quote_no_content(
    answer: Any, status: int | None, *, retryable: bool
) -> None:
    server = PineconeServer()
    async with opened(server, retries=ONCE) as store:
        await store.setup()
        server.plan(answer)
        with pytest.raises(StoreUnavailable) as failure:
            await store.get(["a"])

        error = failure.value
        assert (error.status, error.retryable) == (status, retryable)
        assert "secret" not in str(error)
        assert API_KEY not in str(error)


@pytest.mark.parametrize(
    "matches", [[1], 5, [{"id": 1, "score": 1.0}], [{"id": "a", "score": None}]]
)
async def test_matches_that_are_none_are_unreadable(matches: Any) -> None:
    server = PineconeServer()
    async with opened(server) as store:
        await store.setup()
        server.plan(httpx2.Response(200, json={"matches": matches}))
        with pytest.raises(StoreUnavailable, match="shape"):
            await store.query([1.0, 0.0])


@pytest.mark.parametrize(
    "page", ['{"vectors": [{}]}', '{"vectors": [], "pagination": {"next": 5}}']
)
async def test_pages_that_are_none_are_unreadable(page: str) -> None:
    server = PineconeServer()
    async with opened(server) as store:
        await store.setup()
        server.plan(httpx2.Response(200, text=page))
        with pytest.raises(StoreUnavailable, match="shape"):
            await store.count()


async def test_a_query_that_fails_for_another_reason_than_its_size_fails() -> None:
    server = PineconeServer()
    async with opened(server, retries=ONCE) as store:
        await store.setup()
        server.plan(httpx2.Response(403, json={}))
        with pytest.raises(StoreUnavailable, match="403"):
            await store.query([1.0, 0.0])


async def test_foreign_records_are_errors() -> None:
    server = PineconeServer()
    async with opened(server) as store:
        await store.setup()
        foreign = {"id": "a", "score": 1.0, "metadata": {"m": "not JSON"}, "values": [1.0, 0.0]}
        hashed = {"vectors": [{"id": "a"}]}
        server.plan(httpx2.Response(200, json={"matches": [foreign]}))
        with pytest.raises(StoreCorrupt, match="not written"):
            await store.query([1.0, 0.0])

        server.plan(
            httpx2.Response(200, json={"namespaces": [{"name": "%h" + "0" * 64}]}),
            httpx2.Response(200, json=hashed),
            httpx2.Response(200, json={"vectors": {"a": {"id": "a"}}}),
        )
        with pytest.raises(StoreCorrupt, match="not written"):
            await store.namespaces()
