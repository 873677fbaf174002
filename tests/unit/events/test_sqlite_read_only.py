"""A SQLite event store that only reads: beside a writer, after a crash, on a read-only disk."""

import stat
import subprocess
import sys
from collections.abc import Awaitable, Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from lib.errors import StoreReadOnly
from lib.events import Lease, SQLiteEventStore
from lib.events.verify import verify_store
from lib.testing.aio import run
from lib.testing.event_store.kit import AT, all_events, begin, note

from .sqlite_kit import alter, cannot_open, made

Unprivileged = Callable[[], AbstractContextManager[None]]
WRITES: dict[str, Callable[[SQLiteEventStore], Awaitable[Any]]] = {
    "append": lambda store: store.append("run", [note()], expected=2),
    "claim": lambda store: store.claim("me", ttl_s=1),
    "renew": lambda store: store.renew(Lease(run_id="run", owner="me", epoch=1, until=AT), ttl_s=1),
    "release": lambda store: store.release(Lease(run_id="run", owner="me", epoch=1, until=AT)),
    "set_mark": lambda store: store.set_mark("name", "value"),
    "erase": lambda store: store.erase("run"),
}


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


async def test_a_read_only_store_follows_a_live_writer(tmp_path: Path) -> None:
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
async def test_files_left_by_a_crash_can_be_read_unchanged(tmp_path: Path, also_lost: str) -> None:
    path = tmp_path / "log.db"
    assert subprocess.run([sys.executable, "-c", CRASH, str(path)], check=False).returncode == 9
    if also_lost:
        Path(f"{path}{also_lost}").unlink()
    files = [path, Path(f"{path}-wal")]
    before = [file.read_bytes() for file in files]

    store = SQLiteEventStore(path, read_only=True)
    await store.setup()
    assert [event.seq for event in await store.read("run")] == [1, 2]
    report = await verify_store(store)
    assert (report.runs, report.events, report.faults) == (1, 2, [])
    await store.close()
    assert before[1]
    assert [file.read_bytes() for file in files] == before


def test_a_store_on_a_read_only_disk_can_be_read_but_not_opened_for_writing(
    open_place: Path, unprivileged: Unprivileged
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
    """Let other processes write inside the context, and no process after it."""
    path.parent.chmod(0o777)
    path.chmod(0o644)
    yield
    path.chmod(0o444)
    path.parent.chmod(0o555)


def test_a_reader_that_cannot_write_sees_what_others_commit(
    open_place: Path, unprivileged: Unprivileged
) -> None:
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


def test_a_read_only_file_is_refused_at_once(open_place: Path, unprivileged: Unprivileged) -> None:
    path = open_place / "log.db"
    made(path)
    path.chmod(0o444)

    with unprivileged():
        cannot_open(path, StoreReadOnly, read_only=False)

    assert stat.S_IMODE(path.stat().st_mode) == 0o444
