"""Moments at which memory could show what the file does not hold: each was a wrong answer once."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from lib.errors import StoreError
from lib.vector import Filter, Record, SQLiteVectorStore

VECTOR = [1.0, 7.0]


def record(number: int) -> Record:
    meta = {"a": f"value-a-{number}", "b": f"value-b-{number}", "all": True}
    return Record(f"r{number}", [1.0, float(number)], "word", meta)


def store_of(path: Path, *, cache_bytes: int = 64 << 20) -> SQLiteVectorStore:
    return SQLiteVectorStore(path / "v.db", dimension=2, cache_bytes=cache_bytes)


async def rounds_with(task: asyncio.Task[Any]) -> None:
    for _ in range(20):
        await asyncio.wait([task], timeout=0)


async def test_a_filter_of_columns_larger_than_their_bound_lets_nothing_else_through(
    tmp_path: Path,
) -> None:
    store = store_of(tmp_path, cache_bytes=16 * 60_000)  # room for one column of the two
    await store.upsert([record(number) for number in range(300)], namespace="acme")
    await store.query(VECTOR, 1, namespace="acme")
    await store.delete([f"r{number}" for number in range(260, 300)], namespace="acme")
    await store.upsert([record(number) for number in range(40)], namespace="globex")
    both = Filter.parse({"$and": [{"a": "value-a-7"}, {"b": "value-b-7"}]})
    one = Filter.parse({"a": "value-a-7"})

    assert len(await store.query(VECTOR, 3, filter=one, namespace="acme")) == 1
    found = await store.query_keywords("word", 3, filter=both, namespace="acme")
    assert [match.id for match in found] == ["r7"]
    assert len(await store.query(VECTOR, 3, filter=one, namespace="acme")) == 1
    assert await store.count(filter=both, namespace="acme") == 1
    assert len(await store.query(VECTOR, 3, filter=one, namespace="acme")) == 1
    assert await store.delete(filter=both, namespace="acme") == 1
    await store.close()

    async with store_of(tmp_path) as again:
        assert await again.count(namespace="acme") == 259
        assert await again.count(namespace="globex") == 40


async def test_a_filter_that_all_records_pass_leaves_none_in_memory(tmp_path: Path) -> None:
    async with store_of(tmp_path) as store:
        await store.upsert([record(number) for number in range(20)])
        await store.query(VECTOR, 3)

        assert await store.delete(filter=Filter.parse({"all": True})) == 20
        assert await store.count() == 0
        assert await store.query(VECTOR, 5) == []


async def test_a_deletion_that_fails_hides_no_deletion_of_others(tmp_path: Path) -> None:
    async with store_of(tmp_path) as store, store_of(tmp_path) as other:
        await store.upsert([record(number) for number in range(20)])
        await store.query(VECTOR, 9)
        await other.setup()
        with closing(sqlite3.connect(tmp_path / "v.db")) as connection:
            connection.execute(
                "CREATE TRIGGER refuse BEFORE DELETE ON lib_vectors WHEN old.id = 'r19'"
                " BEGIN SELECT RAISE(ABORT, 'not this one'); END"
            )

        with pytest.raises(StoreError):
            await store.delete(filter=Filter.parse({"all": True}))
        await other.delete([f"r{number}" for number in range(19)])

        assert await store.count() == 1
        assert [match.id for match in await store.query(VECTOR, 5)] == ["r19"]


async def test_a_cancelled_write_that_waits_leaves_the_one_before_it_alone(tmp_path: Path) -> None:
    async with store_of(tmp_path) as store:
        await store.upsert([record(0)])
        await store.query(VECTOR, 1)
        with closing(sqlite3.connect(tmp_path / "v.db", isolation_level=None)) as writer:
            writer.execute("BEGIN IMMEDIATE")
            first = asyncio.create_task(store.upsert([record(1)]))
            await rounds_with(first)
            second = asyncio.create_task(store.upsert([record(2)]))
            await rounds_with(first)
            second.cancel()
            await asyncio.wait([second])
            found = asyncio.create_task(store.query(VECTOR, 5))
            await rounds_with(found)
            assert not found.done()  # it was called after the first write, and waits for it
            writer.execute("COMMIT")

        await first
        assert sorted(match.id for match in await found) == ["r0", "r1"]


async def test_what_a_file_restored_from_a_copy_does_not_hold_is_not_found(tmp_path: Path) -> None:
    async with store_of(tmp_path) as store:
        await store.upsert([record(number) for number in range(5)])
        with (
            closing(sqlite3.connect(tmp_path / "v.db")) as live,
            closing(sqlite3.connect(tmp_path / "copy.db")) as copy,
        ):
            live.backup(copy)
            await store.upsert([record(9)])
            assert len(await store.query(VECTOR, 9)) == 6
            copy.backup(live)

        assert await store.count() == 5
        assert sorted(match.id for match in await store.query(VECTOR, 9)) == [
            f"r{number}" for number in range(5)
        ]
