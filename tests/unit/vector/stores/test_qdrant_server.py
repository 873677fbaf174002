"""What a Qdrant server is asked, and what becomes of its answers.

There is no such server in a registry. Behind the client's HTTP transport stands one that keeps its
points with the client's in-process mode, answers in the server's JSON, and can be told to fail.
"""

import asyncio
import json
import socket
import subprocess
import sys
from collections.abc import Callable
from typing import Any, ClassVar, cast

import httpx
import pytest
from pydantic import TypeAdapter
from qdrant_client import AsyncQdrantClient, models

from lib.errors import (
    DimensionMismatch,
    MetricMismatch,
    StoreCorrupt,
    StoreUnavailable,
    UnsupportedFilter,
)
from lib.testing.aio import run
from lib.vector import EVERYTHING, F, Metric, QdrantVectorStore, Record

URL = "http://qdrant.test:6333"
RECORDS = [Record(str(row), [1.0, row / 10], f"text {row}", {"row": row}) for row in range(30)]


def refuse_constant(name: str) -> Any:
    raise AssertionError(name)


class Server:
    """A server behind a transport, with what it was asked."""

    def __init__(self) -> None:
        self.points = AsyncQdrantClient(location=":memory:")
        self.asked: list[tuple[str, str, Any]] = []
        self.indexed: dict[str, Any] = {}
        self.fail: Callable[[httpx.Request], httpx.Response | None] = lambda _: None
        self.most = 1_000_000

    def store(self, **kwargs: Any) -> QdrantVectorStore:
        kwargs = {"dimension": 2, **kwargs}
        return QdrantVectorStore(url=URL, transport=httpx.MockTransport(self.answer), **kwargs)

    def bodies(self, path: str) -> list[Any]:
        """Return what was sent to a path of the collection."""
        return [body for _, asked, body in self.asked if asked.partition("lib_vectors")[2] == path]

    async def answer(self, request: httpx.Request) -> httpx.Response:
        content = await request.aread()
        body = json.loads(content, parse_constant=refuse_constant) if content else None
        self.asked.append((request.method, request.url.path, body))
        failure = self.fail(request)
        if failure is not None:
            return failure
        name, _, path = request.url.path.removeprefix("/collections/").partition("/")
        handler = self.HANDLERS[request.method, path]
        try:
            result = await handler(self, name, body)
        except ValueError as error:
            status = 409 if "already exists" in str(error) else 400
            return httpx.Response(status, json={"status": {"error": str(error)}, "time": 0.0})
        plain = TypeAdapter[Any](Any).dump_python(result, mode="json")
        return httpx.Response(200, json={"result": plain, "status": "ok", "time": 0.0})

    async def exists(self, name: str, _: Any) -> Any:
        return {"exists": await self.points.collection_exists(name)}

    async def create(self, name: str, body: Any) -> Any:
        vectors = TypeAdapter(models.VectorParams).validate_python(body["vectors"])
        return await self.points.create_collection(name, vectors)

    async def describe(self, name: str, _: Any) -> Any:
        info = (await self.points.get_collection(name)).model_dump(mode="json")
        return {**info, "payload_schema": self.indexed}

    async def index(self, _: str, body: Any) -> Any:
        self.indexed[body["field_name"]] = {
            "data_type": "keyword", "params": body["field_schema"], "points": 0
        }  # fmt: skip
        return {"operation_id": 1, "status": "completed"}

    async def upsert(self, name: str, body: Any) -> Any:
        return await self.points.upsert(name, models.PointsList(**body).points)

    async def query(self, name: str, body: Any) -> Any:
        asked = models.QueryRequest(**body)
        return await self.points.query_points(
            name,
            query=cast(Any, asked.query),
            query_filter=asked.filter,
            limit=min(self.most, asked.limit or 10),
            with_payload=cast(Any, asked.with_payload),
            with_vectors=cast(Any, asked.with_vector),
        )

    async def retrieve(self, name: str, body: Any) -> Any:
        asked = models.PointRequest(**body)
        return await self.points.retrieve(
            name,
            asked.ids,
            with_payload=cast(Any, asked.with_payload),
            with_vectors=cast(Any, asked.with_vector),
        )

    async def count(self, name: str, body: Any) -> Any:
        return await self.points.count(name, models.CountRequest(**body).filter)

    async def facet(self, name: str, body: Any) -> Any:
        asked = models.FacetRequest(**body)
        return await self.points.facet(name, asked.key, limit=asked.limit or 10)

    async def delete(self, name: str, body: Any) -> Any:
        return await self.points.delete(name, models.FilterSelector(**body))

    HANDLERS: ClassVar = {
        ("GET", "exists"): exists,
        ("PUT", ""): create,
        ("GET", ""): describe,
        ("PUT", "index"): index,
        ("PUT", "points"): upsert,
        ("POST", "points/query"): query,
        ("POST", "points"): retrieve,
        ("POST", "points/count"): count,
        ("POST", "facet"): facet,
        ("POST", "points/delete"): delete,
    }


