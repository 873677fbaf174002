"""Full disks, locks, errors and cancellation while a SQLite event store is open."""

import asyncio
import os
import resource
import sqlite3
import threading
from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from lib._util.clock import SYSTEM_CLOCK, SystemClock
from lib.errors import StoreCorrupt, StoreError
from lib.events import SQLiteEventStore
from lib.events import kinds as k
from lib.events.stores.sqlite.reader import Reader
from lib.events.stores.sqlite.writer import Writer
from lib.events.verify import verify_store
from lib.events.wakeups import Wakeups, poll_for_commits
from lib.llm import FunctionClient, Message, Reply, ToolCall
from lib.testing.agents import make_engine
from lib.testing.aio import run
from lib.testing.event_store.kit import all_events, begin, note, started
from lib.tools import tool

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


async def test_a_full_disk_fails_appends_and_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "log.db"

    store = SQLiteEventStore(path)
    await store.setup()
    log = await begin(store, "run")
    used = await asyncio.to_thread(lambda: Path(f"{path}-wal").stat().st_size)
    with files_up_to(used + 10_000):
        large = [note("x" * 100_000)]
        attempts = [store.append("run", large, expected=1), begin(store, "other")]
        outcomes = await asyncio.gather(*attempts, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [StoreError, StoreError]
        assert all(isinstance(each, StoreError) and each.retryable for each in outcomes)
        assert await store.read("run") == log
    log += await store.append("run", large, expected=1)
    await begin(store, "other")

    assert await store.read("run") == log
    assert (await verify_store(store)).faults == []
    await store.close()


class Impatient(SQLiteEventStore):
    _busy_s = 0.05


async def test_a_lock_that_is_never_given_up_fails_appends_and_loses_nothing(
    tmp_path: Path,
) -> None:
    store = Impatient(tmp_path / "log.db")
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


async def test_an_unexpected_error_fails_its_batch_and_not_the_store(
    tmp_path: Path,
) -> None:
    store = SQLiteEventStore(tmp_path / "log.db")
    await store.setup()
    await begin(store, "run")
    await asyncio.to_thread(alter, tmp_path / "log.db", "ALTER TABLE lib_events RENAME TO gone")
    with pytest.raises(StoreCorrupt):
        await store.append("run", [note()], expected=1)
    await asyncio.to_thread(alter, tmp_path / "log.db", "ALTER TABLE gone RENAME TO lib_events")

    assert len(await store.append("run", [note()], expected=1)) == 1
    await store.close()


async def test_a_poll_that_fails_is_logged_and_tried_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    wakeups, failures = Wakeups(), [StoreError("the disk is away")]

    async def look() -> bool:
        if failures:
            raise failures.pop()
        wakeups.foreign()
        return True

    polling = poll_for_commits(
        look, wakeups=wakeups, clock=SYSTEM_CLOCK, longest_pause_s=0.1, store="the store"
    )
    task = asyncio.create_task(polling)
    with wakeups.listen() as listener:
        assert await listener.wait(60)
    task.cancel()
    [record] = caplog.records
    assert "cannot look for commits of other processes" in record.getMessage()


async def test_erased_data_is_no_longer_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "log.db"

    store = SQLiteEventStore(path)
    await store.setup()
    await store.append("run", [started(), note("very secret " * 1000)], expected=0)
    await begin(store, "kept")
    await store.erase("run")
    await store.close()
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

    def slow(*args: Any, **options: Any) -> Any:
        begun.set()
        go_on.wait(20)
        kept.append(opening(*args, **options))  # or else it might be closed by being forgotten
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


def _corrupt_an_index(path: Path) -> None:
    alter(
        path,
        "PRAGMA writable_schema=ON",
        "UPDATE sqlite_master SET sql = replace(sql, '(root_id)', '(algorithm)') "
        "WHERE name = 'lib_runs_root'",
    )


@pytest.mark.parametrize("read_only", [False, True])
def test_a_deep_check_finds_damage_beneath_readable_logs(
    tmp_path: Path, *, read_only: bool
) -> None:
    path = tmp_path / "log.db"
    made(path)

    async def main() -> tuple[list[str], list[str]]:
        found: list[list[str]] = []
        for deep in (False, True):
            store = SQLiteEventStore(path, read_only=read_only)
            await store.setup()
            report = await verify_store(store, deep=deep)
            found.append([fault.rule for fault in report.faults])
            assert report.runs == 1
            await store.close()
        return found[0], found[1]

    assert run(main()) == ([], [])
    _corrupt_an_index(path)
    shallow, deep = run(main())
    assert shallow == []
    assert set(deep) == {"file"}


def test_a_deep_check_reports_damage_that_hides_the_runs(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    made(path, notes=2000)
    with closing(sqlite3.connect(path)) as connection:
        find = "SELECT rootpage FROM sqlite_master WHERE name = 'lib_runs'"
        [page] = connection.execute(find).fetchone()
    with path.open("r+b") as file:
        file.seek((page - 1) * 4096)
        file.write(b"\xff" * 4096)

    async def main() -> None:
        store = SQLiteEventStore(path)
        await store.setup()
        with pytest.raises(StoreCorrupt):
            await verify_store(store)
        rules = [fault.rule for fault in (await verify_store(store, deep=True)).faults]
        assert rules[:1] + rules[-1:] == ["file", "file"]
        await store.close()

    run(main())


async def test_the_check_of_a_store_in_memory_finds_nothing() -> None:
    store = SQLiteEventStore()
    await store.setup()
    await begin(store, "run")
    assert await store.integrity_faults() == []
    await store.close()


class Quota:
    """A disk with room for no more than what a store holds when it runs out."""

    def __init__(self, store: SQLiteEventStore, path: Path) -> None:
        self._path = path
        self.store = store
        self.is_out = False

    async def run_out(self) -> None:
        used = await asyncio.to_thread(lambda: Path(f"{self._path}-wal").stat().st_size)
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (used, hard))
        self.is_out = True

    async def make_room(self) -> None:
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        self.is_out = False


class FullDisk(Quota):
    """A disk that SQLite reports as full."""

    async def run_out(self) -> None:
        await self._bound(1)
        self.is_out = True

    async def make_room(self) -> None:
        await self._bound(2**30)
        self.is_out = False

    async def _bound(self, pages: int) -> None:
        def bound(writer: Writer) -> None:
            writer.connection.execute(f"PRAGMA max_page_count={pages}")

        await self.store._write(bound)  # pyright: ignore[reportPrivateUsage] - of its one connection


class Freeing(SystemClock):
    """Makes room on a disk after some pauses."""

    def __init__(self, disk: Quota) -> None:
        self._disk = disk
        self.pauses = 0

    async def sleep(self, delay_s: float) -> None:
        if self._disk.is_out:
            self.pauses += 1
            if self.pauses == 5:
                await self._disk.make_room()
        await super().sleep(min(delay_s, 0.01))


@pytest.mark.parametrize("kind", [Quota, FullDisk])
async def test_a_run_goes_on_when_there_is_room_again(tmp_path: Path, kind: type[Quota]) -> None:
    store = SQLiteEventStore(tmp_path / "log.db")
    disk = kind(store, tmp_path / "log.db")
    clock, effects = Freeing(disk), list[int]()

    @tool(effects="once")
    def pay(number: int) -> str:
        """Pay once, and say much about it."""
        effects.append(number)
        return "paid" * 30_000

    async def answer(messages: Sequence[Message]) -> Reply | str:
        if len(messages) == 3:
            await disk.run_out()
        if len(messages) > 9:
            return "done"
        return Reply((ToolCall(f"c{len(messages)}", "pay", {"number": len(messages)}),))

    async def main() -> None:
        model = FunctionClient(answer)
        async with make_engine(model, pay, store=store, clock=clock, lease_s=600) as engine:
            started = await engine.start("go")
            result = await started.result()
            log = await store.read(started.id)
            report = await verify_store(store, deep=True)

        assert (result.outcome, result.output) == ("COMPLETED", "done")
        assert clock.pauses >= 5
        assert (effects, report.faults) == (sorted(set(effects)), [])
        assert sum(event.kind == k.TOOL_COMPLETED for event in log) == len(effects)

    try:
        await main()
    finally:
        await Quota.make_room(disk)
