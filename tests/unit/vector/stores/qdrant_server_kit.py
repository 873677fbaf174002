"""Shared by tests of a Qdrant server: one behind a transport, and records.

There is no such server in a registry. Behind the client's HTTP transport stands one that keeps its
points with the client's in-process mode, answers in the server's JSON, and can be made to fail.
"""

import json
from collections.abc import Callable
from typing import Any, ClassVar, cast

import httpx
from pydantic import TypeAdapter
from qdrant_client import AsyncQdrantClient, models

from lib.vector import QdrantVectorStore, Record

URL = "http://qdrant.test:6333"
RECORDS = [Record(str(row), [1.0, row / 10], f"text {row}", {"row": row}) for row in range(30)]


def refuse_constant(name: str) -> Any:
    raise AssertionError(name)


class Server:
    """A server behind a transport that records its requests."""

    def __init__(self) -> None:
        self.points = AsyncQdrantClient(location=":memory:")
        self.requests: list[tuple[str, str, Any]] = []
        self.indexed: dict[str, Any] = {}
        self.fail: Callable[[httpx.Request], httpx.Response | None] = lambda _: None
        self.most = 1_000_000

    def store(self, **kwargs: Any) -> QdrantVectorStore:
        kwargs = {"dimension": 2, **kwargs}
        return QdrantVectorStore(url=URL, transport=httpx.MockTransport(self.answer), **kwargs)

    def bodies(self, path: str) -> list[Any]:
        """Return what was sent to a path of the collection."""
        return [body for _, url, body in self.requests if url.partition("lib_vectors")[2] == path]

    async def answer(self, request: httpx.Request) -> httpx.Response:
        content = await request.aread()
        body = json.loads(content, parse_constant=refuse_constant) if content else None
        self.requests.append((request.method, request.url.path, body))
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
        request = models.QueryRequest(**body)
        return await self.points.query_points(
            name,
            query=cast(Any, request.query),
            query_filter=request.filter,
            limit=min(self.most, request.limit or 10),
            with_payload=cast(Any, request.with_payload),
            with_vectors=cast(Any, request.with_vector),
        )

    async def query_batch(self, name: str, body: Any) -> Any:
        return [await self.query(name, search) for search in body["searches"]]

    async def retrieve(self, name: str, body: Any) -> Any:
        request = models.PointRequest(**body)
        return await self.points.retrieve(
            name,
            request.ids,
            with_payload=cast(Any, request.with_payload),
            with_vectors=cast(Any, request.with_vector),
        )

    async def count(self, name: str, body: Any) -> Any:
        return await self.points.count(name, models.CountRequest(**body).filter)

    async def facet(self, name: str, body: Any) -> Any:
        request = models.FacetRequest(**body)
        return await self.points.facet(name, request.key, limit=request.limit or 10)

    async def delete(self, name: str, body: Any) -> Any:
        return await self.points.delete(name, models.FilterSelector(**body))

    HANDLERS: ClassVar = {
        ("GET", "exists"): exists,
        ("PUT", ""): create,
        ("GET", ""): describe,
        ("PUT", "index"): index,
        ("PUT", "points"): upsert,
        ("POST", "points/query"): query,
        ("POST", "points/query/batch"): query_batch,
        ("POST", "points"): retrieve,
        ("POST", "points/count"): count,
        ("POST", "facet"): facet,
        ("POST", "points/delete"): delete,
    }
