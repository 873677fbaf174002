"""The first queries of a process on a large namespace, which search the file without keeping it."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from lib.vector import InMemoryVectorStore, Match, Metric, Record, SQLiteVectorStore

from .sqlite_at_once_kit import CountingStore
from .sqlite_codes_kit import ColdStore
from .test_sqlite_at_once_processes import another

DIMENSION = 48  # 256 rows to a part
ROWS = 6_500


class FirstQueries(CountingStore, ColdStore):
    """Counts its visits to the file, and takes any namespace for large."""


def vectors(seed: int, rows: int = ROWS) -> list[list[float]]:
    noise = np.random.default_rng(seed)
    found = noise.integers(-3, 4, (rows, DIMENSION)).astype(np.float32)
    found[:, 0] = 1.0
    return found.tolist()


def records(seed: int) -> list[Record]:
    """Return records of which some are alike, in an order that their ids do not follow."""
    numbers = Random(seed).sample(range(ROWS), ROWS)
    some = vectors(seed)
    some[100:140] = [some[7]] * 40
    return [
        Record(f"{number:05}", vector, f"text {number}", {"number": number})
        for number, vector in zip(numbers, some, strict=True)
    ]


async def in_memory(metric: Metric, rows: list[Record]) -> InMemoryVectorStore:
    store = InMemoryVectorStore(metric=metric)
    await store.upsert(rows)
    return store


def pairs(matches: list[Match]) -> list[tuple[str, float]]:
    return [(match.id, match.score) for match in matches]


@pytest.mark.parametrize("metric", ["cosine", "dot", "euclidean"])
@pytest.mark.parametrize("coded", [False, True])
async def test_every_query_answers_like_memory_while_what_it_reads_is_learned(
    tmp_path: Path, metric: Metric, *, coded: bool
) -> None:
    path, rows = tmp_path / "vectors.db", records(1)
    memory = await in_memory(metric, rows)
    async with SQLiteVectorStore(path, dimension=DIMENSION, metric=metric) as store:
        for start in range(0, ROWS, 1_700):
            await store.upsert(rows[start : start + 1_700])
        await store.delete([rows[300].id, rows[4_000].id])  # takes parts out
        await store.upsert([rows[9]], namespace="other")
    await memory.delete([rows[300].id, rows[4_000].id])
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        if not coded:
            other.execute("DELETE FROM lib_vectors_codes")
    async with FirstQueries(path, dimension=DIMENSION, metric=metric) as store:
        found_in_memory = list[bool]()
        for query, k in zip([rows[7].vector, *vectors(2, 30)], [60, 1, 500] * 11, strict=False):
            found = await store.query(query, k, include_vectors=True)
            assert found == await memory.query(query, k, include_vectors=True)
            await store.rest()
            found_in_memory.append(vars(store)["_database"].has(""))

    assert found_in_memory == sorted(found_in_memory)  # once it is there, it stays
    assert 5 < sum(found_in_memory) < 25


async def test_all_records_and_none(tmp_path: Path) -> None:
    path, rows = tmp_path / "vectors.db", records(3)
    memory = await in_memory("dot", rows)
    async with FirstQueries(path, dimension=DIMENSION, metric="dot") as store:
        await store.upsert(rows)
        assert await store.query(rows[0].vector, 10, namespace="none") == []
        found = await store.query(rows[0].vector, 9_000)
        assert found == await memory.query(rows[0].vector, 9_000)


ONES = np.ones(DIMENSION, "<f4").tobytes().hex()
UPDATE = f"UPDATE lib_vectors SET id = 'a', vector = x'{ONES}', text = '', meta = '{{}}' "
WRITES: dict[str, list[Record]] = {
    UPDATE + "WHERE rid = 51": [Record("a", [1.0] * DIMENSION)],
    "DELETE FROM lib_vectors WHERE rid = 51": [],
}


@pytest.mark.parametrize("write", [*WRITES, "VACUUM"])
async def test_a_write_in_the_middle_of_a_search_is_seen(tmp_path: Path, write: str) -> None:
    path, rows = tmp_path / "vectors.db", records(4)
    query = rows[50].vector
    async with FirstQueries(path, dimension=DIMENSION) as store:
        await store.upsert(rows)
        visits = store.visits

        def write_once() -> None:
            if store.visits == visits + 2:  # the nearest row was looked at
                with closing(sqlite3.connect(path, isolation_level=None)) as other:
                    other.execute(write)

        store.before = write_once
        found = await store.query(query, 40)

    left = [*rows[:50], *WRITES.get(write, rows[50:51]), *rows[51:]]
    assert found == await (await in_memory("cosine", left)).query(query, 40)


async def test_a_purge_between_the_first_queries_changes_no_answer(tmp_path: Path) -> None:
    path, rows = tmp_path / "vectors.db", records(5)
    async with SQLiteVectorStore(path, dimension=DIMENSION) as store:
        await store.upsert(rows)
    async with FirstQueries(path, dimension=DIMENSION) as store:
        await store.query(rows[0].vector, 1)
        await store.upsert(rows[:3])
        await store.purge()
        memory = await in_memory("cosine", rows)
        for row in rows[:3]:
            assert await store.query(row.vector, 5) == await memory.query(row.vector, 5)


async def test_queries_that_come_at_once_read_the_namespace(tmp_path: Path) -> None:
    path, rows = tmp_path / "vectors.db", records(6)
    memory = await in_memory("cosine", rows)
    async with FirstQueries(path, dimension=DIMENSION) as store:
        await store.upsert(rows)
        queries = vectors(7, 12)
        found = await asyncio.gather(*(store.query(query, 5) for query in queries))
        expected = [await memory.query(query, 5) for query in queries]
        before = store.visits
        await store.query(rows[0].vector, 5)

    assert found == expected
    assert store.visits - before <= 1  # of records that were not found before


async def test_a_search_that_is_cancelled_hinders_no_other(tmp_path: Path) -> None:
    store = FirstQueries(tmp_path / "vectors.db", dimension=DIMENSION)
    await store.upsert(records(8))
    query = asyncio.create_task(store.query([1.0] * DIMENSION, 5))
    await asyncio.wait([query], timeout=0)
    query.cancel()
    with pytest.raises(asyncio.CancelledError):
        await query
    assert len(await store.query([1.0] * DIMENSION, 5)) == 5
    await store.close()


async def test_new_stores_answer_like_memory_while_another_process_writes(tmp_path: Path) -> None:
    path, chance, rows = tmp_path / "vectors.db", Random(9), [(1.0, float(n)) for n in range(4_500)]
    first = [Record(f"{n:04}", list(vector)) for n, vector in enumerate(rows)]
    memory = InMemoryVectorStore()
    await memory.upsert(first)
    async with SQLiteVectorStore(path, dimension=2) as store:
        await store.upsert(first)
    async with another(path) as other:
        for _ in range(12):
            ids = [f"{chance.randrange(4_600):04}" for _ in range(3)]
            commands: list[Any] = [
                ["upsert", *([name, [1.0, chance.uniform(0, 50)], ""] for name in ids)],
                ["delete", *ids],
            ]
            command = chance.choice(commands)
            query = [1.0, chance.uniform(0, 50)]
            before = pairs(await memory.query(query, 20))
            async with FirstQueries(path, dimension=2) as store:
                writing = asyncio.create_task(other.does(*command))
                meanwhile = pairs(await store.query(query, 20))
                await writing
                if command[0] == "upsert":
                    await memory.upsert([Record(*one) for one in command[1:]])
                else:
                    await memory.delete(command[1:])
                after = pairs(await memory.query(query, 20))
                assert meanwhile in (before, after)
                for _ in range(3):
                    assert pairs(await store.query(query, 20)) == after
