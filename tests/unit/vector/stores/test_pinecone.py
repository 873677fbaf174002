"""`PineconeVectorStore` on the wire: its index, limits, errors; and what lies in store for it."""

import asyncio
import json
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import numpy as np
import pytest

from lib.errors import (
    DimensionMismatch,
    InvalidMeta,
    MetricMismatch,
    StoreClosed,
    StoreCorrupt,
    StoreUnavailable,
    UnsupportedFilter,
)
from lib.resilience import RetryPolicy
from lib.testing.aio import run
from lib.testing.pinecone_server import API_KEY, HurryingClock, PineconeServer
from lib.vector import EVERYTHING, F, Filter, PineconeVectorStore, Record
from lib.vector.records import Layout
from lib.vector.stores.pinecone import records
from lib.vector.stores.pinecone.translate import condition

HOST = "test-abc123.svc.aped-0000-a000.pinecone.io"
ONCE = RetryPolicy(attempts=1)
USUAL: dict[str, Any] = {"dimension": 2, "api_key": "k", "index_name": "test"}


@asynccontextmanager
async def opened(
    server: PineconeServer, *, index: bool = True, **arguments: Any
) -> AsyncGenerator[PineconeVectorStore]:
    if index:
        server.make_index("test", dimension=arguments.get("dimension", 2))
    defaults: dict[str, Any] = {
        "dimension": 2,
        "api_key": API_KEY,
        "index_name": "test",
        "clock": HurryingClock(),
        "jitter": lambda: 0.0,
    }
    async with server.client() as client:
        everything: dict[str, Any] = {**defaults, "client": client, **arguments}
        yield PineconeVectorStore(**everything)


def bodies(server: PineconeServer, path: str) -> list[Any]:
    return [body for _, asked, body in server.requests if asked == path]


# -- which index ---------------------------------------------------------------------------------


def test_a_missing_index_is_made_if_that_is_wanted_and_waited_for() -> None:
    async def main() -> None:
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

    run(main())


def test_a_missing_index_is_told_and_not_made_unasked() -> None:
    async def main() -> None:
        server = PineconeServer()
        async with opened(server, index=False) as store:
            with pytest.raises(StoreUnavailable, match="create=True") as refusal:
                await store.setup()
            assert (refusal.value.status, refusal.value.retryable) == (404, False)
            assert await store.existing() is None
            assert server.indexes == {}

    run(main())


def test_two_that_make_the_index_at_once_both_have_it() -> None:
    async def main() -> None:
        server = PineconeServer()
        async with opened(server, index=False, create=True) as store:
            server.plan(httpx2.Response(404, json={}))  # then somebody else was faster
            server.make_index("test", dimension=2)
            await store.setup()

            assert await store.existing() == Layout(dimension=2, metric="cosine")

    run(main())


def test_an_index_that_does_not_become_ready_is_told_as_something_that_may_pass() -> None:
    async def main() -> None:
        server = PineconeServer(not_ready=10_000)
        async with opened(server, index=False, create=True) as store:
            with pytest.raises(StoreUnavailable, match="not ready after 300 s") as refusal:
                await store.setup()
            assert refusal.value.retryable

    run(main())


def test_a_refused_creation_or_description_is_told() -> None:
    async def main() -> None:
        for answers, status in (([404, 403], 403), ([500], 500)):
            server = PineconeServer()
            async with opened(server, index=False, create=True, retries=ONCE) as store:
                server.plan(*(httpx2.Response(answer, json={}) for answer in answers))
                with pytest.raises(StoreUnavailable) as refusal:
                    await store.setup()
                assert refusal.value.status == status

    run(main())


def test_an_index_of_another_kind_is_refused() -> None:
    async def main() -> None:
        known: list[dict[str, Any]] = [{}, {"index_name": None, "index_host": HOST}]
        for arguments in known:
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

    run(main())


def test_with_a_host_the_control_plane_is_not_asked() -> None:
    async def main() -> None:
        server = PineconeServer()
        async with opened(server, index_name=None, index_host=f"https://{HOST}/") as store:
            await store.upsert([Record("a", [1.0, 0.0])])

            assert not [path for _, path, _ in server.requests if path.startswith("/indexes")]

    run(main())


