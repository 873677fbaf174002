"""What befalls a SQLite event store while it is open: full disks, locks, errors, cancellation."""

import asyncio
import os
import resource
import sqlite3
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lib.errors import StoreCorrupt, StoreError
from lib.events import SQLiteEventStore
from lib.events.stores.sqlite.reader import Reader
from lib.events.stores.sqlite.writer import Writer
from lib.events.verify import verify_store
from lib.testing.aio import run
from lib.testing.event_store.kit import all_events, begin, note, started

from .sqlite_kit import alter, made


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
