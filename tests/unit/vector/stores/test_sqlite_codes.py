"""Codes in a file: those of the rows, gone when they are, learned where there are none."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from random import Random

import numpy as np
import pytest

from lib.testing.aio import run
from lib.vector import F, InMemoryVectorStore, Record

from .sqlite_codes_kit import ColdStore, parts, raw
from .test_sqlite_scratch import files_up_to

AsUser = Callable[[], AbstractContextManager[None]]

DIMENSION = 48  # 256 rows to a part
ROWS = 1_000


def records(names: range, chance: Random, offset: float = 0.0) -> list[Record]:
    return [
        Record(
            str(row),
            [1.0 + offset, *(offset + chance.random() for _ in range(DIMENSION - 1))],
            "",
            {"x": row},
        )
        for row in names
    ]


def opened(path: Path) -> ColdStore:
    return ColdStore(path, dimension=DIMENSION)


async def seen(path: Path, query: list[float], k: int) -> list[tuple[str, float]]:
    """Return what a store finds that has nothing in memory yet."""
    async with opened(path) as store:
        return [(match.id, match.score) for match in await store.query(query, k)]


def without_codes(path: Path) -> None:
    with raw(path) as connection:
        connection.execute("DELETE FROM lib_vectors_codes")


async def test_batches_have_codes_and_a_write_takes_out_the_parts_of_its_rows(
    tmp_path: Path,
) -> None:
    path, chance = tmp_path / "v.db", Random(3)
    store = opened(path)
    await store.upsert(records(range(ROWS), chance))
    every = [range(1, 251), range(251, 501), range(501, 751), range(751, 1_001)]
    assert parts(path) == every
    await store.update_meta({"y": 1}, filter=F("x") < ROWS)
    await store.upsert(records(range(ROWS, ROWS + 63), chance))
    assert parts(path) == every
    await store.delete(["600", "601"])
    await store.upsert(records(range(10, 11), chance))
    assert parts(path) == [every[1], every[3]]
    await store.upsert(records(range(64), chance), namespace="other")
    assert parts(path) == [every[1], every[3], range(1_064, 1_128)]
    await store.upsert(records(range(700, 956), chance))  # ids that have their rows
    assert parts(path) == [every[1], range(701, 957), range(1_064, 1_128)]
    await store.close()


async def test_whatever_is_written_by_whomever_a_cold_store_finds_what_the_rows_hold(
    tmp_path: Path,
) -> None:
    path, chance = tmp_path / "v.db", Random(5)
    store, same, coded = opened(path), InMemoryVectorStore(), 0
    for step in range(25):
        begin = chance.randrange(3_000)
        size, offset = chance.choice([1, 40, 700, 1_500]), chance.choice([0.0, 0.0, 100.0])
        batch = records(range(begin, begin + size), chance, offset)
        doomed = [str(chance.randrange(4_000)) for _ in range(chance.randrange(3))]
        for each in (store, same):
            await each.upsert(batch)
            await each.delete(doomed)
        query = batch[0].vector
        found = await same.query(query, 50)
        assert await seen(path, list(query), 50) == [(match.id, match.score) for match in found]
        if step % 5 == 0:
            coded += len(parts(path))
    assert coded
    await store.close()


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM lib_vectors WHERE id = '7'",
        "UPDATE lib_vectors SET id = 'new' WHERE id = '7'",
        "UPDATE lib_vectors SET namespace = 'other' WHERE id = '7'",
        "UPDATE lib_vectors SET namespace = '', rid = 300 WHERE namespace = 'other'",
        "UPDATE lib_vectors SET rid = 100000 WHERE id = '7'",
        "UPDATE lib_vectors SET vector = (SELECT vector FROM lib_vectors WHERE id = '8')",
        "UPDATE lib_vectors SET vector = zeroblob(192) WHERE id = '7'",
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
    store = ColdStore(path, dimension=DIMENSION, metric="dot")
    await store.upsert(records(range(299), chance))
    await store.upsert(records(range(9_999, 10_000), chance), namespace="other")
    await store.upsert(records(range(299, 1_100), chance))
    with raw(path) as other:
        other.execute("UPDATE lib_vectors SET rid = 5000 WHERE namespace = 'other'")
    await store.close()
    with raw(path) as other:
        other.execute(statement)
        rows = other.execute("SELECT id, vector FROM lib_vectors WHERE namespace = ''").fetchall()
    same = InMemoryVectorStore(metric="dot")
    await same.upsert([Record(name, np.frombuffer(blob, "<f4").tolist()) for name, blob in rows])
    query = [1.0] * DIMENSION
    async with ColdStore(path, dimension=DIMENSION, metric="dot") as cold:
        for k in (10, 2_000):
            found = [(match.id, match.score) for match in await cold.query(query, k)]
            assert found == [(match.id, match.score) for match in await same.query(query, k)]


async def test_nothing_of_a_deleted_vector_is_left_after_a_purge(tmp_path: Path) -> None:
    path, secret = tmp_path / "v.db", [0.5 + 0.01 * number for number in range(DIMENSION)]
    store = opened(path)
    await store.upsert([*records(range(255), Random(1)), Record("secret-id", secret)])
    with raw(path) as other:
        ((size, codes),) = other.execute("SELECT size, codes FROM lib_vectors_codes").fetchall()
    code = codes[16 * size + 255 * DIMENSION :]
    assert len(set(code)) > 10
    assert code in path.with_name("v.db-wal").read_bytes()
    await store.delete(["secret-id"])
    assert parts(path) == []
    await store.purge()
    await store.close()
    kept = path.read_bytes()
    assert np.array(secret[:4], "<f4").tobytes() not in kept
    assert code not in kept


async def test_searches_of_rows_without_codes_are_followed_by_codes(tmp_path: Path) -> None:
    path, query = tmp_path / "v.db", [1.0] * DIMENSION
    async with opened(path) as store:
        for row in range(0, 600, 50):  # each too few for codes
            await store.upsert(records(range(row, row + 50), Random(row)))
        same = InMemoryVectorStore()
        await same.upsert(await store.scan(limit=10_000))
        expected = await same.query(query, 20)
        assert parts(path) == []
        for _ in range(2):
            assert await store.query(query, 20) == expected
        await store.rest()
        assert parts(path) == [range(1, 201), range(201, 401), range(401, 601)]
        assert await store.query(query, 20) == expected
    async with opened(path) as another:
        assert await another.query(query, 20) == expected


async def test_a_part_that_a_write_took_out_is_learned_again(tmp_path: Path) -> None:
    path, query = tmp_path / "v.db", [1.0] * DIMENSION
    async with opened(path) as store:
        await store.upsert(records(range(ROWS), Random(1)))
        await store.upsert(records(range(300, 301), Random(2)))
        assert len(parts(path)) == 3
        for _ in range(2):
            await store.query(query, 5)
        await store.rest()
        assert len(parts(path)) == 4


async def test_rows_of_namespaces_that_were_written_in_turns_are_learned(tmp_path: Path) -> None:
    path, query = tmp_path / "v.db", [1.0] * DIMENSION
    async with opened(path) as store:
        for row in range(80):
            for namespace in ("a", "b", "c"):
                await store.upsert(records(range(row, row + 1), Random(row)), namespace=namespace)
        for _ in range(2):
            await store.query(query, 5, namespace="b")
        await store.rest()
        assert parts(path) == [range(2, 240)]
        await store.upsert(records(range(90, 91), Random(3)), namespace="a")
        await store.delete(["7"], namespace="c")
        assert parts(path) == [range(2, 240)]
        await store.delete(["7"], namespace="b")
        assert parts(path) == []


async def test_enough_searches_are_followed_by_reading_the_namespace(tmp_path: Path) -> None:
    path, query = tmp_path / "v.db", [1.0] * DIMENSION
    async with opened(path) as store:
        await store.upsert(records(range(ROWS), Random(1)))
        expected = await store.query(query, 20)
        for _ in range(22):
            assert not vars(store)["_database"].has("")
            assert await store.query(query, 20) == expected
        assert await store.query(query, 20) == expected
        await store.rest()
        assert vars(store)["_database"].has("")
        assert await store.query(query, 20) == expected


async def test_learning_waits_for_no_other_writer(tmp_path: Path) -> None:
    path, query = tmp_path / "v.db", [1.0] * DIMENSION
    async with opened(path) as store:
        await store.upsert(records(range(ROWS), Random(1)))
        without_codes(path)
        with raw(path) as other:
            other.execute("BEGIN IMMEDIATE")
            for _ in range(2):
                await store.query(query, 5)
            await store.rest()
            assert parts(path) == []
            upsert = asyncio.create_task(store.upsert(records(range(2), Random(1))))
            await asyncio.wait([upsert], timeout=0)
            other.execute("COMMIT")
        await upsert  # calls wait as before


async def test_a_disk_without_room_for_codes_leaves_the_searches_as_they_are(
    tmp_path: Path,
) -> None:
    path, query = tmp_path / "v.db", [1.0] * DIMENSION
    async with opened(path) as store:
        await store.upsert(records(range(ROWS), Random(1)))
        expected = await store.query(query, 5)
        without_codes(path)
        with files_up_to(path.with_name("v.db-wal").stat().st_size):
            for _ in range(4):
                assert await store.query(query, 5) == expected
                await store.rest()
        assert parts(path) == []


def test_a_file_that_cannot_be_written_is_searched_without_codes(
    open_place: Path, unprivileged: AsUser
) -> None:
    path, query = open_place / "v.db", [1.0] * DIMENSION

    async def fill() -> None:
        async with opened(path) as store:
            await store.upsert(records(range(ROWS), Random(1)))

    async def ask() -> None:
        async with opened(path) as store:
            expected = await store.query(query, 5)
            for _ in range(4):
                assert await store.query(query, 5) == expected
                await store.rest()
            assert vars(store)["_database"].has("")

    run(fill())
    without_codes(path)
    path.chmod(0o444)
    open_place.chmod(0o555)
    with unprivileged():
        run(ask())
    open_place.chmod(0o777)
    assert parts(path) == []


async def test_files_of_older_releases_and_damaged_codes_are_read_from_their_rows(
    tmp_path: Path,
) -> None:
    path, query = tmp_path / "v.db", [1.0] * DIMENSION
    async with opened(path) as store:
        await store.upsert(records(range(ROWS), Random(1)))
    expected = await seen(path, query, ROWS)
    with raw(path) as other:
        other.execute("UPDATE lib_vectors_codes SET codes = x'00' WHERE first = 1")
        other.execute("UPDATE lib_vectors_codes SET centre = x'00' WHERE first = 251")
        other.execute("UPDATE lib_vectors_codes SET size = 7 WHERE first = 501")
        other.execute("UPDATE lib_vectors_codes SET last = 990 WHERE first = 751")
    assert await seen(path, query, ROWS) == expected
    with raw(path) as other:  # as older releases made it
        for ending in ("insert", "update", "delete"):
            other.execute(f"DROP TRIGGER lib_vectors_codes_{ending}")
        other.execute("DROP TABLE lib_vectors_codes")
    assert await seen(path, query, ROWS) == expected
    assert parts(path) == []
