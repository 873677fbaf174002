"""The requests that a Qdrant server gets, and how its answers are read."""

import asyncio
from typing import Any

import httpx
import pytest
from qdrant_client import AsyncQdrantClient

from lib.errors import UnsupportedFilter
from lib.vector import EVERYTHING, F, QdrantVectorStore, Record

from .qdrant_server_kit import RECORDS, URL, Server


async def test_a_new_collection_has_a_graph_and_an_index_for_each_namespace() -> None:
    server = Server()
    first, second = server.store(), server.store()
    await first.setup()
    await second.setup()

    (made,) = [body for method, path, body in server.requests if (method, path[-1]) == ("PUT", "s")]
    assert made["vectors"] == {"size": 2, "distance": "Cosine"}
    assert made["hnsw_config"] == {"m": 0, "payload_m": 16}
    (index,) = server.bodies("/index")
    assert index == {
        "field_name": "ns",
        "field_schema": {"type": "keyword", "is_tenant": True},
    }
    await first.close()
    await second.close()


async def test_a_collection_that_another_process_makes_first_is_taken_as_it_is() -> None:
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


async def test_records_go_there_and_come_back_over_the_wire() -> None:
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


async def test_writes_are_waited_for_and_sent_in_requests_of_a_bounded_size() -> None:
    server, seen = Server(), list[httpx.Request]()
    server.fail = seen.append
    store = server.store()
    await store.upsert([Record(str(row), [1.0, 0.0]) for row in range(600)])
    assert [len(body["points"]) for body in server.bodies("/points")] == [256, 256, 88]
    await store.upsert([Record(f"large {row}", [1.0, 0.0], "x" * 3_000_000) for row in range(5)])
    await store.delete(["1"])

    assert [len(body["points"]) for body in server.bodies("/points")][3:] == [2, 2, 1]
    writes = [each for each in seen if each.url.path.endswith(("/points", "/delete", "/index"))]
    assert all(each.url.params["wait"] == "true" for each in writes)
    assert all(len(each.content) < 9_000_000 for each in writes)
    await store.close()


async def test_a_filter_makes_the_search_exact_and_so_does_an_index_that_finds_too_few() -> None:
    server = Server()
    store = server.store()
    await store.upsert(RECORDS)
    params = lambda: [body["params"] for body in server.bodies("/points/query")]  # noqa: E731 - used twice

    assert len(await store.query([1.0, 0.0], 3)) == 3
    assert params() == [{"hnsw_ef": 128}]
    assert len(await store.query([1.0, 0.0], 300)) == 30
    assert params()[1:] == [{"hnsw_ef": 308}, {"exact": True}]
    assert len(await store.query([1.0, 0.0], 3, filter=F("row") < 9)) == 3
    assert params()[3:] == [{"exact": True}]
    await store.close()


async def test_the_limit_sent_to_the_server_never_exceeds_the_number_of_records() -> None:
    server = Server()
    store = server.store()
    assert await store.query([1.0, 0.0], 10**12) == []
    await store.upsert(RECORDS)

    assert len(await store.query([1.0, 0.0], 10**12)) == 30
    assert len(await store.query([1.0, 0.0], 10**12, filter=F("row") < 9)) == 9
    assert [body["limit"] for body in server.bodies("/points/query")] == [30, 9]
    await store.close()


async def test_any_number_of_namespaces_is_listed() -> None:
    server = Server()
    store = server.store()
    for number in range(1001):
        await store.upsert([Record("a", [1.0, 0.0])], namespace=f"{number:04}")

    assert await store.namespaces("1") == ["1000"]
    assert len(await store.namespaces()) == 1001
    assert [body["limit"] for body in server.bodies("/facet")] == [1000, 10_000] * 2
    assert all(body["exact"] for body in server.bodies("/facet"))
    await store.close()


async def test_what_cannot_be_said_is_refused_before_anything_is_sent() -> None:
    server = Server()
    store = server.store()
    for filter in (F("x") > "a", F("x") == 2**53, F('"') == 1, F("\\").contains(1)):
        with pytest.raises(UnsupportedFilter):
            await store.query([1.0, 0.0], filter=filter)

    assert server.requests == []
    await store.close()


async def test_a_client_that_was_given_stays_open() -> None:
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


async def test_a_cancelled_call_leaves_the_store_usable() -> None:
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


@pytest.mark.parametrize("filter", [None, {"row": {"$gte": 10}}])
async def test_a_server_answers_many_queries_in_one_request(
    filter: dict[str, Any] | None,
) -> None:
    server = Server()
    async with server.store() as store:
        await store.upsert(RECORDS)
        await store.upsert(
            [Record(f"same {row}", [0.0, 1.0], "", {"row": 20}) for row in range(20)]
        )
        queries = [[1.0, 0.3], [1.0, 2.0], [0.0, 1.0]]
        wanted = [await store.query(query, 3, filter=filter) for query in queries]
        alone = len(server.bodies("/points/query"))

        assert await store.query_many(queries, 3, filter=filter) == wanted
        (batch,) = server.bodies("/points/query/batch")
        assert [search["limit"] for search in batch["searches"]] == [11, 11, 11]
        tied = len(server.bodies("/points/query")) - alone
        assert tied >= 1  # the last one finds twenty alike, and is sent again by itself
        assert [one.id for one in wanted[2]] == ["same 0", "same 1", "same 10"]
        assert await store.query_many(queries * 40, 3, filter=filter) == wanted * 40
        assert len(server.bodies("/points/query/batch")) == 3
