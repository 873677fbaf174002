"""A SQLite event store on files that exist: damaged, newer, older, or not its own."""

import asyncio
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from lib.errors import MigrationNeeded, SchemaTooNew, StoreCorrupt, StoreReadOnly
from lib.events import Event, SQLiteEventStore
from lib.events.store import LAYOUT_VERSION
from lib.testing.aio import run
from lib.testing.event_store.kit import note

from .sqlite_kit import alter, cannot_open, made

# -- damage ------------------------------------------------------------------------------------


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("size", [2, 99, 100, 4096, 8192, 20_000])
def test_a_truncated_file_is_corrupt(tmp_path: Path, size: int, read_only: bool) -> None:
    path = tmp_path / "log.db"
    made(path, notes=200)
    os.truncate(path, size)

    cannot_open(path, StoreCorrupt, read_only=read_only)

    assert path.stat().st_size == size


@pytest.mark.parametrize("read_only", [False, True])
def test_a_file_that_is_no_database_is_corrupt_and_left_alone(
    tmp_path: Path, read_only: bool
) -> None:
    path = tmp_path / "log.db"
    path.write_bytes(b"Dear diary, " * 1000)

    cannot_open(path, StoreCorrupt, read_only=read_only)

    assert path.read_bytes() == b"Dear diary, " * 1000


