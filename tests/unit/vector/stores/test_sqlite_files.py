"""Tests the files that a SQLite vector store meets, and disks that refuse."""

import asyncio
import os
import resource
import sqlite3
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from lib.errors import (
    DimensionMismatch,
    MetricMismatch,
    SchemaTooNew,
    StoreCorrupt,
    StoreError,
    StoreReadOnly,
)
from lib.testing.aio import run
from lib.vector import Record, SQLiteVectorStore
from lib.vector.stores.sqlite import schema

from .sqlite_kit import RECORDS, cannot_open, made


def alter(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


@contextmanager
def files_up_to(size: int) -> Generator[None]:
    """Let no file of this process grow beyond a size: as a full disk does, writes fail."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_what_was_stored_is_there_when_the_file_is_opened_again(tmp_path: Path) -> None:
    path = made(tmp_path / "vectors.db")

    async def main() -> None:
        store = SQLiteVectorStore(path, dimension=2)
        assert await store.get([record.id for record in RECORDS]) == RECORDS
        (found,) = await store.query_hybrid([1.0, 0.0], "word7", 1)
        assert (found.id, found.text) == ("7", "word7 apple")
        await store.close()

    run(main())


def test_what_another_process_makes_at_the_same_moment_is_not_made_again() -> None:
    table = schema.Table(path=":memory:", name="t", dimension=1, metric="dot")
    looks = [False, True]
    ensure = schema._ensure  # pyright: ignore[reportPrivateUsage] - the moment cannot be met

    def look(*_: object) -> bool:
        return looks.pop(0)

    def make(*_: object) -> None:
        raise AssertionError

    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        ensure(connection, table, look, make, write=True)

    assert looks == []


def test_another_dimension_or_metric_is_refused_with_both(tmp_path: Path) -> None:
    path = made(tmp_path / "vectors.db")

    wider = cannot_open(SQLiteVectorStore(path, dimension=3), DimensionMismatch)
    assert isinstance(wider, DimensionMismatch)
    assert (wider.expected, wider.got) == (2, 3)
    other = cannot_open(SQLiteVectorStore(path, dimension=2, metric="dot"), MetricMismatch)
    assert isinstance(other, MetricMismatch)
    assert (other.expected, other.got) == ("cosine", "dot")


def test_a_newer_layout_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = made(tmp_path / "vectors.db")
    alter(path, "UPDATE lib_vectors_layout SET value = 2 WHERE key = 'layout'")
    before = path.read_bytes()

    error = cannot_open(SQLiteVectorStore(path, dimension=2), SchemaTooNew)

    assert isinstance(error, SchemaTooNew)
    assert (error.found, error.supported) == (2, 1)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "statements",
    [
        ["CREATE TABLE lib_vectors (a)"],
        ["CREATE TABLE lib_vectors_layout (a)"],
        ["CREATE TABLE lib_vectors (a)", "CREATE TABLE lib_vectors_layout (a)"],
        ["CREATE TABLE lib_vectors (a)", "CREATE TABLE lib_vectors_layout (key, value)"],
    ],
)
def test_a_table_that_is_not_ours_is_left_alone(tmp_path: Path, statements: list[str]) -> None:
    path = tmp_path / "vectors.db"
    alter(path, *statements)

    cannot_open(SQLiteVectorStore(path, dimension=2), StoreCorrupt)


@pytest.mark.parametrize("size", [2, 99, 100, 4096, 20_000, 40_000])
def test_a_truncated_file_is_corrupt_and_not_touched(tmp_path: Path, size: int) -> None:
    path = made(tmp_path / "vectors.db")
    os.truncate(path, size)

    cannot_open(SQLiteVectorStore(path, dimension=2), StoreCorrupt)

    assert path.stat().st_size == size


def test_a_file_that_is_no_database_is_corrupt_and_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "vectors.db"
    path.write_bytes(b"Dear diary, " * 1000)

    cannot_open(SQLiteVectorStore(path, dimension=2), StoreCorrupt)

    assert path.read_bytes() == b"Dear diary, " * 1000


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE lib_vectors SET vector = x'00' WHERE id = '7'",
        "UPDATE lib_vectors SET meta = '{' WHERE id = '7'",
        "UPDATE lib_vectors SET meta = '{\"x\": NaN}' WHERE id = '7'",
    ],
)
def test_a_damaged_row_is_an_error_when_it_is_read(tmp_path: Path, damage: str) -> None:
    path = made(tmp_path / "vectors.db")
    alter(path, damage)

    async def main() -> None:
        store = SQLiteVectorStore(path, dimension=2)
        with pytest.raises(StoreCorrupt):
            await store.query([1.0, 0.0], filter={"x": 1})
        with pytest.raises(StoreCorrupt):
            await store.query([1.0, 7.0], 300)
        with pytest.raises(StoreCorrupt):
            await store.get(["7"])
        await store.delete(["7"])
        assert len(await store.query([1.0, 0.0], 300)) == 299
        await store.close()

    run(main())


def test_a_full_disk_fails_writes_and_loses_nothing(tmp_path: Path) -> None:
    path = made(tmp_path / "vectors.db")

    async def main() -> None:
        store = SQLiteVectorStore(path, dimension=2)
        large = [Record("large", [1.0, 0.0], "x" * 1_000_000), Record("7", [0.0, 1.0])]
        await store.setup()
        with files_up_to(200_000):
            with pytest.raises(StoreError) as caught:
                await store.upsert(large)
            assert type(caught.value) is StoreError
            assert await store.get([record.id for record in RECORDS]) == RECORDS
            assert len(await store.query([1.0, 0.0], 1000)) == 300
        await store.upsert(large)
        assert await store.count() == 301
        await store.close()

    run(main())


class Impatient(SQLiteVectorStore):
    _busy_s = 0.05


def test_a_lock_that_is_never_given_up_fails_writes_and_loses_nothing(tmp_path: Path) -> None:
    path = made(tmp_path / "vectors.db")

    async def main() -> None:
        store = Impatient(path, dimension=2)
        await store.setup()
        other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        await asyncio.to_thread(other.execute, "BEGIN IMMEDIATE")
        with pytest.raises(StoreError) as caught:
            await store.upsert([Record("7", [0.0, 1.0])])
        assert type(caught.value) is StoreError
        assert len(await store.query([1.0, 0.0], 1000)) == 300
        await asyncio.to_thread(other.execute, "ROLLBACK")
        other.close()
        await store.upsert([Record("new", [0.0, 1.0])])
        assert await store.count() == 301
        await store.close()

    run(main())


async def test_tables_of_one_file_do_not_know_each_other(tmp_path: Path) -> None:
    path = tmp_path / "vectors.db"
    one = SQLiteVectorStore(path, dimension=2)
    two = SQLiteVectorStore(path, dimension=3, metric="dot", table="order")
    await one.upsert([Record("a", [1.0, 0.0], "apple")])
    await two.upsert([Record("b", [1.0, 0.0, 0.0], "pear")])
    assert [match.id for match in await one.query_hybrid([1.0, 0.0], "pear apple")] == ["a"]
    assert [match.id for match in await two.query_hybrid([1, 0, 0], "pear apple")] == ["b"]
    for store in (one, two):
        await store.close()


@pytest.mark.parametrize("table", ["", "1a", "a b", 'a"; DROP TABLE x; --', "sqlite_x", "a" * 65])
def test_a_table_is_an_identifier(table: str) -> None:
    with pytest.raises(ValueError, match="table is"):
        SQLiteVectorStore(dimension=2, table=table)


def test_impossible_stores_are_refused_when_they_are_made() -> None:
    with pytest.raises(ValueError, match="dimension"):
        SQLiteVectorStore(dimension=0)
    with pytest.raises(ValueError, match="metric"):
        SQLiteVectorStore(dimension=2, metric="manhattan")  # type: ignore[arg-type] - on purpose


@pytest.mark.parametrize("name", ["ü 日本", "a?b=c", "100%", "#x"])
def test_any_path_will_do(tmp_path: Path, name: str) -> None:
    path = made(tmp_path / name)

    assert path.exists()
    assert [file.name for file in tmp_path.iterdir()] == [name]


async def test_a_store_that_was_never_used_can_be_closed(tmp_path: Path) -> None:
    await SQLiteVectorStore(tmp_path / "vectors.db", dimension=2).close()

    assert list(tmp_path.iterdir()) == []


async def test_a_file_in_a_folder_that_is_not_there_is_refused_with_the_way_out(
    tmp_path: Path,
) -> None:
    store = SQLiteVectorStore(tmp_path / "no" / "vectors.db", dimension=2)

    with pytest.raises(StoreReadOnly, match=r"\(is its folder there, and writable\?\)"):
        await store.setup()


async def test_a_facet_reads_metadata_and_no_vector(tmp_path: Path) -> None:
    path, most = tmp_path / "vectors.db", 2_500
    async with SQLiteVectorStore(path, dimension=2) as store:
        await store.upsert([Record(f"{n}", [1.0, n], "", {"n": n % 5}) for n in range(most)])
    alter(path, "UPDATE lib_vectors SET vector = x'00'")

    async with SQLiteVectorStore(path, dimension=2) as store:
        assert (await store.facet("n")).values == [(n, most // 5) for n in range(5)]
        assert (await store.facet("n", filter={"n": {"$gt": 3}})).values == [(4, most // 5)]
        with pytest.raises(StoreCorrupt):
            await store.scan()