@pytest.mark.parametrize("host", [None, 5, "ftp://x"])
def test_an_index_without_a_host_is_an_unreadable_answer(host: Any) -> None:
    async def main() -> None:
        server = PineconeServer()
        async with opened(server) as store:
            told = {"dimension": 2, "metric": "cosine", "host": host, "status": {"ready": True}}
            server.plan(httpx2.Response(200, json=told))
            with pytest.raises(StoreUnavailable, match="host"):
                await store.setup()

    run(main())


def test_an_index_of_documents_is_none_for_vectors() -> None:
    async def main() -> None:
        server = PineconeServer()
        async with opened(server) as store:
            server.plan(httpx2.Response(200, json={"schema": {}, "status": {"ready": True}}))
            with pytest.raises(StoreUnavailable, match="none for vectors"):
                await store.setup()

    run(main())


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


def test_the_key_comes_from_the_environment_if_none_is_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PINECONE_API_KEY", API_KEY)

    async def main() -> None:
        async with opened(PineconeServer(), api_key=None) as store:
            await store.setup()

    run(main())


# -- limits --------------------------------------------------------------------------------------


def test_a_batch_is_split_at_a_thousand_vectors_and_at_two_megabytes() -> None:
    async def main() -> None:
        server = PineconeServer()
        async with opened(server) as store:
            await store.upsert([Record(str(number), [1.0, 0.0]) for number in range(2001)])
            sent = [len(body["vectors"]) for body in bodies(server, "/vectors/upsert")]
            assert sent == [1000, 1000, 1]

            server.requests.clear()
            await store.upsert(
                [Record(str(number), [1.0, 0.0], "x" * 30_000) for number in range(100)]
            )
            assert len(bodies(server, "/vectors/upsert")) == 2
            await store.delete([str(number) for number in range(2001)])
            assert [len(body["ids"]) for body in bodies(server, "/vectors/delete")] == [
                1000,
                1000,
                1,
            ]
            assert await store.count() == 0

    run(main())


def test_a_batch_is_written_off_the_event_loop_and_each_request_when_it_is_its_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server, threads, sent = PineconeServer(), set[int](), list[int]()
    usual: Any = records._vector  # pyright: ignore[reportPrivateUsage] - watched, not replaced

    def watched(*arguments: Any) -> bytes:
        threads.add(threading.get_ident())
        sent.append(len(bodies(server, "/vectors/upsert")))
        return usual(*arguments)

    monkeypatch.setattr(records, "_vector", watched)

    async def main() -> None:
        async with opened(server, dimension=64) as store:
            vectors = np.random.default_rng(1).standard_normal((2500, 64))
            await store.upsert([Record(str(n), vector) for n, vector in enumerate(vectors)])

    run(main())
    assert threading.get_ident() not in threads
    assert (sent[0], sent[1000], sent[-1]) == (0, 0, 2)


def test_a_record_that_is_too_large_refuses_its_batch_before_anything_is_sent() -> None:
    async def main() -> None:
        server = PineconeServer()
        async with opened(server) as store:
            large = Record("large", [1.0, 0.0], "ü" * 20_500)
            many = [Record(str(number), [1.0, 0.0]) for number in range(1500)]
            with pytest.raises(InvalidMeta, match="40960") as refusal:
                await store.upsert([*many, large])

            assert "'large'" in str(refusal.value)
            assert bodies(server, "/vectors/upsert") == []

    run(main())


def test_more_results_than_pinecone_returns_are_refused() -> None:
    async def main() -> None:
        server = PineconeServer()
        async with opened(server) as store:
            with pytest.raises(ValueError, match="at most 10000"):
                await store.query([1.0, 0.0], 10_001)
            assert await store.query([1.0, 0.0], 10_000) == []

    run(main())


def test_results_too_large_for_one_answer_are_fetched_by_their_ids() -> None:
    async def main() -> None:
        server = PineconeServer()
        async with opened(server) as store:
            records = [Record(f"é{n:03}", [1.0, n / 100], "x" * 30_000) for n in range(200)]
            await store.upsert([*records, Record("\uffff" * 512, [1.0, 5.0])])

            found = await store.query([1.0, 0.0], 201, include_vectors=True)
            assert [match.id for match in found] == [*(r.id for r in records), "\uffff" * 512]
            assert found[3].text == "x" * 30_000
            assert found[3].vector == np.array([1.0, 0.03], np.float32).tolist()
            (last,) = [match for match in await store.query([1.0, 0.0], 201) if match.text == ""]
            assert last.vector is None

    run(main())


