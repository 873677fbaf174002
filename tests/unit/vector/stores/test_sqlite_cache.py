"""Vectors in memory beside the file: always what the file says, and not too many."""

import sqlite3
import subprocess
import sys
from array import array
from contextlib import closing
from pathlib import Path
from time import process_time

import numpy as np
import pytest

from lib.errors import StoreError
from lib.vector import EVERYTHING, Record, SQLiteVectorStore
from lib.vector.exact.search import row_lengths
from lib.vector.stores.sqlite.cache import CachedNamespace, FoundRows, Namespaces, RowIds
from lib.vector.stores.sqlite.columns import FieldColumns

WRITER = """
import asyncio, sys
from lib.vector import Record, SQLiteVectorStore

async def main(path, name):
    store = SQLiteVectorStore(path, dimension=2)
    for number in range(30):
        batch = [Record(f"{name}{row}", [1.0, number], "apple") for row in range(10)]
        await store.upsert([*batch, Record("shared", [1.0, 0.0], name)])
        await store.delete([f"{name}9"])
        assert len(await store.query_hybrid([1.0, 0.0], "apple", 100)) >= 10
    await store.close()

asyncio.run(main(*sys.argv[1:]))
"""


async def test_processes_that_write_at_once_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "vectors.db"
    names = ["a", "b", "c"]
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(path), name]) for name in names]
    assert [writer.wait() for writer in writers] == [0, 0, 0]

    async def main() -> None:
        store = SQLiteVectorStore(path, dimension=2)
        found = await store.query([1.0, 29.0], 100, include_vectors=True)
        assert sorted(match.id for match in found) == sorted(
            [f"{name}{row}" for name in names for row in range(9)] + ["shared"]
        )
        assert {tuple(match.vector or []) for match in found} == {(1.0, 29.0), (1.0, 0.0)}
        await store.close()

    await main()


async def test_a_reader_follows_what_others_write_and_delete(tmp_path: Path) -> None:
    mine = SQLiteVectorStore(tmp_path / "vectors.db", dimension=2)
    yours = SQLiteVectorStore(tmp_path / "vectors.db", dimension=2)
    await mine.upsert([Record("a", [1.0, 0.0], "apple", {"x": 1})])
    for step in range(20):
        assert [match.id for match in await mine.query([1.0, 0.0], filter={"x": 1})] == ["a"]
        record = Record("a", [1.0, step], f"word{step}", {"x": step % 2})
        await yours.upsert([record])
        assert len(await mine.query([1.0, 0.0], filter={"x": 1})) == step % 2
        (match,) = await mine.query_hybrid([1.0, 0.0], f"word{step}")
        assert (match.text, match.score) == (f"word{step}", pytest.approx(2 / 61))
        await mine.upsert([Record("a", [1.0, 0.0], "apple", {"x": 1})])
    await yours.delete(filter=EVERYTHING)
    assert await mine.query([1.0, 0.0]) == []
    for store in (mine, yours):
        await store.close()


@pytest.mark.parametrize("cache_bytes", [0, 100, 1_000, 1 << 30])
async def test_however_little_is_kept_every_namespace_is_found(cache_bytes: int) -> None:
    store = SQLiteVectorStore(dimension=2, cache_bytes=cache_bytes)
    for round_ in range(4):
        for name in "abc":
            await store.upsert(
                [Record(f"{name}{row}", [1.0, row]) for row in range(10 + round_)],
                namespace=name,
            )
            for other in "cba"[: round_ + 1]:
                found = await store.query([1.0, 0.0], 100, namespace=other)
                assert {match.id[0] for match in found} <= {other}
                assert len(found) == await store.count(namespace=other)
    await store.close()


def test_those_used_last_are_kept_and_no_more_than_allowed() -> None:
    def kept() -> set[str]:
        return {name for name in "abc" if name in namespaces}

    namespaces = Namespaces(2 * 10 * 8)
    for name in "ab":
        namespaces.put(name, cached(10))
    assert namespaces.get("a") is not None
    namespaces.put("c", cached(10))
    assert kept() == {"a", "c"}
    namespaces.put("b", cached(1_000))
    assert kept() == {"b"}  # the one being searched is always held
    namespaces.put("b", cached(0))
    assert kept() == set()


async def test_a_write_that_fails_leaves_the_memory_as_the_file_is(tmp_path: Path) -> None:
    path = tmp_path / "vectors.db"
    store = SQLiteVectorStore(path, dimension=2)
    await store.upsert([Record("a", [1.0, 0.0])])
    before = await store.query([1.0, 0.0])
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        refuse = "BEGIN SELECT RAISE(ABORT, 'refused'); END"
        other.execute(f"CREATE TRIGGER no_b AFTER INSERT ON lib_vectors WHEN new.id = 'b' {refuse}")
    with pytest.raises(StoreError):
        await store.upsert([Record("a", [0.0, 1.0]), Record("b", [1.0, 0.0])])
    assert await store.query([1.0, 0.0]) == before
    await store.close()


def cached(rows: int) -> CachedNamespace:
    namespace, vectors = CachedNamespace("dot", 2, 0), np.ones((rows, 2), np.float32)
    names = [str(row) for row in range(rows)]
    namespace.upsert(names, vectors, row_lengths(vectors), [(row, {}) for row in range(rows)])
    return namespace


async def test_the_masks_of_many_filters_are_not_all_kept() -> None:
    store = SQLiteVectorStore(dimension=1)
    await store.upsert([Record(str(row), [1.0], "", {"x": row}) for row in range(40)])
    for _ in range(2):
        for row in range(40):
            (match,) = await store.query([1.0], 40, filter={"x": row})
            assert match.id == str(row)
    await store.close()


def test_letting_go_of_what_was_found_first_takes_no_longer_the_more_there_is() -> None:
    def took(first: int, last: int) -> float:
        began = process_time()
        for row in range(first, last):
            found.put(contents, row, ("text", "{}"))
        return process_time() - began

    found, contents = FoundRows(1 << 25), RowIds(array("q"), array("q"), FieldColumns(0))
    filling = took(0, 60_000)
    took(60_000, 120_000)
    assert found.get(contents, 0) is None
    assert took(120_000, 180_000) < 10 * filling
