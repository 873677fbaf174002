"""Pinecone's limits of requests and answers, and how its store keeps within them."""

import threading
from typing import Any

import httpx2
import numpy as np
import pytest

from fakes.pinecone_server import PineconeServer
from lib.errors import InvalidMeta
from lib.vector import Record
from lib.vector.stores.pinecone import records

from .pinecone_kit import bodies, opened


async def test_a_batch_is_split_at_a_thousand_vectors_and_at_two_megabytes() -> None:
    server = PineconeServer()
    async with opened(server) as store:
        await store.upsert([Record(str(number), [1.0, 0.0]) for number in range(2001)])
        sent = [len(body["vectors"]) for body in bodies(server, "/vectors/upsert")]
        assert sent == [1000, 1000, 1]

        server.requests.clear()
        await store.upsert([Record(str(number), [1.0, 0.0], "x" * 30_000) for number in range(100)])
        assert len(bodies(server, "/vectors/upsert")) == 2
        await store.delete([str(number) for number in range(2001)])
        assert [len(body["ids"]) for body in bodies(server, "/vectors/delete")] == [
            1000,
            1000,
            1,
        ]
        assert await store.count() == 0


async def test_a_batch_is_written_off_the_event_loop_and_each_request_when_it_is_its_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server, threads, sent = PineconeServer(), set[int](), list[int]()
    usual: Any = records._vector  # pyright: ignore[reportPrivateUsage] - watched, not replaced

    def watched(*arguments: Any) -> bytes:
        threads.add(threading.get_ident())
        sent.append(len(bodies(server, "/vectors/upsert")))
        return usual(*arguments)

    monkeypatch.setattr(records, "_vector", watched)

    async with opened(server, dimension=64) as store:
        vectors = np.random.default_rng(1).standard_normal((2500, 64))
        await store.upsert([Record(str(n), vector) for n, vector in enumerate(vectors)])
    assert threading.get_ident() not in threads
    assert (sent[0], sent[1000], sent[-1]) == (0, 0, 2)


async def test_a_record_that_is_too_large_refuses_its_batch_before_anything_is_sent() -> None:
    server = PineconeServer()
    async with opened(server) as store:
        large = Record("large", [1.0, 0.0], "ü" * 20_500)
        many = [Record(str(number), [1.0, 0.0]) for number in range(1500)]
        with pytest.raises(InvalidMeta, match="40960") as refusal:
            await store.upsert([*many, large])

        assert "'large'" in str(refusal.value)
        assert bodies(server, "/vectors/upsert") == []


async def test_more_results_than_pinecone_returns_are_refused() -> None:
    server = PineconeServer()
    async with opened(server) as store:
        with pytest.raises(ValueError, match="at most 10000"):
            await store.query([1.0, 0.0], 10_001)
        assert await store.query([1.0, 0.0], 10_000) == []


async def test_results_too_large_for_one_answer_are_fetched_by_their_ids() -> None:
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


async def test_a_record_deleted_while_its_match_is_filled_in_is_left_out() -> None:
    server = PineconeServer()
    async with opened(server) as store:
        await store.upsert([Record("a", [1.0, 0.0])])
        too_large = httpx2.Response(400, json={})
        scores = {"a": 1.0, "gone": 0.5, "%h" + "0" * 64: 0.4}
        matches = [{"id": name, "score": score} for name, score in scores.items()]
        server.plan(too_large, httpx2.Response(200, json={"matches": matches}))

        assert [match.id for match in await store.query([1.0, 0.0])] == ["a"]


async def test_many_long_ids_are_fetched_in_addresses_that_are_not_too_long() -> None:
    server = PineconeServer()
    async with opened(server) as store:
        names = [f"{n:03}" + "é" * 200 for n in range(30)] + [f"{n:03}" for n in range(250)]
        await store.upsert([Record(name, [1.0, 0.0]) for name in names])

        assert [record.id for record in await store.get(names)] == names


async def test_counting_reads_page_after_page() -> None:
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