def test_a_new_collection_has_a_graph_and_an_index_for_each_namespace() -> None:
    async def main() -> None:
        server = Server()
        first, second = server.store(), server.store()
        await first.setup()
        await second.setup()

        (made,) = [
            body for method, path, body in server.asked if (method, path[-1]) == ("PUT", "s")
        ]
        assert made["vectors"] == {"size": 2, "distance": "Cosine"}
        assert made["hnsw_config"] == {"m": 0, "payload_m": 16}
        (index,) = server.bodies("/index")
        assert index == {
            "field_name": "ns",
            "field_schema": {"type": "keyword", "is_tenant": True},
        }
        await first.close()
        await second.close()

    run(main())


def test_a_collection_that_another_process_makes_first_is_taken_as_it_is() -> None:
    async def main() -> None:
        server = Server()
        faster, store = server.store(), server.store()

        def not_there(request: httpx.Request) -> httpx.Response | None:
            if request.url.path.endswith("exists"):
                return httpx.Response(200, json={"result": {"exists": False}, "status": "ok"})
            return None

        await faster.setup()
        server.fail = not_there
        await store.upsert(RECORDS)
        assert await store.count() == 30
        await store.close()
        await faster.close()

    run(main())


def test_records_go_there_and_come_back_over_the_wire() -> None:
    async def main() -> None:
        server = Server()
        store = server.store(metric="euclidean")
        wide = Record("wide", [0.1, -2.25], "t", {"a": 1.0, "b": [2**53 + 1, -0.0], "c": None})
        await store.upsert([*RECORDS, wide], namespace="n")

        (kept,) = await store.get(["wide"], namespace="n")
        assert repr(kept.meta) == repr(wide.meta)
        assert kept.vector == [pytest.approx(0.1, abs=1e-7), -2.25]
        (found,) = await store.query([0.1, -2.25], 1, namespace="n", include_vectors=True)
        assert (found.id, found.vector, found.score) == ("wide", kept.vector, 0.0)
        assert await store.namespaces() == ["n"]
        await store.delete(filter=F("row") >= 3, namespace="n")
        await store.delete(["0"], namespace="n")
        assert await store.count(namespace="n") == 3
        await store.delete(filter=EVERYTHING, namespace="n")
        assert await store.namespaces() == []
        await store.close()

    run(main())


def test_writes_are_waited_for_and_sent_in_requests_of_a_bounded_size() -> None:
    async def main() -> None:
        server, seen = Server(), list[httpx.Request]()
        server.fail = seen.append
        store = server.store()
        await store.upsert([Record(str(row), [1.0, 0.0]) for row in range(600)])
        assert [len(body["points"]) for body in server.bodies("/points")] == [256, 256, 88]
        await store.upsert(
            [Record(f"large {row}", [1.0, 0.0], "x" * 3_000_000) for row in range(5)]
        )
        await store.delete(["1"])

        assert [len(body["points"]) for body in server.bodies("/points")][3:] == [2, 2, 1]
        writes = [each for each in seen if each.url.path.endswith(("/points", "/delete", "/index"))]
        assert all(each.url.params["wait"] == "true" for each in writes)
        assert all(len(each.content) < 9_000_000 for each in writes)
        await store.close()

    run(main())


def test_a_filter_makes_the_search_exact_and_so_does_an_index_that_finds_too_few() -> None:
    async def main() -> None:
        server = Server()
        store = server.store()
        await store.upsert(RECORDS)
        params = lambda: [body["params"] for body in server.bodies("/points/query")]  # noqa: E731 - asked twice

        assert len(await store.query([1.0, 0.0], 3)) == 3
        assert params() == [{"hnsw_ef": 128}]
        assert len(await store.query([1.0, 0.0], 300)) == 30
        assert params()[1:] == [{"hnsw_ef": 308}, {"exact": True}]
        assert len(await store.query([1.0, 0.0], 3, filter=F("row") < 9)) == 3
        assert params()[3:] == [{"exact": True}]
        await store.close()

    run(main())


def test_the_server_is_never_asked_to_make_room_for_more_than_there_is() -> None:
    async def main() -> None:
        server = Server()
        store = server.store()
        assert await store.query([1.0, 0.0], 10**12) == []
        await store.upsert(RECORDS)

        assert len(await store.query([1.0, 0.0], 10**12)) == 30
        assert len(await store.query([1.0, 0.0], 10**12, filter=F("row") < 9)) == 9
        assert [body["limit"] for body in server.bodies("/points/query")] == [30, 9]
        await store.close()

    run(main())


