"""Tests which index a `PineconeVectorStore` uses or makes, and what cannot be one."""

from typing import Any

import httpx2
import pytest

from fakes.pinecone_server import API_KEY, PineconeServer
from lib.errors import DimensionMismatch, MetricMismatch, StoreUnavailable
from lib.vector import PineconeVectorStore, Record
from lib.vector.records import Layout

from .pinecone_kit import ONCE, bodies, opened

HOST = "test-abc123.svc.aped-0000-a000.pinecone.io"
USUAL: dict[str, Any] = {"dimension": 2, "api_key": "k", "index_name": "test"}


async def test_a_missing_index_is_made_if_that_is_wanted_and_waited_for() -> None:
    server = PineconeServer(not_ready=3)
    async with opened(
        server, index=False, create=True, metric="dot", cloud="gcp", region="europe-west4"
    ) as store:
        await store.setup()
        await store.setup()
        await store.upsert([Record("a", [1.0, 0.0])])

        assert bodies(server, "/indexes") == [
            {
                "name": "test",
                "dimension": 2,
                "metric": "dotproduct",
                "vector_type": "dense",
                "spec": {"serverless": {"cloud": "gcp", "region": "europe-west4"}},
            }
        ]


async def test_a_missing_index_is_an_error_and_not_created_by_default() -> None:
    server = PineconeServer()
    async with opened(server, index=False) as store:
        with pytest.raises(StoreUnavailable, match="create=True") as refusal:
            await store.setup()
        assert (refusal.value.status, refusal.value.retryable) == (404, False)
        assert await store.existing() is None
        assert server.indexes == {}


async def test_two_stores_that_make_the_index_at_once_both_have_it() -> None:
    server = PineconeServer()
    async with opened(server, index=False, create=True) as store:
        server.plan(httpx2.Response(404, json={}))  # another process makes it first
        server.make_index("test", dimension=2)
        await store.setup()

        assert await store.existing() == Layout(dimension=2, metric="cosine")


async def test_an_index_that_does_not_become_ready_is_a_retryable_error() -> None:
    server = PineconeServer(not_ready=10_000)
    async with opened(server, index=False, create=True) as store:
        with pytest.raises(StoreUnavailable, match="not ready after 300 s") as refusal:
            await store.setup()
        assert refusal.value.retryable


async def test_a_refused_creation_or_description_is_an_error() -> None:
    for answers, status in (([404, 403], 403), ([500], 500)):
        server = PineconeServer()
        async with opened(server, index=False, create=True, retries=ONCE) as store:
            server.plan(*(httpx2.Response(answer, json={}) for answer in answers))
            with pytest.raises(StoreUnavailable) as refusal:
                await store.setup()
            assert refusal.value.status == status


async def test_an_index_of_another_kind_is_refused() -> None:
    by_address: list[dict[str, Any]] = [{}, {"index_name": None, "index_host": HOST}]
    for arguments in by_address:
        server = PineconeServer()
        async with opened(server, dimension=2, metric="dot", **arguments) as store:
            with pytest.raises(MetricMismatch) as metric:
                await store.setup()
            assert (metric.value.expected, metric.value.got) == ("cosine", "dot")
        async with opened(server, dimension=3, **arguments) as store:
            with pytest.raises(DimensionMismatch) as dimension:
                await store.query([1.0, 0.0, 0.0])
            assert (dimension.value.expected, dimension.value.got) == (2, 3)
            assert await store.existing() == Layout(dimension=2, metric="cosine")


async def test_with_a_host_the_control_plane_is_not_called() -> None:
    server = PineconeServer()
    async with opened(server, index_name=None, index_host=f"https://{HOST}/") as store:
        await store.upsert([Record("a", [1.0, 0.0])])

        assert not [path for _, path, _ in server.requests if path.startswith("/indexes")]


@pytest.mark.parametrize("host", [None, 5, "ftp://x"])
async def test_an_index_without_a_host_is_an_unreadable_answer(host: Any) -> None:
    server = PineconeServer()
    async with opened(server) as store:
        description = {"dimension": 2, "metric": "cosine", "host": host, "status": {"ready": True}}
        server.plan(httpx2.Response(200, json=description))
        with pytest.raises(StoreUnavailable, match="host"):
            await store.setup()


async def test_an_index_of_documents_is_none_for_vectors() -> None:
    server = PineconeServer()
    async with opened(server) as store:
        server.plan(httpx2.Response(200, json={"schema": {}, "status": {"ready": True}}))
        with pytest.raises(StoreUnavailable, match="none for vectors"):
            await store.setup()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"index_name": None}, "index_name or index_host"),
        ({"index_name": None, "index_host": HOST, "create": True}, "needs index_name"),
        ({"consistency_timeout_s": -1.0}, "not negative"),
        ({"index_host": "ftp://x"}, "index_host"),
        ({"control_host": "https://"}, "control_host"),
        ({"api_key": " "}, "PINECONE_API_KEY"),
        ({"api_key": "a key"}, "characters"),
        ({"api_key": "kéy"}, "characters"),
        ({"dimension": 0}, "dimension"),
        ({"metric": "dotproduct"}, "metric"),
    ],
)
def test_what_cannot_work_is_refused_when_it_is_made(
    arguments: dict[str, Any], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PINECONE_API_KEY", raising=False)

    with pytest.raises(ValueError, match=reason) as refusal:
        PineconeVectorStore(**(USUAL | arguments))
    assert "kéy" not in str(refusal.value)


async def test_the_key_comes_from_the_environment_if_none_is_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PINECONE_API_KEY", API_KEY)

    async with opened(PineconeServer(), api_key=None) as store:
        await store.setup()
