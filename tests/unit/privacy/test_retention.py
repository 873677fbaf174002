"""Retention: what has been idle long enough goes, tree by tree, and nothing else."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from lib.errors import RunNotFound
from lib.events import EventStore, MemoryBlobStore, MemoryEventStore, RunInfo, RunQuery
from lib.privacy.erase import Erased, erase_run
from lib.privacy.retention import expire
from lib.testing.clock import ManualClock
from lib.testing.event_store.kit import attached, begin, ended, note, started

DAY = timedelta(days=1)


def days_old(clock: ManualClock, days: float) -> datetime:
    return clock.now() - days * DAY


async def opened(clock: ManualClock) -> MemoryEventStore:
    store = MemoryEventStore(clock=clock)
    await store.setup()
    return store


async def closed(store: EventStore, run_id: str, at: datetime, **start: Any) -> None:
    events = [started(at=at, **start), ended()]
    events[1] = type(events[1])(events[1].kind, events[1].data, at)
    await store.append(run_id, events, expected=0)


async def left(store: EventStore) -> list[str]:
    return [info.run_id for info in await store.runs()]


def below(root: str) -> dict[str, Any]:
    return {"parent": {"run_id": root, "key": "k"}, "root": root}


async def test_closed_trees_go_when_their_last_event_is_old_enough() -> None:
    clock = ManualClock()
    store = await opened(clock)
    await closed(store, "old", days_old(clock, 40))
    await closed(store, "old/child", days_old(clock, 39), **below("old"))
    await closed(store, "busy", days_old(clock, 40))
    await closed(store, "busy/child", days_old(clock, 1), **below("busy"))
    await closed(store, "scored", days_old(clock, 40))
    await store.append("scored", [note(at=days_old(clock, 2))], expected=None)
    await store.append("waits", [started(at=days_old(clock, 40))], expected=0)
    would = await expire(store, older_than=30 * DAY, clock=clock, dry_run=True)
    done = await expire(store, older_than=30 * DAY, clock=clock)

    assert would == done == Erased(runs=2, events=4)
    assert await left(store) == ["busy", "busy/child", "scored", "waits"]
    assert await expire(store, older_than=30 * DAY, clock=clock) == Erased()


async def test_open_trees_are_erased_only_if_requested_and_not_driven() -> None:
    clock = ManualClock()
    store = await opened(clock)
    await store.append("driven", [started(at=days_old(clock, 40))], expected=0)
    await store.claim("worker", ttl_s=30, run_id="driven")
    await closed(store, "parent", days_old(clock, 40))
    orphan = started(at=days_old(clock, 40), **below("parent"))
    await store.append("orphan", [orphan], expected=0)

    assert await expire(store, older_than=30 * DAY, clock=clock) == Erased()
    erased = await expire(store, older_than=30 * DAY, include_open=True, clock=clock)
    assert erased == Erased(runs=2, events=3)
    assert await left(store) == ["driven"]
    clock.advance(31)
    erased = await expire(store, older_than=30 * DAY, include_open=True, clock=clock)
    assert erased == Erased(runs=1, events=1)


async def test_a_call_does_a_bounded_part_of_one_tenants_work() -> None:
    clock = ManualClock()
    store, blobs = await opened(clock), MemoryBlobStore(clock=clock)
    digest = await blobs.put(b"content")
    for number in range(5):
        message = attached(digest, size=7)
        await closed(store, f"a{number}", days_old(clock, 9), tenant="acme", input=message)
        await closed(store, f"g{number}", days_old(clock, 9), tenant="globex")
    await store.append("a0", [note(at=clock.now())], expected=None)

    counts = [
        (await expire(store, older_than=DAY, blobs=blobs, tenant="acme", clock=clock, limit=2))
        for _ in range(3)
    ]
    assert [one.runs for one in counts] == [2, 2, 0]
    assert await left(store) == ["a0", *(f"g{number}" for number in range(5))]
    assert await blobs.has(digest)
    for older_than, limit in ((timedelta(0), 1), (DAY, 0)):
        with pytest.raises(ValueError, match="positive"):
            await expire(store, older_than=older_than, limit=limit)


async def test_several_pages_of_trees_that_stay_are_passed() -> None:
    clock = ManualClock()
    store = await opened(clock)
    for number in range(10):
        await closed(store, f"r{number}", days_old(clock, 9))
        if number % 4:
            child = started(at=days_old(clock, 9), **below(f"r{number}"))
            await store.append(f"r{number}/c", [child], expected=0)

    assert (await expire(store, older_than=DAY, clock=clock, dry_run=True, page=3)).runs == 3
    assert (await expire(store, older_than=DAY, clock=clock, page=3)).runs == 3


async def test_a_tree_that_another_process_erases_meanwhile_ends_the_call() -> None:
    class Racing(MemoryEventStore):
        async def runs(self, query: RunQuery | None = None) -> list[RunInfo]:
            found = await super().runs(query)
            if query is not None and query.roots and found:
                await super().erase(found[0].run_id)
            return found

    clock = ManualClock()
    store = Racing(clock=clock)
    await store.setup()
    await closed(store, "one", days_old(clock, 9))

    assert await expire(store, older_than=DAY, clock=clock) == Erased()
    with pytest.raises(RunNotFound):
        await store.runs(RunQuery(after="one"))
    assert await erase_run(store, "one") == Erased()


async def test_times_of_the_log_are_what_counts() -> None:
    clock = ManualClock()
    store = await opened(clock)
    await begin(store, "later than the clock says", end=True)

    assert await expire(store, older_than=DAY, clock=clock) == Erased()
