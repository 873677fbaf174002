"""Tests what a LanceDB store finds: exact scores, filters, ids of any text, metadata as it was."""

import json
from pathlib import Path

import numpy as np

from lib.vector import EVERYTHING, F, InMemoryVectorStore, Record

from .lancedb_kit import Driver, driver_table, points, store_at


async def test_the_first_batch_is_only_where_the_filter_begins(tmp_path: Path) -> None:
    store = store_at(tmp_path, initial_batch=1)
    near = [Record(f"near {row}", [1.0, row / 1e4], "", {"x": 1}) for row in range(400)]
    far = [Record(f"far {row}", [-1.0, 1.0], "", {"x": 2}) for row in range(9)]
    await store.upsert(near + far)

    for k in (1, 5, 9, 20):
        found = await store.query([1.0, 0.0], k, filter={"x": 2})
        assert [match.id for match in found] == [f"far {row}" for row in range(9)][:k]
    assert await store.query([1.0, 0.0], filter={"x": 3}) == []
    assert len(await store.query([1.0, 0.0], 2**70, filter={"x": 1})) == 400
    await store.close()


async def test_scores_are_those_of_the_memory_store_to_the_last_bit(tmp_path: Path) -> None:
    noise = np.random.default_rng(3)
    vectors = noise.standard_normal((300, 24)).astype(np.float32) * np.float32(1e-5)
    records = [Record(str(row), vector) for row, vector in enumerate(vectors)]
    for metric in ("cosine", "dot", "euclidean"):
        memory = InMemoryVectorStore(24, metric)
        store = store_at(tmp_path / metric, dimension=24, metric=metric)
        await memory.upsert(records)
        await store.upsert(records)
        for query in noise.standard_normal((5, 24)):
            assert await store.query(query, 7) == await memory.query(query, 7)
        await store.close()


async def test_an_index_built_by_others_is_not_used(tmp_path: Path) -> None:
    noise = np.random.default_rng(4).standard_normal((1200, 8)).astype(np.float32)
    records = [Record(str(row), vector) for row, vector in enumerate(noise)]
    memory, store = InMemoryVectorStore(8), store_at(tmp_path, dimension=8)
    await memory.upsert(records)
    await store.upsert(records)
    index = Driver.index.IvfPq(num_partitions=8, num_sub_vectors=2, distance_type="cosine")
    await (await driver_table(tmp_path)).create_index("vector", config=index)

    for query in noise[:5]:
        assert await store.query(query, 20) == await memory.query(query, 20)
    await store.close()


async def test_many_ids_are_found_and_deleted_whatever_is_in_them(tmp_path: Path) -> None:
    store = store_at(tmp_path)
    odd = ["'", "''", "' OR ''='", "\\'", "%", "a' --", '"', "\n", "{}", "$1", "?"]
    names = odd + [str(row) for row in range(5000)]
    await store.upsert([Record(name, [1.0, 0.0], "", {"x": name}) for name in names])
    await store.upsert(points(*odd), namespace="' OR 1=1 --")

    assert [record.id for record in await store.get(names)] == names
    assert await store.count(namespace="' OR 1=1 --") == len(odd)
    await store.delete(names[5:], filter=F("x") != "?")
    assert {record.id for record in await store.get(names)} == {*odd[:5], "?"}
    await store.delete(filter=EVERYTHING, namespace="' OR 1=1 --")
    assert await store.namespaces() == [""]
    await store.close()


async def test_what_asks_for_nothing_gets_nothing(tmp_path: Path) -> None:
    store = store_at(tmp_path)
    await store.upsert([])
    assert await store.query([1.0, 0.0]) == []
    assert await store.query([1.0, 0.0], filter={"x": 1}) == []
    assert await store.query([1.0, 0.0], filter={"x": {"$in": []}}) == []
    assert await store.get([]) == []
    await store.delete([], filter={"x": 1})
    await store.delete(filter={"x": 1})
    assert len(await (await driver_table(tmp_path)).list_versions()) == 1  # nothing was written
    await store.close()


async def test_metadata_is_kept_as_json_text(tmp_path: Path) -> None:
    meta = {"a": [1, 1.0, -0.0, 2**63 - 1, None], "ü": {"b": "日本"}}
    store = store_at(tmp_path)
    await store.upsert([Record("a", [1.0, 0.0], "", meta)])
    stored = await (await driver_table(tmp_path)).query().select(["meta"]).to_arrow()

    (text,) = stored.column("meta").to_pylist()
    assert repr(json.loads(text)) == repr(meta)
    assert [repr(record.meta) for record in await store.get(["a"])] == [repr(meta)]
    await store.close()
