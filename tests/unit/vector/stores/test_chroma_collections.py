"""Chroma's collections: one a namespace, and whose they are and for which vectors."""

import asyncio
from pathlib import Path

import pytest

from lib.errors import DimensionMismatch, MetricMismatch, StoreCorrupt
from lib.vector import EVERYTHING, Record

from .chroma_kit import X, raw, stored


async def test_a_folder_made_for_other_vectors_is_refused(tmp_path: Path) -> None:
    store = stored(tmp_path)
    await store.upsert([Record("a", X)])
    await store.close()

    with pytest.raises(MetricMismatch) as metric:
        await stored(tmp_path, metric="dot").setup()
    assert (metric.value.expected, metric.value.got) == ("cosine", "dot")
    with pytest.raises(DimensionMismatch) as dimension:
        await stored(tmp_path, dimension=3).setup()
    assert (dimension.value.expected, dimension.value.got) == (2, 3)
    await stored(tmp_path, dimension=3, prefix="other").setup()


async def test_a_collection_made_meanwhile_for_other_vectors_is_refused(tmp_path: Path) -> None:
    one, other = stored(tmp_path), stored(tmp_path, metric="dot")
    await one.setup()
    await other.setup()
    await one.upsert([Record("a", X)])

    with pytest.raises(MetricMismatch):
        await other.upsert([Record("a", X)])
    with pytest.raises(MetricMismatch):
        await other.query(X)
    await one.close()
    await other.close()


async def test_stores_of_two_prefixes_share_nothing_though_one_begins_with_the_other(
    tmp_path: Path,
) -> None:
    short, long = stored(tmp_path, prefix="lib"), stored(tmp_path, prefix="lib-x")
    await short.upsert([Record("a", X)])
    await long.upsert([Record("b", X)], namespace="n")

    assert await short.namespaces() == [""]
    assert await long.namespaces() == ["n"]
    await long.delete(filter=EVERYTHING, namespace="n")
    assert await short.count() == 1
    await short.close()
    await long.close()


async def test_an_emptied_namespace_is_not_listed_and_its_collection_goes_when_all_is_deleted(
    tmp_path: Path,
) -> None:
    store = stored(tmp_path)
    await store.upsert([Record("a", X)])
    await store.delete(["a"])
    assert await store.namespaces() == []
    client = await asyncio.to_thread(raw, tmp_path)
    assert len(client.list_collections()) == 1

    await store.delete(filter=EVERYTHING)
    await store.delete(filter=EVERYTHING)
    assert client.list_collections() == []
    await store.close()
    client.close()


async def test_a_collection_that_was_deleted_or_recreated_is_found_again(
    tmp_path: Path,
) -> None:
    one, other = stored(tmp_path), stored(tmp_path)
    await one.upsert([Record("a", X)])
    await other.delete(filter=EVERYTHING)
    assert await one.query(X) == []
    assert await one.get(["a"]) == []

    await one.upsert([Record("a", X)])
    await other.delete(filter=EVERYTHING)
    await other.upsert([Record("b", X)])
    assert [match.id for match in await one.query(X)] == ["b"]
    await other.delete(filter=EVERYTHING)
    await one.upsert([Record("c", X)])
    assert [match.id for match in await other.query(X)] == ["c"]
    await one.close()
    await other.close()


async def test_foreign_collections_and_records_are_errors(tmp_path: Path) -> None:
    store = stored(tmp_path)
    await store.upsert([Record("a", X)])
    client = await asyncio.to_thread(raw, tmp_path)
    (collection,) = client.list_collections()
    collection.add(ids=["foreign"], embeddings=[X], metadatas=[{"x": 1}])
    with pytest.raises(StoreCorrupt, match="not written"):
        await store.query(X)
    with pytest.raises(StoreCorrupt, match="not written"):
        await store.get(["foreign"])

    await store.delete(filter=EVERYTHING)
    client.create_collection(collection.name, embedding_function=None)
    with pytest.raises(StoreCorrupt, match="prefix"):
        await store.upsert([Record("a", X)])
    await store.close()
    client.close()
