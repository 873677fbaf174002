"""Refusals and foreign content of a Qdrant server become errors of the library."""

import asyncio
import socket
import subprocess
import sys

import httpx
import pytest
from qdrant_client import models

from lib.errors import DimensionMismatch, MetricMismatch, StoreCorrupt, StoreUnavailable
from lib.vector import Metric

from .qdrant_server_kit import RECORDS, Server


@pytest.mark.parametrize(
    ("status", "retryable", "message"),
    [
        (400, False, "the cause of this error holds its words"),
        (401, False, "check the API key"),
        (403, False, "check what the API key may do"),
        (404, False, "the collection is gone"),
        (413, False, "larger than a request may be"),
        (429, True, "answered 429"),
        (500, True, "answered 500"),
        (503, True, "answered 503"),
    ],
)
async def test_a_failed_status_is_reported_without_the_servers_text(
    status: int, retryable: bool, message: str
) -> None:
    server = Server()
    store = server.store()
    await store.upsert(RECORDS)
    server.fail = lambda _: httpx.Response(
        status, json={"status": {"error": "secret"}, "time": 0.0}
    )
    with pytest.raises(StoreUnavailable, match=message) as caught:
        await store.count()

    assert (caught.value.status, caught.value.retryable) == (status, retryable)
    assert "secret" not in str(caught.value)
    assert "secret" in str(caught.value.__cause__)
    server.fail = lambda _: None
    assert await store.count() == 30
    await store.close()


async def test_the_wait_that_a_busy_server_requests_is_on_the_error() -> None:
    server = Server()
    server.fail = lambda _: httpx.Response(429, headers={"Retry-After": "7"}, json={})
    store = server.store()
    with pytest.raises(StoreUnavailable) as caught:
        await store.setup()

    error = caught.value
    assert (error.status, error.retryable, error.retry_after_s) == (429, True, 7.0)
    await store.close()


async def test_a_refused_creation_of_a_collection_is_an_error() -> None:
    server = Server()
    server.fail = lambda request: httpx.Response(403, json={}) if request.method == "PUT" else None
    store = server.store()
    with pytest.raises(StoreUnavailable, match="check what the API key may do") as caught:
        await store.setup()

    assert caught.value.status == 403
    server.fail = lambda _: None
    await asyncio.gather(store.setup(), store.setup(), store.upsert(RECORDS))
    assert await store.count() == 30
    await store.close()


async def test_an_unreadable_answer_is_an_error() -> None:
    server = Server()
    server.fail = lambda _: httpx.Response(200, json={"result": {"exists": "perhaps"}})
    store = server.store()
    with pytest.raises(StoreUnavailable, match="unreadable") as caught:
        await store.setup()

    assert (caught.value.status, caught.value.retryable) == (None, False)
    await store.close()


UNREACHABLE = """
import asyncio, sys
from lib.errors import StoreClosed, StoreUnavailable
from lib.vector import QdrantVectorStore, Record

async def main(port, grpc):
    store = QdrantVectorStore(
        dimension=2, host="127.0.0.1", port=port, grpc_port=port, prefer_grpc=grpc
    )
    for call in (store.setup, lambda: store.upsert([Record("a", [1, 0])]), store.namespaces):
        try:
            await call()
        except StoreUnavailable as error:
            print(error.retryable, error.status)
    await store.close()
    try:
        await store.setup()
    except StoreClosed:
        print("closed")

asyncio.run(main(int(sys.argv[1]), sys.argv[2] == "True"))
"""


@pytest.mark.parametrize("grpc", [False, True])
def test_a_server_that_is_not_there_is_unavailable_and_may_come_back(grpc: bool) -> None:
    # in a process of its own, since gRPC keeps threads for as long as there is one
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # but it does not listen: a connection is refused
        command = [sys.executable, "-c", UNREACHABLE, str(taken.getsockname()[1]), str(grpc)]
        completed = subprocess.run(command, capture_output=True, encoding="utf-8", check=True)

    assert completed.stdout == "True None\n" * 3 + "closed\n"


@pytest.mark.parametrize("metric", ["dot", "euclidean"])
async def test_a_collection_of_another_kind_is_refused(metric: Metric) -> None:
    server = Server()
    first = server.store(metric="cosine")
    await first.setup()
    with pytest.raises(DimensionMismatch) as wrong:
        await server.store(dimension=3).setup()
    assert (wrong.value.expected, wrong.value.got) == (2, 3)
    with pytest.raises(MetricMismatch) as other:
        await server.store(metric=metric).setup()
    assert (other.value.expected, other.value.got) == ("cosine", metric)

    manhattan = models.VectorParams(size=2, distance=models.Distance.MANHATTAN)
    await server.points.create_collection("m", manhattan)
    await server.points.create_collection("named", {"x": manhattan})
    with pytest.raises(MetricMismatch, match="Manhattan"):
        await server.store(collection="m").setup()
    with pytest.raises(StoreCorrupt, match="name another"):
        await server.store(collection="named").setup()
    await first.close()


async def test_a_foreign_point_is_an_error() -> None:
    server = Server()
    store = server.store()
    await store.setup()
    for payload in ({"ns": ""}, {"ns": "", "id": "a", "text": "", "json": "{"}):
        foreign = models.PointStruct(id=1, vector=[1.0, 0.0], payload=payload)
        await server.points.upsert("lib_vectors", [foreign])
        with pytest.raises(StoreCorrupt, match="not written"):
            await store.query([1.0, 0.0])
    await store.close()
