"""A SQLite event store in the hands of several processes, some of which die."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lib.events import Event, SQLiteEventStore
from lib.events.store import START
from lib.events.verify import VerifyReport, verify_store
from lib.testing.event_store.kit import all_events, begin

APPENDER = Path(__file__).with_name("appender.py")


class Processes:
    """Starts processes of `appender.py`, which wait for a word before they begin."""

    def __init__(self) -> None:
        self._all: list[subprocess.Popen[str]] = []

    def start(self, path: Path, name: str, mode: str, number: int) -> subprocess.Popen[str]:
        command = [sys.executable, str(APPENDER), str(path), name, mode, str(number)]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8"
        )
        self._all.append(process)
        assert read_line(process) == "ready"
        return process

    def let_go(self) -> None:
        for process in self._all:
            assert process.stdin
            process.stdin.write("go\n")
            process.stdin.flush()

    def finish(self) -> list[int]:
        """Wait for the end of all and return their exit codes."""
        for process in self._all:
            process.communicate()
        return [process.returncode for process in self._all]

    def kill(self) -> None:
        for process in self._all:
            process.kill()
        self.finish()


@pytest.fixture
def processes() -> Iterator[Processes]:
    processes = Processes()
    yield processes
    processes.kill()


def read_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    return process.stdout.readline().rstrip()


async def follow(store: SQLiteEventStore, total: int) -> list[Event]:
    """Return the events that a reader gets which goes from cursor to cursor meanwhile."""
    seen: list[Event] = []
    cursor = START
    with store.wakeups.listen() as listener:
        while len(seen) < total:
            page = await store.feed(cursor, limit=7)
            seen += page.events
            cursor = page.cursor
            if not page.events:
                await listener.wait(0.05)
    return seen


async def test_processes_that_write_at_once_lose_nothing_and_their_reader_misses_nothing(
    tmp_path: Path, processes: Processes
) -> None:
    path, writers, steps = tmp_path / "log.db", ["a", "b", "c"], 25
    for name in writers:
        processes.start(path, name, "count", steps)

    store = SQLiteEventStore(path, durability="normal")
    setup = asyncio.create_task(store.setup())  # races theirs
    await asyncio.to_thread(processes.let_go)
    await setup
    total = 2 + len(writers) * (1 + 4 * steps)
    seen = await follow(store, total)

    assert len({(event.run_id, event.seq) for event in seen}) == len(seen) == total
    assert seen == await all_events(store, limit=1000)
    for run_id in ("counter", "signals", *writers):
        log = await store.read(run_id)
        assert [event.seq for event in log] == list(range(1, len(log) + 1))
        assert [event for event in seen if event.run_id == run_id] == log
    counted = [event.data.get("total") for event in await store.read("counter")]
    assert counted == [None, *range(1, len(writers) * steps + 1)]
    assert (await verify_store(store)).faults == []
    await store.close()
    assert processes.finish() == [0, 0, 0]


@pytest.mark.parametrize(
    ("point", "kept"), [("before it", 0), ("amid it", 0), ("at its end", 0), ("after it", 5)]
)
async def test_a_process_that_dies_in_a_transaction_leaves_all_of_it_or_nothing(
    tmp_path: Path, processes: Processes, point: str, kept: int
) -> None:
    processes.start(tmp_path / "log.db", point, "die", 5)
    processes.let_go()

    assert processes.finish() == [9]
    report, lengths = await inspect(tmp_path / "log.db")
    assert report == VerifyReport(1 + kept, 1 + 4 * kept, [])
    assert lengths == {"before": 1, **{f"run-{number}": 4 for number in range(kept)}}


@pytest.mark.parametrize("acknowledged", [1, 10, 50])
async def test_a_killed_process_leaves_all_acknowledged_events(
    tmp_path: Path, processes: Processes, acknowledged: int
) -> None:
    process = processes.start(tmp_path / "log.db", "killed", "acknowledge", 4)
    processes.let_go()
    acknowledged_heads: dict[str, int] = {}
    for _ in range(acknowledged):
        run_id, head = read_line(process).split()
        acknowledged_heads[run_id] = int(head)
    processes.kill()

    report, lengths = await inspect(tmp_path / "log.db")
    assert report.faults == []
    assert {length % 3 for length in lengths.values()} == {1}
    assert all(lengths[run_id] >= head for run_id, head in acknowledged_heads.items())


async def inspect(path: Path) -> tuple[VerifyReport, dict[str, int]]:
    """Open what a dead process has left, append to it, and return what it held."""

    async def main() -> tuple[VerifyReport, dict[str, int]]:
        store = SQLiteEventStore(path)
        await store.setup()
        report = await verify_store(store)
        lengths = {info.run_id: info.head for info in await store.runs()}
        assert [event.seq for event in await begin(store, "after", 2)] == [1, 2, 3]
        await store.close()
        return report, lengths

    return await main()
