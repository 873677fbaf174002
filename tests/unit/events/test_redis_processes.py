"""A Redis event store in the hands of several processes, one of them its server."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lib.events import RedisEventStore
from lib.events.verify import verify_store
from servers.redis import fresh_url, own_server

from .redis_kit import everything, feeds

APPENDER = Path(__file__).with_name("appender.py")
Process = subprocess.Popen[str]


@pytest.fixture
def processes() -> Iterator[list[Process]]:
    processes: list[Process] = []
    yield processes
    for process in processes:
        process.kill()
        process.communicate()


def start(processes: list[Process], url: str, name: str, mode: str, number: int) -> Process:
    command = [sys.executable, str(APPENDER), url, name, mode, str(number)]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8"
    )
    processes.append(process)
    assert process.stdout
    assert process.stdout.readline() == "ready\n"
    return process


def let_go(processes: list[Process]) -> None:
    for process in processes:
        assert process.stdin
        process.stdin.write("go\n")
        process.stdin.flush()


async def test_processes_that_write_at_once_lose_nothing_and_agree(
    processes: list[Process],
) -> None:
    url, times = fresh_url(), 25
    for number in range(3):
        start(processes, url, f"process-{number}", "count", times)
    let_go(processes)
    for process in processes:
        process.communicate()
    assert [process.returncode for process in processes] == [0, 0, 0]

    store = RedisEventStore(url)
    await store.setup()
    counter = await store.read("counter")
    assert counter[-1].data["total"] == 3 * times
    assert len(await store.read("signals")) == 3 * times + 1
    found = await feeds(store)
    for info in await store.runs():
        log = await store.read(info.run_id)
        assert [event.seq for event in log] == list(range(1, len(log) + 1))
        [own] = [events for events in found if log[0] in events]
        assert [event for event in own if event.run_id == info.run_id] == log
    await store.close()


async def test_confirmed_events_survive_a_killed_server(
    processes: list[Process],
) -> None:
    server = own_server("--appendfsync", "always")
    process = start(processes, server.url, "run", "acknowledge", 8)
    let_go(processes)
    assert process.stdout
    lines = [process.stdout.readline() for _ in range(60)]
    server.stop(signal.SIGKILL)
    lines += process.stdout.readlines()
    server.start()
    confirmed: dict[str, int] = {}
    for line in lines:
        run_id, head = line.split()
        confirmed[run_id] = int(head)

    async def main() -> None:
        store = RedisEventStore(server.url)
        await store.setup()
        for run_id, head in confirmed.items():
            found = await store.run(run_id)
            assert found is not None
            assert found.head >= head
            assert found.head == len(await store.read(run_id))
            assert found.head % 3 == 1  # whole batches
        assert (await verify_store(store)).faults == []
        assert len(await everything(store)) == sum(info.head for info in await store.runs())
        await store.close()

    await main()
    server.stop()