def test_a_record_deleted_while_its_match_is_filled_in_is_left_out() -> None:
    async def main() -> None:
        server = PineconeServer()
        async with opened(server) as store:
            await store.upsert([Record("a", [1.0, 0.0])])
            too_large = httpx2.Response(400, json={})
            scores = {"a": 1.0, "gone": 0.5, "%h" + "0" * 64: 0.4}
            matches = [{"id": name, "score": score} for name, score in scores.items()]
            server.plan(too_large, httpx2.Response(200, json={"matches": matches}))

            assert [match.id for match in await store.query([1.0, 0.0])] == ["a"]

    run(main())


def test_many_long_ids_are_fetched_in_addresses_that_are_not_too_long() -> None:
    async def main() -> None:
        server = PineconeServer()
        async with opened(server) as store:
            names = [f"{n:03}" + "é" * 200 for n in range(30)] + [f"{n:03}" for n in range(250)]
            await store.upsert([Record(name, [1.0, 0.0]) for name in names])

            assert [record.id for record in await store.get(names)] == names

    run(main())


# -- names and metadata --------------------------------------------------------------------------


def test_names_that_look_like_encoded_ones_are_kept_apart() -> None:
    async def main() -> None:
        server = PineconeServer()
        names = ["%", "%25", "%2525", "%h", "é", "%C3%A9", "%c3%a9", " ", "%20", "a\nb"]
        async with opened(server) as store:
            for name in [*names, "", "__default__", "%5F_default__"]:
                await store.upsert([Record("x", [1.0, 0.0], name)], namespace=name)
            await store.upsert([Record(name, [1.0, 0.0]) for name in names], namespace="ids")

            for name in [*names, "", "__default__", "%5F_default__"]:
                (record,) = await store.get(["x"], namespace=name)
                assert record.text == name
            assert [record.id for record in await store.scan(namespace="ids")] == sorted(names)
            assert await store.namespaces() == sorted(
                [*names, "", "__default__", "%5F_default__", "ids"]
            )

    run(main())


def test_a_list_is_not_mistaken_for_its_elements_nor_a_scalar_for_a_list() -> None:
    async def main() -> None:
        async with opened(PineconeServer()) as store:
            await store.upsert(
                [
                    Record("list", [1.0, 0.0], "", {"x": ["a"]}),
                    Record("text", [1.0, 0.0], "", {"x": "a"}),
                    Record("token", [1.0, 0.0], "", {"x": "s:a"}),
                ]
            )

            assert [m.id for m in await store.query([1.0, 0.0], filter=F("x") == "a")] == ["text"]
            contains = F("x").contains("a")
            assert [m.id for m in await store.query([1.0, 0.0], filter=contains)] == ["list"]

    run(main())


def test_an_element_equals_by_value_and_by_class() -> None:
    async def main() -> None:
        async with opened(PineconeServer()) as store:
            await store.upsert([Record("a", [1.0, 0.0], "", {"x": [0, 2.0, True, "1"]})])

            for value in (0.0, -0.0, 2, True, "1"):
                assert await store.count(filter=F("x").contains(value)) == 1
            for value in (1, False, "2"):
                assert await store.count(filter=F("x").contains(value)) == 0

    run(main())


def test_negations_are_refused_before_anything_is_asked() -> None:
    async def main() -> None:
        server = PineconeServer()
        async with opened(server) as store:
            for filter in (F("x") != 1, ~(F("x") == 1), F("x").exists(present=False)):
                for call in (
                    lambda filter=filter: store.query([1.0, 0.0], filter=filter),
                    lambda filter=filter: store.delete(filter=filter),
                    lambda filter=filter: store.count(filter=filter),
                ):
                    with pytest.raises(UnsupportedFilter):
                        await call()
            assert server.requests == []

    run(main())


def test_ids_and_a_filter_delete_what_meets_both_in_one_request() -> None:
    async def main() -> None:
        server = PineconeServer()
        async with opened(server) as store:
            await store.upsert([Record(n, [1.0, 0.0], "", {"x": n}) for n in ("a", "b", "é")])
            await store.delete(["a", "é", "a"], filter=F("x").in_(["b", "é"]))

            assert [record.id for record in await store.scan()] == ["a", "b"]
            assert len(bodies(server, "/vectors/delete")) == 1

    run(main())


