"""Readers follow the writes of others at the price of what is written, and learn nothing anew."""

import sqlite3
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path
from random import Random

import pytest

from lib.errors import StoreCorrupt
from lib.vector import EVERYTHING, F, InMemoryVectorStore, Record, SQLiteVectorStore

from .sqlite_at_once_kit import RECORDS, CountingStore

CODES = ("_insert", "_update", "_delete")
LOG = ("_insert", "_update", "_rename", "_delete")


@contextmanager
def raw(path: Path) -> Generator[sqlite3.Connection]:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection


def as_of_an_older_release(path: Path) -> None:
    """Take out of a file what older releases did not make."""
    with raw(path) as connection:
        for ending in LOG:
            connection.execute(f"DROP TRIGGER lib_vectors_changes{ending}")
        connection.execute("DROP TABLE lib_vectors_changes")
        for ending in CODES:
            connection.execute(f"DROP TRIGGER lib_vectors_codes{ending}")
        connection.execute("DROP TABLE lib_vectors_codes")


def logged(path: Path) -> list[tuple[str, str]]:
    with raw(path) as connection:
        return connection.execute(
            "SELECT namespace, id FROM lib_vectors_changes ORDER BY number"
        ).fetchall()


async def test_a_reader_follows_any_writes_of_others_without_reading_all_again(
    tmp_path: Path,
) -> None:
    path, chance = tmp_path / "v.db", Random(3)
    reader, writer = CountingStore(path, dimension=2), SQLiteVectorStore(path, dimension=2)
    same = InMemoryVectorStore()
    batch = [
        Record(str(row), [1.0, chance.random()], f"t{row}", {"x": row % 7}) for row in range(500)
    ]
    for each in (reader, same):
        await each.upsert(batch)
    filter = F("x") < 4
    for step in range(120):
        names = [str(chance.randrange(700)) for _ in range(chance.randrange(1, 40))]
        batch = [
            Record(name, [1.0, chance.random()], f"{step}", {"x": chance.randrange(8)})
            for name in names
        ]
        stores = [chance.choice([writer, writer, reader]), same]
        for each in stores:
            if step % 3:
                await each.upsert(batch)
            elif step % 10 == 9:
                await each.delete(filter=F("x") == 3)
            else:
                await each.delete(names)
        await writer.upsert(batch, namespace="elsewhere")
        for wanted in (None, filter):
            found = await reader.query([1.0, 0.5], 20, filter=wanted, include_vectors=True)
            assert found == await same.query([1.0, 0.5], 20, filter=wanted, include_vectors=True)
            assert await reader.count(filter=wanted) == await same.count(filter=wanted)
        worded = await reader.query_hybrid([1.0, 0.5], f"{step}", 5, filter=filter)
        assert worded == await same.query_hybrid([1.0, 0.5], f"{step}", 5, filter=filter)
    for store in (reader, writer):
        await store.close()


async def test_a_row_that_is_named_anew_or_changed_by_hand_is_followed(tmp_path: Path) -> None:
    path = tmp_path / "v.db"
    store = SQLiteVectorStore(path, dimension=2)
    await store.upsert(RECORDS)
    await store.query([1.0, 0.0], 1, filter={"x": 1})
    for statement, expected in (
        ("UPDATE lib_vectors SET id = 'b' WHERE id = '0'", "b"),
        ("UPDATE lib_vectors SET namespace = 'other' WHERE id = 'b'", "1"),
        ("UPDATE lib_vectors SET namespace = '' WHERE id = 'b'", "b"),
        ("UPDATE lib_vectors SET rid = 1000 WHERE id = 'b'", "b"),
        ("DELETE FROM lib_vectors WHERE id = 'b'", "1"),
    ):
        with raw(path) as other:
            other.execute(statement)
        assert [match.id for match in await store.query([1.0, 0.0], 1)] == [expected]
    await store.close()


