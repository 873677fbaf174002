"""The second copy of vectors in a file: always what the rows hold, and gone when they are."""

import json
import sqlite3
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path
from random import Random

import numpy as np
import pytest

from lib.vector import EVERYTHING, F, InMemoryVectorStore, Record, SQLiteVectorStore

DIMENSION = 48  # 512 rows to a part
ENDINGS = ("_insert", "_update", "_delete")
ROWS = 2_000


@contextmanager
def raw(path: Path) -> Generator[sqlite3.Connection]:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection


def records(names: range, chance: Random) -> list[Record]:
    return [
        Record(str(row), [1.0, *(chance.random() for _ in range(DIMENSION - 1))], "", {"x": row})
        for row in names
    ]


def opened(path: Path) -> SQLiteVectorStore:
    return SQLiteVectorStore(path, dimension=DIMENSION, packed=True)


def parts(path: Path) -> list[tuple[int, int]]:
    """Return the parts of a file, and check that each holds what its rows do."""
    with raw(path) as connection:
        found = connection.execute(
            "SELECT first, last, namespace, ids, vectors FROM lib_vectors_packed ORDER BY first"
        ).fetchall()
        for first, last, namespace, ids, vectors in found:
            rows = connection.execute(
                "SELECT namespace, id, vector FROM lib_vectors WHERE rid BETWEEN ? AND ?"
                " ORDER BY rid",
                (first, last),
            ).fetchall()
            assert {row[0] for row in rows} == {namespace}
            assert [row[1] for row in rows] == json.loads(ids)
            assert b"".join(row[2] for row in rows) == vectors
    return [(first, last) for first, last, *_ in found]


async def seen(path: Path, query: list[float], k: int) -> list[tuple[str, float]]:
    """Return what a store finds that has nothing in memory yet."""
    store = opened(path)
    found = await store.query(query, k)
    await store.close()
    return [(match.id, match.score) for match in found]


async def test_batches_are_packed_and_a_write_takes_out_the_parts_of_its_rows(
    tmp_path: Path,
) -> None:
    path, chance = tmp_path / "v.db", Random(3)
    store = opened(path)
    await store.upsert(records(range(ROWS), chance))
    assert parts(path) == [(1, 512), (513, 1024), (1025, 1536)]
    await store.update_meta({"y": 1}, filter=F("x") < ROWS)
    await store.upsert(records(range(ROWS, ROWS + 5), chance))
    assert len(parts(path)) == 3
    await store.delete(["600", "601"])
    await store.upsert(records(range(10, 11), chance))
    assert parts(path) == [(1025, 1536)]
    await store.upsert(records(range(512), chance), namespace="other")
    assert parts(path) == [(1025, 1536), (ROWS + 6, ROWS + 517)]
    await store.upsert(records(range(700, 1_212), chance))  # ids that have their rows
    assert parts(path) == [(701, 1212), (ROWS + 6, ROWS + 517)]
    await store.close()


