"""The stand-in for Pinecone refuses what the real one refuses."""

import json
from typing import Any

import httpx2
import pytest

from fakes.pinecone_server import API_KEY, PineconeServer

HEADERS = {"api-key": API_KEY, "x-pinecone-api-version": "2025-10"}
GOOD: dict[str, Any] = {"id": "a", "values": [1.0, 0.0], "metadata": {"x": "a", "l": ["a", "b"]}}
QUERY: dict[str, Any] = {"namespace": "n", "vector": [1.0, 0.0], "topK": 5}


async def ask(
    server: PineconeServer, path: str, body: Any = None, headers: dict[str, str] | None = None
) -> httpx2.Response:
    """Send one request to the index, or to the control plane where a host is given."""
    host = server.make_index("test", dimension=2).host
    url = path if "://" in path else f"https://{host}{path}"

    async def main() -> httpx2.Response:
        async with server.client() as client:
            method = "GET" if body is None else "POST"
            content = None if body is None else json.dumps(body).encode()
            return await client.request(
                method, url, content=content, headers=HEADERS if headers is None else headers
            )

    return await main()


async def filled(**metadata: Any) -> PineconeServer:
    server = PineconeServer()
    vector = {**GOOD, "metadata": {**GOOD["metadata"], **metadata}}
    assert (
        await ask(server, "/vectors/upsert", {"namespace": "n", "vectors": [vector]})
    ).is_success
    return server


def upsert(**changes: Any) -> dict[str, Any]:
    return {"namespace": "n", "vectors": [{**GOOD, **changes}]}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/vectors/upsert", upsert(id="é")),
        ("/vectors/upsert", upsert(id="")),
        ("/vectors/upsert", upsert(id="x" * 513)),
        ("/vectors/upsert", upsert(id="a\0")),
        ("/vectors/upsert", upsert(values=[1.0])),
        ("/vectors/upsert", upsert(values=[0.0, -0.0])),
        ("/vectors/upsert", upsert(metadata={"$x": 1})),
        ("/vectors/upsert", upsert(metadata={"x": None})),
        ("/vectors/upsert", upsert(metadata={"x": [1]})),
        ("/vectors/upsert", upsert(metadata={"x": "x" * 41_000})),
        ("/vectors/upsert", {"namespace": "n", "vectors": []}),
        ("/vectors/upsert", {"namespace": "n", "vectors": [GOOD] * 1001}),
        ("/vectors/upsert", upsert(padding="x" * 2_000_000)),
        ("/vectors/delete", {"namespace": "n"}),
        ("/vectors/delete", {"namespace": "n", "ids": ["a"], "filter": {"x": 1}}),
        ("/vectors/delete", {"namespace": "n", "ids": ["a"] * 1001}),
        ("/query", {**QUERY, "topK": 0}),
        ("/query", {**QUERY, "topK": 10_001}),
        ("/query", {**QUERY, "filter": []}),
        ("/query", {**QUERY, "filter": {"x": {"$regex": "a"}}}),
        ("/query", {**QUERY, "filter": {"$nor": []}}),
        ("/query", {**QUERY, "filter": {"$or": []}}),
        ("/query", {**QUERY, "filter": {"x": {"$gt": "a"}}}),
        ("/query", {**QUERY, "filter": {"x": {"$eq": None}}}),
        ("/query", {**QUERY, "filter": {"x": {"$in": "a"}}}),
        ("/query", {**QUERY, "filter": {"x": {"$in": [True]}}}),
        ("/vectors/list?namespace=n&limit=101", None),
        ("/vectors/fetch?namespace=n", None),
    ],
)
async def test_what_pinecone_refuses_is_refused(path: str, body: Any) -> None:
    assert (await ask(await filled(), path, body)).status_code == 400


async def test_keys_versions_addresses_and_indexes_are_checked() -> None:
    server = PineconeServer()

    assert (await ask(server, "/query", QUERY, {**HEADERS, "api-key": "x"})).status_code == 401
    assert (await ask(server, "/query", QUERY, {"api-key": API_KEY})).status_code == 400
    assert (await ask(server, "/vectors/fetch?ids=" + "x" * 9000)).status_code == 414
    assert (await ask(server, "https://other.pinecone.io/query", QUERY)).status_code == 404
    assert (await ask(server, "/nowhere", QUERY)).status_code == 404
    assert (await ask(server, "https://api.pinecone.io/indexes/other")).status_code == 404
    assert (await ask(server, "https://api.pinecone.io/indexes", {"name": "x"})).status_code == 422
    assert (await ask(server, "/query", QUERY)).status_code == 404
    assert (
        await ask(server, "/vectors/delete", {"namespace": "n", "ids": ["a"]})
    ).status_code == 404


async def test_an_index_is_made_once_and_serves_when_it_is_ready() -> None:
    server = PineconeServer(not_ready=1)
    wanted: dict[str, Any] = {
        "name": "new",
        "dimension": 2,
        "metric": "cosine",
        "vector_type": "dense",
        "spec": {},
    }
    control = "https://api.pinecone.io/indexes"
    made = await ask(server, control, wanted)
    assert (made.status_code, made.json()["status"]["ready"]) == (201, False)
    assert (await ask(server, control, wanted)).status_code == 409
    assert (await ask(server, f"{control}/new")).json()["status"]["ready"]


@pytest.mark.parametrize(
    ("filter", "found"),
    [
        ({"x": "a"}, True),
        ({"l": "b"}, True),  # any element
        ({"l": {"$in": ["c", "a"]}}, True),
        ({"n": 1}, True),
        ({"n": {"$gte": 1, "$lt": 2}}, True),
        ({"n": {"$gt": 1}}, False),
        ({"n": {"$eq": True}}, False),
        ({"b": True}, True),
        ({"b": 1}, False),
        ({"x": {"$ne": "b"}}, True),
        ({"missing": {"$ne": "b"}}, False),  # as since 2024
        ({"missing": {"$nin": ["b"]}}, False),
        ({"x": {"$nin": ["b"]}}, True),
        ({"missing": {"$exists": False}}, True),
        ({"x": {"$exists": True}}, True),
        ({"$or": [{"x": "c"}, {"n": 1}]}, True),
        ({"$and": [{"x": "a"}, {"n": 2}]}, False),
    ],
)
async def test_filters_mean_what_they_mean_there(filter: dict[str, Any], *, found: bool) -> None:
    answer = await ask(await filled(n=1, b=True), "/query", {**QUERY, "filter": filter})

    assert bool(answer.json()["matches"]) == found


async def test_results_come_in_no_order_and_not_above_four_megabytes() -> None:
    server = PineconeServer()
    text = "x" * 15_000
    for start in (0, 100, 200):
        vectors = [
            {"id": f"{n:03}", "values": [1.0, n], "metadata": {"t": text}}
            for n in range(start, start + 100)
        ]
        assert (
            await ask(server, "/vectors/upsert", {"namespace": "n", "vectors": vectors})
        ).is_success

    matches = (await ask(server, "/query", {**QUERY, "topK": 9})).json()["matches"]
    names = [match["id"] for match in matches]
    assert sorted(names) == [f"{n:03}" for n in range(9)] != names
    large = {**QUERY, "includeMetadata": True}
    assert (await ask(server, "/query", {**large, "topK": 20})).is_success
    assert (await ask(server, "/query", {**large, "topK": 300})).status_code == 400