def test_any_number_of_namespaces_is_listed() -> None:
    async def main() -> None:
        server = Server()
        store = server.store()
        for number in range(1001):
            await store.upsert([Record("a", [1.0, 0.0])], namespace=f"{number:04}")

        assert await store.namespaces("1") == ["1000"]
        assert len(await store.namespaces()) == 1001
        assert [body["limit"] for body in server.bodies("/facet")] == [1000, 10_000] * 2
        assert all(body["exact"] for body in server.bodies("/facet"))
        await store.close()

    run(main())


def test_what_cannot_be_said_is_refused_before_anything_is_sent() -> None:
    async def main() -> None:
        server = Server()
        store = server.store()
        for filter in (F("x") > "a", F("x") == 2**53, F('"') == 1, F("\\").contains(1)):
            with pytest.raises(UnsupportedFilter):
                await store.query([1.0, 0.0], filter=filter)

        assert server.asked == []
        await store.close()

    run(main())


@pytest.mark.parametrize(
    ("status", "retryable", "told"),
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
def test_a_status_is_told_without_the_servers_words(
    status: int, retryable: bool, told: str
) -> None:
    async def main() -> None:
        server = Server()
        store = server.store()
        await store.upsert(RECORDS)
        server.fail = lambda _: httpx.Response(
            status, json={"status": {"error": "secret"}, "time": 0.0}
        )
        with pytest.raises(StoreUnavailable, match=told) as caught:
            await store.count()

        assert (caught.value.status, caught.value.retryable) == (status, retryable)
        assert "secret" not in str(caught.value)
        assert "secret" in str(caught.value.__cause__)
        server.fail = lambda _: None
        assert await store.count() == 30
        await store.close()

    run(main())


def test_the_wait_that_a_busy_server_asks_for_is_told() -> None:
    async def main() -> None:
        server = Server()
        server.fail = lambda _: httpx.Response(429, headers={"Retry-After": "7"}, json={})
        store = server.store()
        with pytest.raises(StoreUnavailable) as caught:
            await store.setup()

        error = caught.value
        assert (error.status, error.retryable, error.retry_after_s) == (429, True, 7.0)
        await store.close()

    run(main())


def test_a_collection_that_may_not_be_made_is_told() -> None:
    async def main() -> None:
        server = Server()
        server.fail = lambda request: (
            httpx.Response(403, json={}) if request.method == "PUT" else None
        )
        store = server.store()
        with pytest.raises(StoreUnavailable, match="check what the API key may do") as caught:
            await store.setup()

        assert caught.value.status == 403
        server.fail = lambda _: None
        await asyncio.gather(store.setup(), store.setup(), store.upsert(RECORDS))
        assert await store.count() == 30
        await store.close()

    run(main())


def test_an_answer_that_cannot_be_read_is_told() -> None:
    async def main() -> None:
        server = Server()
        server.fail = lambda _: httpx.Response(200, json={"result": {"exists": "perhaps"}})
        store = server.store()
        with pytest.raises(StoreUnavailable, match="unreadable") as caught:
            await store.setup()

        assert (caught.value.status, caught.value.retryable) == (None, False)
        await store.close()

    run(main())


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
        said = subprocess.run(command, capture_output=True, encoding="utf-8", check=True)

    assert said.stdout == "True None\n" * 3 + "closed\n"


@pytest.mark.parametrize("metric", ["dot", "euclidean"])
def test_a_collection_of_another_kind_is_refused(metric: Metric) -> None:
    async def main() -> None:
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

    run(main())


def test_a_point_that_somebody_else_has_written_is_told() -> None:
    async def main() -> None:
        server = Server()
        store = server.store()
        await store.setup()
        for payload in ({"ns": ""}, {"ns": "", "id": "a", "text": "", "json": "{"}):
            foreign = models.PointStruct(id=1, vector=[1.0, 0.0], payload=payload)
            await server.points.upsert("lib_vectors", [foreign])
            with pytest.raises(StoreCorrupt, match="not written"):
                await store.query([1.0, 0.0])
        await store.close()

    run(main())


def test_a_client_that_was_given_stays_open() -> None:
    async def main() -> None:
        server = Server()
        transport = httpx.MockTransport(server.answer)
        client = await asyncio.to_thread(
            AsyncQdrantClient, url=URL, transport=transport, check_compatibility=False
        )
        store = QdrantVectorStore(dimension=2, client=client)
        await store.upsert(RECORDS)
        await store.close()

        assert (await client.count("lib_vectors")).count == 30
        await client.close()

    run(main())


def test_a_cancelled_call_leaves_the_store_usable() -> None:
    async def main() -> None:
        server = Server()
        store = server.store()
        calls = [asyncio.create_task(store.upsert(RECORDS)) for _ in range(4)]
        for turns, call in enumerate(calls):
            for _ in range(turns * 3):
                await asyncio.wait([call], timeout=0)
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)

        await store.upsert(RECORDS)
        assert await store.count() == 30
        await store.close()

    run(main())