async def test_whatever_is_written_by_whomever_a_cold_store_finds_what_the_rows_hold(
    tmp_path: Path,
) -> None:
    path, chance = tmp_path / "v.db", Random(5)
    store, same, packed = opened(path), InMemoryVectorStore(), 0
    for step in range(25):
        begin = chance.randrange(3_000)
        batch = records(range(begin, begin + chance.choice([1, 40, 700, 1_500])), chance)
        doomed = [str(chance.randrange(4_000)) for _ in range(chance.randrange(3))]
        for each in (store, same):
            await each.upsert(batch)
            await each.delete(doomed)
        query = batch[0].vector
        found = await same.query(query, 50)
        assert await seen(path, list(query), 50) == [(match.id, match.score) for match in found]
        if step % 5 == 0:
            packed += len(parts(path))
    assert packed
    await store.close()


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM lib_vectors WHERE id = '7'",
        "UPDATE lib_vectors SET id = 'new' WHERE id = '7'",
        "UPDATE lib_vectors SET namespace = 'other' WHERE id = '7'",
        "UPDATE lib_vectors SET rid = 100000 WHERE id = '7'",
        "UPDATE lib_vectors SET vector = (SELECT vector FROM lib_vectors WHERE id = '8')",
        (
            "INSERT OR REPLACE INTO lib_vectors (namespace, id, meta, text, vector)"
            " SELECT namespace, '7', meta, text, vector FROM lib_vectors WHERE id = '8'"
        ),
        (
            "INSERT OR REPLACE INTO lib_vectors (rid, namespace, id, meta, text, vector)"
            " SELECT 8, namespace, 'new', meta, text, vector FROM lib_vectors WHERE id = '8'"
        ),
        "UPDATE OR REPLACE lib_vectors SET id = '900' WHERE id = '7'",
    ],
)
async def test_what_is_changed_by_hand_is_found_as_it_is(tmp_path: Path, statement: str) -> None:
    path, chance = tmp_path / "v.db", Random(7)
    store = opened(path)
    await store.upsert(records(range(1_100), chance))
    await store.close()
    with raw(path) as other:
        other.execute(statement)
        rows = other.execute("SELECT id, vector FROM lib_vectors WHERE namespace = ''").fetchall()
    same = InMemoryVectorStore()
    await same.upsert([Record(name, np.frombuffer(blob, "<f4").tolist()) for name, blob in rows])
    query = [1.0] * DIMENSION
    found = await same.query(query, 2_000)
    assert await seen(path, query, 2_000) == [(match.id, match.score) for match in found]


async def test_nothing_of_a_deleted_vector_is_left_after_a_purge(tmp_path: Path) -> None:
    path, secret = tmp_path / "v.db", [0.123456789] * DIMENSION
    store = opened(path)
    await store.upsert([*records(range(600), Random(1)), Record("secret-id", secret)])
    await store.upsert([*records(range(600), Random(1)), Record("secret-id", secret)][-512:])
    await store.delete(["secret-id"])
    await store.purge()
    await store.close()
    kept = path.read_bytes()
    assert np.array(secret[:4], "<f4").tobytes() not in kept
    assert b"secret-id" not in kept
    store = opened(path)
    await store.delete(filter=EVERYTHING)
    assert parts(path) == []
    await store.close()


async def test_a_copy_is_written_only_by_stores_that_want_it_and_read_by_all(
    tmp_path: Path,
) -> None:
    path, chance, query = tmp_path / "v.db", Random(9), [1.0] * DIMENSION
    plain = SQLiteVectorStore(path, dimension=DIMENSION)
    await plain.upsert(records(range(600), chance))
    with raw(path) as other:
        named = "SELECT count(*) FROM sqlite_master WHERE name LIKE '%packed%'"
        assert other.execute(named).fetchone() == (0,)

    packing = opened(path)
    await packing.upsert(records(range(600, 1_200), chance))
    assert parts(path) == [(601, 1112)]
    await plain.upsert(records(range(1_200, 1_800), chance))
    assert parts(path) == [(601, 1112)]
    expected = await plain.query(query, ROWS)
    assert await seen(path, query, ROWS) == [(match.id, match.score) for match in expected]

    await plain.delete(["700"])  # a store that writes no copy deletes it all the same
    assert parts(path) == []
    await packing.close()
    await plain.close()
    reader = SQLiteVectorStore(path, dimension=DIMENSION)
    assert len(await reader.query(query, ROWS)) == 1_799
    await reader.close()


async def test_files_without_parts_or_with_damaged_ones_are_read_from_their_rows(
    tmp_path: Path,
) -> None:
    path, query = tmp_path / "v.db", [1.0] * DIMENSION
    store = opened(path)
    await store.upsert(records(range(ROWS), Random(1)))
    await store.close()
    expected = await seen(path, query, ROWS)
    with raw(path) as other:
        other.execute("UPDATE lib_vectors_packed SET ids = '[]' WHERE first = 1")
        other.execute("UPDATE lib_vectors_packed SET vectors = x'00' WHERE first = 513")
    assert await seen(path, query, ROWS) == expected
    with raw(path) as other:  # as older releases made it
        for ending in ENDINGS:
            other.execute(f"DROP TRIGGER lib_vectors_packed{ending}")
        other.execute("DROP TABLE lib_vectors_packed")
    assert await seen(path, query, ROWS) == expected
    assert parts(path) == []