async def test_who_missed_too_many_changes_reads_the_namespace_again(tmp_path: Path) -> None:
    path = tmp_path / "v.db"
    reader, writer = (SQLiteVectorStore(path, dimension=2) for _ in range(2))
    records = [Record(str(row), [1.0, row], f"a{row}", {"x": row}) for row in range(3_000)]
    await reader.upsert(records)
    assert [match.id for match in await reader.query([1.0, 9.0], 1, filter=F("x") >= 9)] == ["9"]
    for step in "bc":
        await writer.upsert(
            [Record(str(row), [1.0, row], step, {"x": row}) for row in range(3_000)]
        )
    await writer.delete([str(row) for row in range(10)])
    assert len(logged(path)) == 4_096
    (match,) = await reader.query([1.0, 9.0], 1, filter=F("x") >= 9)
    assert (match.id, match.text) == ("10", "c")
    assert await reader.count(filter=F("x") >= 0) == 2_990
    await writer.delete(filter=EVERYTHING)
    assert await reader.query([1.0, 9.0], 1) == []
    for store in (reader, writer):
        await store.close()


@pytest.mark.parametrize("closed", [True, False])
async def test_a_file_of_an_older_release_is_opened_and_written_beside_it(
    tmp_path: Path, *, closed: bool
) -> None:
    path = tmp_path / "v.db"
    old = SQLiteVectorStore(path, dimension=2)
    await old.upsert(RECORDS)
    await old.close()
    as_of_an_older_release(path)
    connection = sqlite3.connect(path, isolation_level=None)
    if closed:
        connection.close()
    new = SQLiteVectorStore(path, dimension=2)
    assert [match.id for match in await new.query([1.0, 0.0], 1)] == ["0"]
    if not closed:  # the older release goes on writing
        connection.execute("DELETE FROM lib_vectors WHERE id = '0'")
        assert [match.id for match in await new.query([1.0, 0.0], 1)] == ["1"]
        connection.close()
    await new.close()


async def test_a_purge_leaves_no_name_in_the_log(tmp_path: Path) -> None:
    path = tmp_path / "v.db"
    store, reader = (SQLiteVectorStore(path, dimension=2) for _ in range(2))
    await store.upsert([Record("secret-id", [1.0, 0.0]), *RECORDS], namespace="secret-name")
    assert len(await reader.query([1.0, 0.0], 50, namespace="secret-name")) == 21
    await store.delete(filter=EVERYTHING, namespace="secret-name")
    assert ("secret-name", "secret-id") in logged(path)
    await store.purge()
    assert logged(path) == [("", "")]
    assert await reader.query([1.0, 0.0], 50, namespace="secret-name") == []
    for each in (store, reader):
        await each.close()
    assert b"secret" not in path.read_bytes()


@pytest.mark.parametrize("name", ["lib_vectors_changes", "lib_vectors_codes"])
async def test_a_table_of_the_users_that_has_the_name_of_a_side_table_is_refused_and_left_alone(
    tmp_path: Path, name: str
) -> None:
    path = tmp_path / "v.db"
    async with SQLiteVectorStore(path, dimension=2) as store:
        await store.upsert(RECORDS)
    as_of_an_older_release(path)
    named = f"WHERE name = '{name}'"
    for made in (
        f"TABLE {name} (number, what)",
        f"VIEW {name} AS SELECT 1",
    ):
        with raw(path) as connection:
            connection.execute(f"CREATE {made}")
            (before,) = connection.execute(f"SELECT sql FROM sqlite_master {named}").fetchall()

        with pytest.raises(StoreCorrupt, match=f"'{name}'.*: rename it"):
            await SQLiteVectorStore(path, dimension=2).count()

        with raw(path) as connection:
            assert connection.execute(f"SELECT sql FROM sqlite_master {named}").fetchall() == [
                before
            ]
            connection.execute(f"DROP {made.split()[0]} {name}")
    async with SQLiteVectorStore(path, dimension=2) as store:
        assert await store.count() == len(RECORDS)
    assert logged(path) == [("", "")]