def test_damage_in_the_middle_of_the_file_raises_when_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    made(path, notes=2000)
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(size // 2)
        file.write(b"\xff" * (size // 4))

    async def main() -> None:
        store = SQLiteEventStore(path)
        await store.setup()
        with pytest.raises(StoreCorrupt):
            await store.feed(limit=5000)
        await store.close()

    run(main())


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE lib_events SET data = '{' WHERE seq = 2",
        "UPDATE lib_events SET data = '[]' WHERE seq = 2",
        "UPDATE lib_events SET data = 7 WHERE seq = 2",
        "UPDATE lib_events SET data = CAST(x'ff' AS TEXT) WHERE seq = 2",
        "UPDATE lib_events SET at = 'noon' WHERE seq = 2",
    ],
)
def test_an_event_that_cannot_be_read_is_corrupt_and_the_others_are_read(
    tmp_path: Path, statement: str
) -> None:
    path = tmp_path / "log.db"
    log = made(path, notes=2)
    alter(path, statement)

    async def main() -> None:
        store = SQLiteEventStore(path, read_only=True)
        await store.setup()
        with pytest.raises(StoreCorrupt):
            await store.read("run")
        with pytest.raises(StoreCorrupt):
            await store.feed()
        assert await store.read("run", limit=1) == log[:1]
        assert await store.read("run", after=2) == log[2:]
        await store.close()

    run(main())


def test_a_table_that_is_not_ours_is_corrupt(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    alter(path, "CREATE TABLE lib_runs (name TEXT)")

    cannot_open(path, StoreCorrupt, read_only=False)


# -- layouts -----------------------------------------------------------------------------------


@pytest.mark.parametrize("read_only", [False, True])
def test_a_newer_layout_is_refused_and_left_alone(tmp_path: Path, read_only: bool) -> None:
    path = tmp_path / "log.db"
    made(path)
    newer = LAYOUT_VERSION + 1
    alter(path, f"UPDATE lib_meta SET value = '{newer}'")
    before = path.read_bytes()

    error = cannot_open(path, SchemaTooNew, read_only=read_only)

    assert isinstance(error, SchemaTooNew)
    assert (error.found, error.supported) == (newer, LAYOUT_VERSION)
    assert str(path) in error.store
    assert path.read_bytes() == before


def test_a_layout_that_becomes_newer_while_the_store_is_open_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    made(path)

    async def main() -> None:
        store = SQLiteEventStore(path)
        await store.setup()
        await asyncio.to_thread(alter, path, "UPDATE lib_meta SET value = '99'")
        for _ in range(2):
            with pytest.raises(SchemaTooNew):
                await store.append("run", [note()], expected=2)
        await store.close()

    run(main())
    alter(path, "UPDATE lib_meta SET value = '1'")
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT count(*) FROM lib_events").fetchone() == (2,)


@pytest.mark.parametrize("value", ["'new'", "NULL"])
@pytest.mark.parametrize("read_only", [False, True])
def test_a_layout_that_is_no_number_is_corrupt(tmp_path: Path, read_only: bool, value: str) -> None:
    path = tmp_path / "log.db"
    made(path)
    alter(path, f"UPDATE lib_meta SET value = {value}")

    cannot_open(path, StoreCorrupt, read_only=read_only)


@pytest.mark.parametrize("lost", ["DROP TABLE lib_meta", "DELETE FROM lib_meta"])
def test_a_store_without_a_recorded_layout_counts_as_layout_1(tmp_path: Path, lost: str) -> None:
    path = tmp_path / "log.db"
    log = made(path)
    of_two = ("TABLE lib_tombstones", "TABLE lib_blob_uses", "INDEX lib_runs_parent")
    alter(path, lost, "DROP TABLE lib_marks", "DROP INDEX lib_runs_ready")
    alter(path, *(f"DROP {name}" for name in of_two))
    error = cannot_open(path, MigrationNeeded, read_only=True)
    assert isinstance(error, MigrationNeeded)
    assert (error.found, error.supported) == (1, LAYOUT_VERSION)

    async def main() -> None:
        store = SQLiteEventStore(path)
        await store.setup()
        assert await store.schema_version() == LAYOUT_VERSION
        await store.set_mark("name", "value")
        assert await store.read("run") == log
        await store.close()

    run(main())
    with closing(sqlite3.connect(path)) as connection:
        recorded = connection.execute("SELECT * FROM lib_meta").fetchall()
    assert recorded == [("events.layout", str(LAYOUT_VERSION))]


def test_an_older_layout_needs_a_migration_that_a_reader_does_not_make(tmp_path: Path) -> None:
    from lib.events.stores.sqlite.layout import check_readable

    path = tmp_path / "log.db"
    made(path)
    with closing(sqlite3.connect(path)) as connection, pytest.raises(MigrationNeeded) as caught:
        check_readable(connection, "log", supported=LAYOUT_VERSION + 1)

    error = caught.value
    assert (error.store, error.found) == ("log", LAYOUT_VERSION)
    assert error.supported == LAYOUT_VERSION + 1


# -- places ------------------------------------------------------------------------------------


def test_any_path_will_do(tmp_path: Path) -> None:
    for name in ("50%?mode=ro&x#y.db", "dätä base.db", "file:log.db"):
        log = made(tmp_path / name)

        async def main(name: str = name, log: list[Event] = log) -> None:
            store = SQLiteEventStore(str(tmp_path / name), read_only=True)
            await store.setup()
            assert await store.read("run") == log
            await store.close()

        run(main())
        assert (tmp_path / name).is_file()


async def test_a_path_that_leads_nowhere_is_refused_with_a_way_out(tmp_path: Path) -> None:
    with pytest.raises(StoreReadOnly, match="is its folder there, and writable"):
        await SQLiteEventStore(tmp_path / "none" / "log.db").setup()
    (tmp_path / "empty.db").touch()
    with pytest.raises(StoreReadOnly, match="holds no event store: check the name, or open it"):
        await SQLiteEventStore(tmp_path / "empty.db", read_only=True).setup()


def test_impossible_stores_are_refused_when_they_are_made() -> None:
    with pytest.raises(ValueError, match="expected durability 'full' or 'normal', got 'fast'"):
        SQLiteEventStore("log.db", durability="fast")  # pyright: ignore[reportArgumentType] - the point
    with pytest.raises(ValueError, match="begins empty"):
        SQLiteEventStore(read_only=True)
