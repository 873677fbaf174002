"""A process of its own that appends to a store: `appender.py PATH NAME MODE [NUMBER]`.

It prints "ready", waits for a line, and carries out MODE.
"""

import asyncio
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from lib.errors import Conflict
from lib.events import (
    EventStore,
    NewEvent,
    PostgresEventStore,
    RedisEventStore,
    SQLiteEventStore,
)
from lib.events.stores.sqlite import rows
from lib.events.wakeups import Wakeups
from lib.testing.event_store.kit import AT, NOTE, begin, note


async def count(store: EventStore, name: str, times: int) -> None:
    """Add one to a counter that all processes share, and note each step in a run of its own."""
    await begin(store, name)
    for shared in ("counter", "signals"):
        with suppress(Conflict):
            await begin(store, shared)
    for step in range(1, times + 1):
        await add_one(store)
        await store.append(name, [note(str(step)), note(str(step))], expected=2 * step - 1)
        await store.append("signals", [note(name)], expected=None)


async def add_one(store: EventStore) -> None:
    while True:
        last = (await store.read("counter"))[-1]
        total = last.data.get("total", 0) + 1
        try:
            await store.append("counter", [NewEvent(NOTE, {"total": total}, AT)], expected=last.seq)
        except Conflict:
            continue
        return


async def acknowledge(store: EventStore, _name: str, runs: int) -> None:
    """Append batches of three to several runs for ever, and say so once each is stored."""

    async def write(run_id: str) -> None:
        head = len(await begin(store, run_id))
        while True:
            await store.append(run_id, [note("x" * 500)] * 3, expected=head)
            head += 3
            say(f"{run_id} {head}")

    await asyncio.gather(*(write(f"run-{number}") for number in range(runs)))


async def die(store: EventStore, point: str, runs: int) -> None:
    """Append to several runs in one transaction, and die at some point of it."""
    await begin(store, "before")
    dying: dict[str, Callable[[], None]] = {
        "before it": lambda: replace(rows, "write_runs", before=True),
        "amid it": lambda: replace(rows, "insert_events", before=True),
        "at its end": lambda: replace(rows, "insert_events", before=False),
        "after it": lambda: replace(Wakeups, "committed", before=True),
    }
    dying[point]()
    await asyncio.gather(*(begin(store, f"run-{number}", 3) for number in range(runs)))


def replace(owner: Any, name: str, *, before: bool) -> None:
    """Let a function end the process, before it begins or after it is done."""
    original = getattr(owner, name)

    def last(*args: Any, **named: Any) -> None:
        if not before:
            original(*args, **named)
        os._exit(9)

    setattr(owner, name, last)


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


async def main(path: str, name: str, mode: str, number: str) -> None:
    say("ready")
    await asyncio.to_thread(sys.stdin.readline)
    if path.startswith("redis:"):
        store = RedisEventStore(path)
    elif path.startswith("postgresql:"):
        store = PostgresEventStore(path)
    else:
        store = SQLiteEventStore(path, durability="normal")
    await store.setup()
    await {"count": count, "acknowledge": acknowledge, "die": die}[mode](store, name, int(number))
    await store.close()


asyncio.run(main(*sys.argv[1:]))
