"""Erased data leaves the files of a SQLite store, byte by byte."""

import asyncio
import random
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from lib.events import NewEvent, SQLiteEventStore
from lib.events.store import run_mark, tombstone_name
from lib.events.stores.sqlite import erasure
from lib.events.stores.sqlite.writer import Writer
from lib.testing.event_store.kit import AT, NOTE, all_events, begin, note, started


def raw(path: Path) -> bytes:
    """Return all that is in the files of a store."""
    return b"".join(file.read_bytes() for file in path.parent.iterdir())


def meta(path: Path) -> dict[str, str]:
    with closing(sqlite3.connect(path)) as connection:
        return dict(connection.execute("SELECT key, value FROM lib_meta"))


async def opened(path: Path) -> SQLiteEventStore:
    store = SQLiteEventStore(path)
    await store.setup()
    return store


def take_over(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as newer:
        newer.execute("UPDATE lib_meta SET value = '99' WHERE key = 'events.layout'")


def digest_of(number: int) -> str:
    return f"{number:04}".encode().hex().ljust(64, "0")


async def marked(store: SQLiteEventStore, number: int, random_: random.Random) -> str:
    """Write a run with its number in every column; return its id."""
    tag = f"mark{number:04}tag"
    run_id = f"{random_.randbytes(6).hex()}-{tag}-id"
    blob = {"$blob": digest_of(number), "size": 1, "type": "text/plain"}
    data = {"text": f"{tag}-data" * random_.randint(1, 400), "blob": blob}
    start = started(
        tenant=f"{tag}-tenant",
        user=f"{tag}-user",
        algorithm=f"{tag}-algorithm",
        root=f"{tag}-root",
        parent={"run_id": f"{tag}-parent", "key": f"{tag}-key"},
    )
    events = [start, NewEvent(f"{tag}.kind", data, AT, user=f"{tag}-user")]
    await store.append(run_id, events, expected=0)
    await store.set_mark(run_mark(run_id, "trace"), f"{tag}-value" * random_.randint(1, 30))
    await store.claim(f"{tag}-owner" * random_.randint(1, 9), ttl_s=99, run_id=run_id)
    return run_id


async def test_no_byte_of_an_erased_run_is_left_once_the_store_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    random_ = random.Random(7)
    numbers = range(400)

    store = await opened(path)
    names = await asyncio.gather(*(marked(store, number, random_) for number in numbers))
    for name in names[::2]:
        await store.append(name, [note("x" * 300)], expected=None)
    erased = names[::5]
    await asyncio.gather(*(store.erase(name) for name in erased[:40]))
    for name in erased[40:]:
        await store.erase(name)
    kept = await all_events(store, limit=1000)
    await store.close()
    found = raw(path)
    for number in numbers:
        gone = number % 5 == 0
        assert (f"mark{number:04}tag".encode() in found) is not gone, number
        assert (digest_of(number).encode() in found) is not gone, number

    async def again() -> None:
        store = await opened(path)
        assert await all_events(store, limit=1000) == kept
        await store.close()

    await again()


async def test_the_log_is_truncated_when_an_erasure_returns(tmp_path: Path) -> None:
    path = tmp_path / "log.db"

    store = await opened(path)
    await store.append("run", [started(), note("very secret " * 1000)], expected=0)
    await begin(store, "kept")
    before = await asyncio.to_thread(raw, path)
    await store.erase("run")
    after = await asyncio.to_thread(raw, path)

    assert b"very secret" in before
    assert b"very secret" not in after
    assert (await asyncio.to_thread(Path(f"{path}-wal").stat)).st_size == 0
    assert await begin(store, "more")
    await store.close()


def statements_of(writer: Writer) -> list[str]:
    statements: list[str] = []
    writer.connection.set_trace_callback(statements.append)
    return statements


def test_erasures_of_one_transaction_share_a_truncation_of_the_log(tmp_path: Path) -> None:
    with closing(Writer.open(str(tmp_path / "log.db"), "log", "normal")) as writer:
        statements = statements_of(writer)
        for name in ("a", "b"):
            writer.commit([lambda w, name=name: w.append(name, [started()], ["{}"], 0)])
        writer.commit([lambda w: w.erase("a", AT), lambda w: w.erase("b", AT)])
        writer.commit([lambda w: w.erase("c", AT)])
        writer.commit([lambda w: w.set_mark("m", "1")])

        assert sum("TRUNCATE" in statement for statement in statements) == 1


async def test_a_reader_postpones_the_truncation_of_the_log(
    tmp_path: Path,
) -> None:
    path = tmp_path / "log.db"

    store = await opened(path)
    await begin(store, "kept")
    await store.append("run", [started(), note("very secret")], expected=0)
    reader = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    await asyncio.to_thread(reader.execute, "BEGIN")
    await asyncio.to_thread(reader.execute, "SELECT count(*) FROM lib_runs")
    async with asyncio.timeout(200):
        await store.erase("run")
    during = await asyncio.to_thread(raw, path)
    await asyncio.to_thread(reader.close)
    await store.append("kept", [note()], expected=1)
    after = await asyncio.to_thread(raw, path)

    assert (b"very secret" in during, b"very secret" in after) == (True, False)
    await store.close()


async def test_a_truncation_that_a_reader_prevents_is_made_by_close(tmp_path: Path) -> None:
    path = tmp_path / "log.db"

    store = await opened(path)
    other = await opened(path)
    await store.append("run", [started(), note("very secret")], expected=0)
    reader = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    await asyncio.to_thread(reader.execute, "BEGIN")
    await asyncio.to_thread(reader.execute, "SELECT count(*) FROM lib_runs")
    await store.erase("run")
    await asyncio.to_thread(reader.close)
    await store.close()
    after = await asyncio.to_thread(raw, path)
    await other.close()

    assert b"very secret" not in after


async def test_the_last_store_to_close_rewrites_the_file_only_after_an_erasure(
    tmp_path: Path,
) -> None:
    path = tmp_path / "log.db"

    one, two = await opened(path), await opened(path)
    for name in ("a", "b"):
        await begin(one, name)
    await one.close()
    one = await opened(path)
    await one.erase("a")
    await two.erase("b")
    await one.close()
    before = await asyncio.to_thread(meta, path)
    await two.close()
    after = await asyncio.to_thread(meta, path)

    assert before["events.erased"] == after["events.erased"] == "2"
    assert "events.scrubbed" not in before
    assert after["events.scrubbed"] == "2"
    stored = path.read_bytes()

    await (await opened(path)).close()
    assert path.read_bytes() == stored


CRASH = """
import asyncio, os, sys
from lib.events import SQLiteEventStore
from lib.testing.event_store.kit import begin, note

async def main():
    store = SQLiteEventStore(sys.argv[1])
    await store.setup()
    await begin(store, "run", 1)
    await store.set_mark("run/run/x", "very secret")
    await store.erase("run")
    os._exit(9)

asyncio.run(main())
"""


async def test_a_rewrite_missed_by_a_crash_is_done_by_the_next_close(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    assert subprocess.run([sys.executable, "-c", CRASH, str(path)], check=False).returncode == 9
    left = meta(path)

    await (await opened(path)).close()
    assert left["events.erased"] == "2"
    assert "events.scrubbed" not in left
    assert meta(path)["events.scrubbed"] == "2"
    assert b"very secret" not in raw(path)


async def test_a_rewrite_that_fails_is_logged_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "log.db"

    def full(*_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    async def main() -> None:
        store = await opened(path)
        await begin(store, "run")
        await store.erase("run")
        await store.close()

    with monkeypatch.context() as patch:
        patch.setattr("lib.events.stores.sqlite.writer.scrub", full)
        await main()
    [record] = caplog.records
    assert "erased data may still be in the file" in record.getMessage()

    await (await opened(path)).close()
    assert meta(path)["events.scrubbed"] == "1"


async def test_a_file_migrated_by_a_newer_release_is_not_rewritten(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "log.db"

    store = await opened(path)
    await begin(store, "run")
    await store.erase("run")
    await asyncio.to_thread(take_over, path)
    await store.close()
    assert "events.scrubbed" not in meta(path)
    assert "erased data may still be in the file" in caplog.text


async def test_marks_that_have_outlived_their_run_are_erased_with_its_name(tmp_path: Path) -> None:
    path = tmp_path / "log.db"

    store = await opened(path)
    await begin(store, "run")
    await store.erase("run")
    await store.set_mark(run_mark("run", "late"), "very secret")
    assert await store.erase("run") is False
    assert await store.marks("") == {}
    assert b"very secret" not in await asyncio.to_thread(raw, path)
    tombstone = await store.tombstone("run")
    assert tombstone is not None
    assert tombstone.name == tombstone_name("run")
    await store.close()


async def test_a_store_in_memory_is_not_rewritten() -> None:
    store = SQLiteEventStore()
    await store.setup()
    await store.append("run", [started(), NewEvent(NOTE, {}, AT)], expected=0)
    assert await store.erase("run") is True
    await store.close()


def test_an_error_of_the_disk_is_not_mistaken_for_another_open_connection() -> None:
    class Broken(sqlite3.Connection):
        def execute(self, *call: object) -> sqlite3.Cursor:
            if "journal_mode" in str(call[0]):
                raise _io_error()
            return super().execute(*call)  # pyright: ignore[reportArgumentType] - as it was called

    with closing(sqlite3.connect(":memory:", factory=Broken)) as connection:
        connection.execute("CREATE TABLE lib_meta (key, value)")
        connection.execute("INSERT INTO lib_meta VALUES ('events.erased', '1')")
        with pytest.raises(sqlite3.OperationalError, match="broken"):
            erasure.scrub(connection, "log")


def _io_error() -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("the disk is broken")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR
    return error


def test_a_file_open_in_another_connection_is_not_rewritten(tmp_path: Path) -> None:
    path = str(tmp_path / "log.db")
    with closing(Writer.open(path, "log", "normal")) as writer:
        writer.commit([lambda w: w.append("a", [started()], ["{}"], 0)])
        writer.commit([lambda w: w.erase("a", AT)])
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("SELECT count(*) FROM lib_runs").fetchall()
        statements = statements_of(writer)
        erasure.scrub(writer.connection, "log")
        other.close()

        assert "VACUUM" not in statements
