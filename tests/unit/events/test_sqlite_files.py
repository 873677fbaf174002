"""What a SQLite event store makes of the files it finds."""

import asyncio
import os
import resource
import sqlite3
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Awaitable, Callable, Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from lib.errors import (
    MigrationNeeded,
    SchemaTooNew,
    StoreCorrupt,
    StoreError,
    StoreReadOnly,
)
from lib.events import Event, Lease, SQLiteEventStore
from lib.events.layout import LAYOUT_VERSION
from lib.events.stores.sqlite.reader import Reader
from lib.events.stores.sqlite.writer import Writer
from lib.events.verify import verify_store
from lib.testing.aio import run
from lib.testing.event_store.kit import AT, all_events, begin, note, started

WRITES: dict[str, Callable[[SQLiteEventStore], Awaitable[Any]]] = {
    "append": lambda store: store.append("run", [note()], expected=2),
    "claim": lambda store: store.claim("me", ttl_s=1),
    "renew": lambda store: store.renew(Lease(run_id="run", owner="me", epoch=1, until=AT), ttl_s=1),
    "release": lambda store: store.release(Lease(run_id="run", owner="me", epoch=1, until=AT)),
    "set_mark": lambda store: store.set_mark("name", "value"),
    "erase": lambda store: store.erase("run"),
}


def made(path: Path, notes: int = 1) -> list[Event]:
    """Make a store with one run, and return its log."""

    async def main() -> list[Event]:
        store = SQLiteEventStore(path)
        await store.setup()
        log = await begin(store, "run", notes)
        await store.close()
        return log

    return run(main())


