"""Tests records and filters that Chroma handles wrongly and `ChromaVectorStore` corrects."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from lib.errors import StoreCorrupt
from lib.vector import EVERYTHING, F, Filter, Record
from lib.vector.filter import Or
from lib.vector.stores.chroma import records
from lib.vector.stores.chroma.filter import condition

from .chroma_kit import Altered, X, raw, stored


async def test_a_fraction_finds_no_int_as_it_does_in_chroma(tmp_path: Path) -> None:
    client = raw(tmp_path)
    collection = client.create_collection("raw", embedding_function=None)
    collection.add(ids=["one"], embeddings=[X], metadatas=[{"x": 1}])
    trap = collection.get(where={"x": {"$eq": 1.5}})["ids"]
    client.close()

    store = stored(tmp_path)
    await store.upsert([Record("one", X, "", {"x": 1})])

    assert await store.count(filter=F("x") == 1.5) == 0
    assert await store.count(filter=F("x") >= 1.5) == 0
    assert await store.count(filter=F("x") == 1.0) == 1
    await store.close()
    assert trap == ["one"], "Chroma has mended #7491: numbers need not be floats any more"


async def test_a_batch_finds_more_than_one_statement_of_sqlite_has_variables(
    tmp_path: Path,
) -> None:
    store = stored(tmp_path)
    await store.upsert([Record(str(number), [1.0, number]) for number in range(400)])

    found = await store.query_many([X] * 310, 100)

    assert found == [await store.query(X, 100)] * 310
    await store.close()


async def test_lists_of_a_deleted_namespace_do_not_turn_up_in_another(tmp_path: Path) -> None:
    store = stored(tmp_path)
    for name in ("old", "new"):
        await store.upsert(
            [Record(str(n), X, "", {"tags": [name, n]}) for n in range(20)], namespace=name
        )
        await store.delete(filter=EVERYTHING, namespace="old")
        await store.upsert([Record(str(n), X) for n in range(20)], namespace=f"after {name}")

        assert await store.count(filter=F("tags").contains("old"), namespace=name) == 0
        found = await store.query(X, 20, namespace=f"after {name}")
        assert all(match.meta == {} for match in found)
    assert "old" not in await store.namespaces()
    await store.close()
    client = raw(tmp_path)
    kept = [c.metadata["lib:namespace"] for c in client.list_collections()]
    values: list[Any] = [
        value
        for c in client.list_collections()
        for metadata in c.get()["metadatas"]
        for value in metadata.values()
    ]
    client.close()
    assert sorted(kept) == ["after new", "after old", "new"]
    assert {type(value) for value in values} <= {str, bool, float}


async def test_an_upsert_replaces_though_chroma_merges(tmp_path: Path) -> None:
    client = raw(tmp_path)
    collection = client.create_collection("raw", embedding_function=None)
    collection.upsert(ids=["a"], embeddings=[X], metadatas=[{"x": 1, "y": 1}], documents=["old"])
    collection.upsert(ids=["a"], embeddings=[X], metadatas=[{"y": 2}])
    trap = collection.get(ids=["a"])
    client.close()
    assert (trap["metadatas"], trap["documents"]) == ([{"x": 1, "y": 2}], ["old"])

    store = stored(tmp_path)
    await store.upsert([Record("a", X, "old", {"x": 1, "l": [1, 2], "t": "a"})])
    await store.upsert([Record("a", X, "", {"t": 1, "l": [2]})])

    assert await store.get(["a"]) == [Record("a", X, "", {"t": 1, "l": [2]})]
    for filter in (F("x").exists(), F("t") == "a", F("l").contains(1)):
        assert await store.count(filter=filter) == 0
    await store.close()


async def test_a_record_that_is_being_replaced_is_always_there(tmp_path: Path) -> None:
    client = await asyncio.to_thread(
        raw, tmp_path
    )  # shared, so that two stores meet in one database
    writer, reader = stored(tmp_path, path=None, client=client), stored(tmp_path)
    await writer.upsert([Record("a", X, "", {"turn": -1})])

    async def write() -> None:
        for turn in range(60):
            await writer.upsert([Record("a", X, "", {"turn": turn, str(turn): True})])

    writing = asyncio.create_task(write())
    while not writing.done():
        (record,) = await reader.get(["a"])
        turn = record.meta["turn"]
        assert record.meta == ({"turn": turn, str(turn): True} if turn >= 0 else {"turn": -1})
    await writing
    await reader.close()
    await writer.close()
    client.close()


async def test_an_altered_vector_is_an_error(tmp_path: Path) -> None:
    store = stored(tmp_path)
    await store.upsert([Record("a", [3.0, 9.0])])
    client = await asyncio.to_thread(raw, tmp_path)
    (collection,) = client.list_collections()
    for packed in ("AAAA", "not base64!", 1.0):
        collection.update(ids=["a"], metadatas=[{"f": packed}])
        with pytest.raises(StoreCorrupt, match="not written"):
            await store.get(["a"])
    collection.update(ids=["a"], metadatas=[{"f": None}])
    assert len(await store.get(["a"])) == 1  # as it was before vectors were kept so
    await store.close()
    client.close()


def test_the_elements_of_two_fields_are_kept_apart_whatever_their_names() -> None:
    assert records.element("a", "b\x1fs:c") != records.element("a\x1fs:b", "c")
    assert records.element("1", "x") != records.element("11", "x")
    assert records.element("a", 1) == records.element("a", 1.0) != records.element("a", item=True)
    assert records.element("a", 0.0) == records.element("a", -0.0) != records.element("a", "0.0")


async def test_large_filters_are_taken(tmp_path: Path) -> None:
    store = stored(tmp_path)
    await store.upsert([Record(str(n), X, "", {"x": n, f"f{n}": n}) for n in range(30)])
    mixed = [F(f"f{n}").in_([n, "a", True, None]) for n in range(256)]
    deep: Filter = F("x") >= 20
    for n in range(7):
        deep = Or((~deep, F("f1") == 1)) if n % 2 else ~(deep & (F("x") > -1))

    assert await store.count(filter=Or(tuple(mixed))) == 30
    assert await store.count(filter=~Or(tuple(mixed))) == 0
    assert await store.count(filter=F("x").in_(range(10_000))) == 30
    await store.count(filter=deep)
    await store.close()


async def test_a_batch_is_sent_in_requests_of_bounded_number_and_size(tmp_path: Path) -> None:
    sizes: list[int] = []
    client = await asyncio.to_thread(raw, tmp_path)

    def watched(collection: Any) -> dict[str, Any]:
        def upsert(**columns: Any) -> None:
            sizes.append(len(columns["ids"]))
            collection.upsert(**columns)

        return {"upsert": upsert}

    store = stored(tmp_path, path=None, client=Altered(client, watched))
    await store.upsert([Record(str(n), X) for n in range(6000)])
    assert sizes == [5461, 539]

    sizes.clear()
    await store.upsert([Record(f"x{n}", X, "x" * 900_000) for n in range(6)])
    assert sizes == [2, 2, 2]
    assert await store.count() == 6006
    await store.close()
    client.close()


async def test_two_stores_of_one_folder_that_write_the_same_id_leave_the_fields_of_one(
    tmp_path: Path,
) -> None:
    one, other = stored(tmp_path), stored(tmp_path)
    await one.setup()
    await other.setup()
    for turn in range(20):
        metadata = [{f"{name}{turn}": 1} for name in "ab"]
        await asyncio.gather(
            one.upsert([Record("x", X, "", metadata[0])]),
            other.upsert([Record("x", X, "", metadata[1])]),
        )
        (record,) = await one.get(["x"])
        assert [await one.count(filter=dict(meta)) for meta in metadata] == [
            int(meta == record.meta) for meta in metadata
        ]
    await one.close()
    await other.close()


def test_only_a_filter_can_be_translated() -> None:
    with pytest.raises(TypeError, match="not a filter"):
        condition(Filter())
