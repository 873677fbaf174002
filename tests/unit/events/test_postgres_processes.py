"""A PostgreSQL event store in the hands of several processes."""

import subprocess
import sys
from pathlib import Path

from lib.events import PostgresEventStore
from lib.testing.event_store.kit import all_events
from servers import postgres

APPENDER = Path(__file__).with_name("appender.py")


async def test_processes_that_append_to_the_same_runs_lose_and_repeat_nothing(
    unmeasured: dict[str, str],
) -> None:
    url = postgres.fresh_url()
    commands = [[sys.executable, str(APPENDER), url, name, "count", "15"] for name in ("a", "b")]
    processes = [
        subprocess.Popen(command, stdin=subprocess.PIPE, encoding="utf-8", env=unmeasured)
        for command in commands
    ]
    for process in processes:
        assert process.stdin
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        process.communicate()

    async def main() -> None:
        store = PostgresEventStore(url, read_only=True)
        await store.setup()
        counter = await store.read("counter")
        assert [event.data["total"] for event in counter[1:]] == list(range(1, 31))
        assert [len(await store.read(name)) for name in ("a", "b", "signals")] == [31] * 3
        feed = await all_events(store)
        for name in ("counter", "a", "b", "signals"):
            assert [event for event in feed if event.run_id == name] == await store.read(name)
        await store.close()

    assert [process.returncode for process in processes] == [0, 0]
    await main()