def alter(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


def cannot_open(path: Path, expected: type[StoreError], *, read_only: bool) -> StoreError:
    async def main() -> StoreError:
        store = SQLiteEventStore(path, read_only=read_only)
        with pytest.raises(expected) as caught:
            await store.setup()
        with pytest.raises(expected):  # and a second try is no different
            await store.setup()
        await store.close()
        return caught.value

    return run(main())


@contextmanager
def unprivileged() -> Generator[None]:
    """Be nobody for a while: to root, nothing is read-only."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def open_place() -> Iterator[Path]:
    """Return a directory that everybody can reach."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o777)
        yield Path(name)
        Path(name).chmod(0o777)


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


def test_damage_in_the_middle_of_the_file_is_told_when_it_is_read(tmp_path: Path) -> None:
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
def test_a_store_without_a_recorded_layout_is_adopted_as_the_first(
    tmp_path: Path, lost: str
) -> None:
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


# -- reading only ------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [None, b"", "other"])
def test_a_place_without_an_event_store_cannot_be_read(
    tmp_path: Path, content: bytes | str | None
) -> None:
    path = tmp_path / "log.db"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content:
        alter(path, "CREATE TABLE other (x)")

    cannot_open(path, StoreReadOnly, read_only=True)

    assert path.exists() is (content is not None)


@pytest.mark.parametrize("write", WRITES.values(), ids=list(WRITES))
def test_a_read_only_store_refuses_to_write(
    tmp_path: Path, write: Callable[[SQLiteEventStore], Awaitable[Any]]
) -> None:
    path = tmp_path / "log.db"
    log = made(path)
    before = path.read_bytes()

    async def main() -> None:
        store = SQLiteEventStore(path, read_only=True)
        await store.setup()
        with pytest.raises(StoreReadOnly):
            await write(store)
        assert await all_events(store) == log
        await store.close()

    run(main())
    assert path.read_bytes() == before


def test_a_read_only_store_follows_a_live_writer(tmp_path: Path) -> None:
    async def main() -> None:
        writer = SQLiteEventStore(tmp_path / "log.db")
        reader = SQLiteEventStore(tmp_path / "log.db", read_only=True)
        await writer.setup()
        await reader.setup()
        with reader.wakeups.listen("run") as listener:
            log = await begin(writer, "run")
            woken = await listener.wait(5)

        assert woken
        assert await reader.read("run") == log
        await writer.close()
        log += (await all_events(reader))[len(log) :]
        assert await reader.read("run") == log
        await reader.close()

    run(main())


CRASH = """
import asyncio, os, sys
from lib.events import SQLiteEventStore
from lib.testing.event_store.kit import begin

async def main():
    store = SQLiteEventStore(sys.argv[1])
    await store.setup()
    await begin(store, "run", 1)
    os._exit(9)

asyncio.run(main())
"""


@pytest.mark.parametrize("also_lost", ["", "-shm"])
def test_what_a_crash_has_left_can_be_read_without_changing_it(
    tmp_path: Path, also_lost: str
) -> None:
    path = tmp_path / "log.db"
    assert subprocess.run([sys.executable, "-c", CRASH, str(path)], check=False).returncode == 9
    if also_lost:
        Path(f"{path}{also_lost}").unlink()
    files = [path, Path(f"{path}-wal")]
    before = [file.read_bytes() for file in files]

    async def main() -> None:
        store = SQLiteEventStore(path, read_only=True)
        await store.setup()
        assert [event.seq for event in await store.read("run")] == [1, 2]
        report = await verify_store(store)
        assert (report.runs, report.events, report.faults) == (1, 2, [])
        await store.close()

    run(main())
    assert before[1]
    assert [file.read_bytes() for file in files] == before


def test_a_store_on_a_read_only_disk_can_be_read_but_not_opened_for_writing(
    open_place: Path,
) -> None:
    path = open_place / "log.db"
    log = made(path)
    path.chmod(0o444)
    open_place.chmod(0o555)

    async def main() -> None:
        reader = SQLiteEventStore(path, read_only=True)
        await reader.setup()
        assert await reader.read("run") == log
        await reader.close()

    with unprivileged():
        run(main())
        cannot_open(path, StoreReadOnly, read_only=False)
        cannot_open(open_place / "new.db", StoreReadOnly, read_only=False)
        cannot_open(open_place / "none" / "new.db", StoreReadOnly, read_only=False)
    open_place.chmod(0o777)
    assert [file.name for file in open_place.iterdir()] == ["log.db"]


@contextmanager
def written_by_others(path: Path) -> Generator[None]:
    """Let others write for a while, and then nobody."""
    path.parent.chmod(0o777)
    path.chmod(0o644)
    yield
    path.chmod(0o444)
    path.parent.chmod(0o555)


def test_a_reader_that_cannot_write_sees_what_others_commit(open_place: Path) -> None:
    path = open_place / "log.db"
    log = made(path)
    path.chmod(0o444)
    open_place.chmod(0o555)

    async def main() -> None:
        reader = SQLiteEventStore(path, read_only=True)
        with unprivileged():
            await reader.setup()
            assert await reader.read("run") == log
        with written_by_others(path):
            writer = SQLiteEventStore(path)
            await writer.setup()
            await begin(writer, "other", 1)
            await writer.close()
        with unprivileged():
            assert [info.run_id for info in await reader.runs()] == ["run", "other"]
            assert [event.seq for event in await reader.read("other")] == [1, 2]
        await reader.close()

    run(main())


def test_a_read_only_file_is_refused_at_once(open_place: Path) -> None:
    path = open_place / "log.db"
    made(path)
    path.chmod(0o444)

    with unprivileged():
        cannot_open(path, StoreReadOnly, read_only=False)

    assert stat.S_IMODE(path.stat().st_mode) == 0o444


# -- trouble while it is open ------------------------------------------------------------------


@contextmanager
def files_up_to(size: int) -> Generator[None]:
    """Let no file of this process grow beyond a size: as a full disk does, writes fail."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_fails_appends_and_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "log.db"

    async def main() -> None:
        store = SQLiteEventStore(path)
        await store.setup()
        log = await begin(store, "run")
        used = await asyncio.to_thread(lambda: Path(f"{path}-wal").stat().st_size)
        with files_up_to(used + 10_000):
            large = [note("x" * 100_000)]
            attempts = [store.append("run", large, expected=1), begin(store, "other")]
            outcomes = await asyncio.gather(*attempts, return_exceptions=True)
            assert [type(outcome) for outcome in outcomes] == [StoreError, StoreError]
            assert await store.read("run") == log
        log += await store.append("run", large, expected=1)
        await begin(store, "other")

        assert await store.read("run") == log
        assert (await verify_store(store)).faults == []
        await store.close()

    run(main())


def test_a_lock_that_is_never_given_up_fails_appends_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lib._util.sqlite.BUSY_S", 0.05)

    async def main() -> None:
        store = SQLiteEventStore(tmp_path / "log.db")
        await store.setup()
        await begin(store, "run")
        other = sqlite3.connect(tmp_path / "log.db", isolation_level=None, check_same_thread=False)
        await asyncio.to_thread(other.execute, "BEGIN IMMEDIATE")
        with pytest.raises(StoreError) as caught:
            await store.append("run", [note()], expected=1)
        await asyncio.to_thread(other.execute, "ROLLBACK")
        other.close()
        stored = await store.append("run", [note()], expected=1)

        assert type(caught.value) is StoreError
        assert caught.value.retryable
        assert [event.seq for event in stored] == [2]
        await store.close()

    run(main())


def test_an_error_that_nobody_expects_fails_its_batch_and_not_the_store(tmp_path: Path) -> None:
    async def main() -> None:
        store = SQLiteEventStore(tmp_path / "log.db")
        await store.setup()
        await begin(store, "run")
        await asyncio.to_thread(alter, tmp_path / "log.db", "ALTER TABLE lib_events RENAME TO gone")
        with pytest.raises(StoreCorrupt):
            await store.append("run", [note()], expected=1)
        await asyncio.to_thread(alter, tmp_path / "log.db", "ALTER TABLE gone RENAME TO lib_events")

        assert len(await store.append("run", [note()], expected=1)) == 1
        await store.close()

    run(main())


def test_a_look_that_fails_is_told_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    look, failures = Writer.look, list[StoreError]()

    def fails_once(self: Writer) -> bool:
        if failures:
            raise failures.pop()
        return look(self)

    async def main() -> None:
        store = SQLiteEventStore(tmp_path / "log.db")
        other = SQLiteEventStore(tmp_path / "log.db")
        await store.setup()
        await other.setup()
        failures.append(StoreError("the disk is away"))
        with store.wakeups.listen() as listener:
            while failures:
                await listener.wait(0.01)
            await begin(other, "run")
            assert await listener.wait(5)
        await other.close()
        await store.close()

    monkeypatch.setattr(Writer, "look", fails_once)
    run(main())
    [record] = caplog.records
    assert "cannot look for what other processes have written" in record.getMessage()


def test_what_was_erased_is_no_longer_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "log.db"

    async def main() -> None:
        store = SQLiteEventStore(path)
        await store.setup()
        await store.append("run", [started(), note("very secret " * 1000)], expected=0)
        await begin(store, "kept")
        await store.erase("run")
        await store.close()

    run(main())
    assert b"very secret" not in path.read_bytes()
    assert [file.name for file in tmp_path.iterdir()] == ["log.db"]


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


def test_impossible_stores_are_refused_when_they_are_made() -> None:
    with pytest.raises(ValueError, match="durability is 'full' or 'normal', not 'fast'"):
        SQLiteEventStore("log.db", durability="fast")  # pyright: ignore[reportArgumentType] - the point
    with pytest.raises(ValueError, match="cannot be read-only"):
        SQLiteEventStore(read_only=True)


def test_an_older_layout_needs_a_migration_that_a_reader_does_not_make(tmp_path: Path) -> None:
    from lib.events.stores.sqlite.layout import check_readable

    path = tmp_path / "log.db"
    made(path)
    with closing(sqlite3.connect(path)) as connection, pytest.raises(MigrationNeeded) as caught:
        check_readable(connection, "log", supported=LAYOUT_VERSION + 1)

    error = caught.value
    assert (error.store, error.found) == ("log", LAYOUT_VERSION)
    assert error.supported == LAYOUT_VERSION + 1


@pytest.mark.parametrize("part", [Writer, Reader])
def test_a_setup_that_is_cancelled_while_it_opens_the_file_leaves_it_closed(
    tmp_path: Path, part: type[Writer | Reader], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log.db"
    log = made(path)
    begun, go_on = threading.Event(), threading.Event()
    opening, kept = part.open, list[Any]()

    def slow(*args: Any) -> Any:
        begun.set()
        go_on.wait(20)
        kept.append(opening(*args))  # or else it might be closed by being forgotten
        return kept[-1]

    async def main() -> None:
        store = SQLiteEventStore(path)
        with monkeypatch.context() as patched:
            patched.setattr(part, "open", slow)
            setup = asyncio.create_task(store.setup())
            await asyncio.to_thread(begun.wait, 20)
            setup.cancel()
            await asyncio.sleep(0)  # noqa: TID251 - lets it be cancelled
            go_on.set()
            with pytest.raises(asyncio.CancelledError):
                await setup
        assert await asyncio.to_thread(os.listdir, tmp_path) == ["log.db"]  # its log is closed
        await store.setup()
        assert await all_events(store) == log
        await store.close()

    run(main())
