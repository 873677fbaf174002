"""Tests what Pinecone is given for names, metadata, filters and vectors, and what comes of them."""

import asyncio
import json
from typing import Any

import httpx2
import numpy as np
import pytest

from fakes.pinecone_server import PineconeServer
from lib._util.clock import SYSTEM_CLOCK
from lib.errors import InvalidMeta, StoreCorrupt, UnsupportedFilter
from lib.vector import EVERYTHING, F, Filter, Record
from lib.vector.stores.pinecone.filter import condition

from .pinecone_kit import bodies, opened


async def test_names_that_look_like_encoded_ones_are_kept_apart() -> None:
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


async def test_a_list_is_not_mistaken_for_its_elements_nor_a_scalar_for_a_list() -> None:
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


async def test_an_element_equals_by_value_and_by_class() -> None:
    async with opened(PineconeServer()) as store:
        await store.upsert([Record("a", [1.0, 0.0], "", {"x": [0, 2.0, True, "1"]})])

        for value in (0.0, -0.0, 2, True, "1"):
            assert await store.count(filter=F("x").contains(value)) == 1
        for value in (1, False, "2"):
            assert await store.count(filter=F("x").contains(value)) == 0


async def test_negations_are_refused_before_any_request() -> None:
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


async def test_ids_and_a_filter_delete_what_meets_both_in_one_request() -> None:
    server = PineconeServer()
    async with opened(server) as store:
        await store.upsert([Record(n, [1.0, 0.0], "", {"x": n}) for n in ("a", "b", "é")])
        await store.delete(["a", "é", "a"], filter=F("x").in_(["b", "é"]))

        assert [record.id for record in await store.scan()] == ["a", "b"]
        assert len(bodies(server, "/vectors/delete")) == 1


async def test_euclidean_scores_are_distances_not_their_squares() -> None:
    server = PineconeServer()
    server.make_index("test", dimension=2, metric="euclidean")
    async with opened(server, index=False, metric="euclidean") as store:
        await store.upsert([Record("a", [3.0, 4.0]), Record("b", [0.0, 0.0])])

        found = await store.query([0.0, 0.0])
        assert [(match.id, match.score) for match in found] == [("b", 0.0), ("a", 5.0)]


async def test_vectors_are_sent_with_the_fewest_digits_that_tell_them_apart() -> None:
    server = PineconeServer()
    vector = np.array([0.1, 1e-18, 1e18, 1 / 3, -0.0], np.float32)
    async with opened(server, dimension=5) as store:
        await store.upsert([Record("a", vector)])

        (body,) = bodies(server, "/vectors/upsert")
        assert len(json.dumps(body["vectors"][0]["values"])) < 50
        (record,) = await store.get(["a"])
        assert record.vector == vector.tolist()
        await store.delete(filter=EVERYTHING)


def test_only_a_filter_can_be_translated() -> None:
    with pytest.raises(TypeError, match="expected a filter that Pinecone supports, got Filter"):
        condition(Filter())


async def test_a_record_that_another_program_damaged_can_be_deleted_by_id() -> None:
    server = PineconeServer()
    async with opened(server) as store:
        await store.upsert([Record("a", [1.0, 0.0]), Record("b", [1.0, 0.0])])
        (namespace,) = server.indexes["test"].namespaces.values()
        namespace.rows["a"]["metadata"].clear()

        with pytest.raises(StoreCorrupt):
            await store.get(["a"])
        assert await store.delete(["a", "a", "unknown"]) == 1
        assert [one.id for one in await store.scan()] == ["b"]


async def test_a_change_of_metadata_that_one_record_has_no_room_for_changes_none() -> None:
    async with opened(PineconeServer()) as store:
        room = [Record(f"{n:04}", [1.0, 0.0], "", {"x": 1}) for n in range(600)]
        await store.upsert([*room, Record("full", [1.0, 0.0], "x" * 40_000)])

        names = [*(one.id for one in room), "full"]
        choices: list[dict[str, Any]] = [{"ids": names}, {"filter": EVERYTHING}]
        for chosen in choices:
            with pytest.raises(InvalidMeta, match="full"):
                await store.update_meta({"note": "y" * 1_000}, **chosen)
            assert await store.count(filter=F("note").exists()) == 0


async def test_an_insert_that_one_record_has_no_room_in_inserts_none() -> None:
    async with opened(PineconeServer()) as store:
        room = [Record(f"{n:04}", [1.0, 0.0]) for n in range(600)]

        with pytest.raises(InvalidMeta, match="full"):
            await store.insert([*room, Record("full", [1.0, 0.0], "x" * 50_000)])
        assert await store.count() == 0


class Held(httpx2.AsyncBaseTransport):
    """The server's transport, which keeps upserts back until the test lets them go."""

    def __init__(self, inner: httpx2.AsyncBaseTransport) -> None:
        self._inner = inner
        self.came, self.open = asyncio.Event(), asyncio.Event()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if request.url.path == "/vectors/upsert":
            self.came.set()
            await self.open.wait()
        return await self._inner.handle_async_request(request)


async def test_a_deletion_waits_for_a_change_of_metadata_that_is_on_its_way() -> None:
    server = PineconeServer()
    async with opened(server) as other:
        await other.upsert([Record("a", [1.0, 0.0]), Record("b", [1.0, 0.0])])
    held = Held(server.transport)
    async with httpx2.AsyncClient(transport=held) as client, opened(server, client=client) as store:
        update = asyncio.create_task(store.update_meta({"x": 1}, ids=["a", "b"]))
        await held.came.wait()
        deletion = asyncio.create_task(store.delete(["a"]))
        for _ in range(100):
            await SYSTEM_CLOCK.sleep(0)
        held.open.set()

        assert (await update, await deletion) == (2, 1)
        assert [(one.id, one.meta) for one in await store.scan()] == [("b", {"x": 1})]