def test_counting_reads_page_after_page() -> None:
    async def main() -> None:
        server = PineconeServer()
        async with opened(server) as store:
            await store.upsert([Record(str(n), [1.0, 0.0], "", {"x": n % 2}) for n in range(450)])
            for number in range(150):
                await store.upsert([Record("a", [1.0, 0.0])], namespace=f"{number:03}")
            server.requests.clear()

            assert await store.count() == 450
            assert await store.count(filter={"x": 1}) == 225
            assert len(await store.namespaces("0")) == 100
            assert [path for _, path, _ in server.requests].count("/vectors/list") == 5 + 151
            assert [path for _, path, _ in server.requests].count("/namespaces") == 2

    run(main())


def test_euclidean_scores_are_distances_not_their_squares() -> None:
    async def main() -> None:
        server = PineconeServer()
        server.make_index("test", dimension=2, metric="euclidean")
        async with opened(server, index=False, metric="euclidean") as store:
            await store.upsert([Record("a", [3.0, 4.0]), Record("b", [0.0, 0.0])])

            found = await store.query([0.0, 0.0])
            assert [(match.id, match.score) for match in found] == [("b", 0.0), ("a", 5.0)]

    run(main())


# -- errors --------------------------------------------------------------------------------------


def test_what_may_pass_is_tried_again_as_late_as_the_server_asks() -> None:
    async def main() -> None:
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

    run(main())


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
def test_failures_are_store_unavailable_and_quote_nobody(
    answer: Any, status: int | None, *, retryable: bool
) -> None:
    async def main() -> None:
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

    run(main())


@pytest.mark.parametrize(
    "matches", [[1], 5, [{"id": 1, "score": 1.0}], [{"id": "a", "score": None}]]
)
def test_matches_that_are_none_are_unreadable(matches: Any) -> None:
    async def main() -> None:
        server = PineconeServer()
        async with opened(server) as store:
            await store.setup()
            server.plan(httpx2.Response(200, json={"matches": matches}))
            with pytest.raises(StoreUnavailable, match="shape"):
                await store.query([1.0, 0.0])

    run(main())


@pytest.mark.parametrize(
    "page", ['{"vectors": [{}]}', '{"vectors": [], "pagination": {"next": 5}}']
)
def test_pages_that_are_none_are_unreadable(page: str) -> None:
    async def main() -> None:
        server = PineconeServer()
        async with opened(server) as store:
            await store.setup()
            server.plan(httpx2.Response(200, text=page))
            with pytest.raises(StoreUnavailable, match="shape"):
                await store.count()

    run(main())


def test_a_query_that_fails_for_another_reason_than_its_size_fails() -> None:
    async def main() -> None:
        server = PineconeServer()
        async with opened(server, retries=ONCE) as store:
            await store.setup()
            server.plan(httpx2.Response(403, json={}))
            with pytest.raises(StoreUnavailable, match="403"):
                await store.query([1.0, 0.0])

    run(main())


def test_what_somebody_else_has_stored_is_told() -> None:
    async def main() -> None:
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

    run(main())


def test_a_client_of_its_own_is_closed_and_one_that_is_given_is_not() -> None:
    async def main() -> None:
        server = PineconeServer()
        async with opened(server) as store:
            await store.setup()
            client: Any = store._api._wire._client  # pyright: ignore[reportPrivateUsage] - what it keeps open is tested
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

    run(main())


@pytest.mark.parametrize("first", ["setup", "existing"])
def test_closing_during_the_first_call_lets_it_end_and_leaves_no_connections(
    monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    server = PineconeServer()
    server.make_index("test", dimension=2)
    made: list[httpx2.AsyncClient] = []
    go = threading.Event()

    def make(*_: Any) -> httpx2.AsyncClient:
        go.wait()
        made.append(server.client())
        return made[-1]

    monkeypatch.setattr("lib.wire.http._make_client", make)

    async def main() -> None:
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

    run(main())


def test_vectors_are_sent_with_the_fewest_digits_that_tell_them_apart() -> None:
    async def main() -> None:
        server = PineconeServer()
        vector = np.array([0.1, 1e-18, 1e18, 1 / 3, -0.0], np.float32)
        async with opened(server, dimension=5) as store:
            await store.upsert([Record("a", vector)])

            (body,) = bodies(server, "/vectors/upsert")
            assert len(json.dumps(body["vectors"][0]["values"])) < 50
            (record,) = await store.get(["a"])
            assert record.vector == vector.tolist()
            await store.delete(filter=EVERYTHING)

    run(main())


def test_only_a_filter_can_be_translated() -> None:
    with pytest.raises(TypeError, match="not a filter"):
        condition(Filter())
