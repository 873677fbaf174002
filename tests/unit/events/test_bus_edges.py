"""Moments between two steps of a bus: events erased, stores that break, groups that begin."""

import asyncio
import logging
from collections import Counter
from contextlib import suppress

import pytest

from lib.events import Event, FeedPage, MemoryEventStore
from lib.events.bus import Bus
from lib.events.runs import partition_of
from lib.events.wakeups import Wakeups
from lib.testing.clock import ManualClock
from lib.testing.event_store.kit import begin, note

from .bus_kit import PLACE, Store, pause, running, until

PARTITIONS = 8


class OnePartition(Wakeups):
    """Reports the partition of every commit."""

    def committed(self, run_id: str, *, signal: bool, partition: int | None = None) -> None:
        super().committed(run_id, signal=signal, partition=partition_of(run_id, PARTITIONS))


class Partitioned(MemoryEventStore):
    """Has several partitions, lets others run before each call, counts the looks at the feeds."""

    def __init__(self) -> None:
        super().__init__()
        self._wakeups = OnePartition()
        self.feeds: Counter[int] = Counter()

    @property
    def partitions(self) -> int:
        return PARTITIONS

    async def feed(self, after: str = "", *, limit: int = 512, partition: int = 0) -> FeedPage:
        self.feeds[partition] += 1
        await pause()
        page = await super().feed(after)  # everything: the limit is of no matter here
        own = [e for e in page.events if partition_of(e.run_id, PARTITIONS) == partition]
        return FeedPage(own, page.cursor)

    async def compare_and_set_mark(
        self, name: str, *, expected: str | None, value: str | None
    ) -> bool:
        await pause()
        return await super().compare_and_set_mark(name, expected=expected, value=value)


class Breaking(Store):
    """Breaks in ways that no store may."""

    def __init__(self) -> None:
        super().__init__()
        self.breaks_swaps = self.dies_at_marks = False

    async def compare_and_set_mark(
        self, name: str, *, expected: str | None, value: str | None
    ) -> bool:
        if self.breaks_swaps:
            raise RuntimeError("a driver's own error")
        return await super().compare_and_set_mark(name, expected=expected, value=value)

    async def set_mark(self, name: str, value: str) -> None:
        await super().set_mark(name, value)
        if self.dies_at_marks and name.startswith("run/"):
            raise asyncio.CancelledError


async def many_partitions(runs: int = 32) -> Partitioned:
    store = Partitioned()
    await store.setup()
    for number in range(runs):
        await begin(store, f"run-{number}")
    return store


# -- groups that begin -------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["runs", "is begun", "is flushed"])
async def test_a_group_that_begins_now_gets_no_old_event_while_the_bus_runs(
    how: str,
) -> None:
    store, seen = await many_partitions(), list[Event]()

    async def handle(events: list[Event]) -> None:
        seen.extend(events)

    bus = Bus(store, poll_s=0.01)
    if how == "is flushed":
        subscribing = asyncio.create_task(bus.subscribe("group", handle, start="now"))
        while not subscribing.done():
            assert await bus.flush()
            await pause()
    else:
        subscribing = asyncio.create_task(pause())
        if how == "is begun":
            subscribing = asyncio.create_task(bus.subscribe("group", handle, start="now"))
            await pause()
        async with running(bus):
            if how == "runs":
                await pause()
                await bus.subscribe("group", handle, start="now")
            await subscribing
            await pause(0.05)
    assert seen == []
    await begin(store, "new")
    assert await bus.flush()
    assert [event.run_id for event in seen] == ["new"]


async def test_a_group_that_leaves_while_it_begins_gets_no_event() -> None:
    store, seen = await many_partitions(), list[Event]()

    async def handle(events: list[Event]) -> None:
        seen.extend(events)

    bus = Bus(store, poll_s=0.01)
    async with running(bus):
        subscribing = asyncio.create_task(bus.subscribe("group", handle, start="now"))
        await pause()
        await bus.unsubscribe("group")
        await subscribing
        await begin(store, "new")
        await pause(0.05)
    assert seen == []


async def test_an_append_wakes_the_groups_in_its_own_partition_only() -> None:
    store, seen = await many_partitions(runs=0), list[Event]()

    async def handle(events: list[Event]) -> None:
        seen.extend(events)

    await begin(store, "run")
    bus = Bus(store, poll_s=3600, lease_s=3600)
    await bus.subscribe("group", handle)
    async with running(bus):
        await until(lambda: seen and len(store.feeds) == PARTITIONS)
        for _ in range(100):  # all of them wait now
            await pause()
        store.feeds.clear()
        for seq in range(1, 11):
            await store.append("run", [note()], expected=seq)
            await until(lambda: len(seen) == seq + 1)  # noqa: B023 - awaited here
    assert list(store.feeds) == [partition_of("run", PARTITIONS)]


# -- events alone ------------------------------------------------------------------------------


async def test_deaths_during_an_erased_event_do_not_count_against_the_next() -> None:
    clock, store = ManualClock(), Breaking()
    await store.setup()
    for name in ("deadly", "innocent", "later"):
        await begin(store, name)
    await store.put(alone=5)
    for _ in range(2):
        bus, gate = Bus(store, clock=clock), asyncio.Event()

        async def die(_: list[Event], gate: asyncio.Event = gate) -> None:
            gate.set()
            await asyncio.Event().wait()

        await bus.subscribe("group", die)
        flush = asyncio.create_task(bus.flush())
        await gate.wait()
        place = await store.place()  # as a process that is killed leaves it
        flush.cancel()
        await asyncio.wait([flush])
        await store.put(**place | {"owner": "dead", "until": 0})
    await store.erase("deadly")
    seen = list[str]()

    async def handle(events: list[Event]) -> None:
        seen.extend(event.run_id for event in events)

    bus = Bus(store, clock=clock)
    await bus.subscribe("group", handle)
    assert await bus.flush()
    assert seen == ["innocent", "later"]
    assert await bus.dead_letters("group") == []


async def test_a_dead_process_leaves_no_dead_letter_of_an_erased_run_for_good() -> None:
    clock, store = ManualClock(), Breaking()
    await store.setup()
    await begin(store, "bad")
    await store.put(alone=5)

    async def fail(_: list[Event]) -> None:
        await store.erase("bad")
        store.dies_at_marks = True
        raise KeyError

    bus = Bus(store, clock=clock, lease_s=1)
    await bus.subscribe("group", fail)
    with suppress(asyncio.CancelledError):
        await bus.flush()
    store.dies_at_marks = False
    assert await store.marks("run/bad")
    place = await store.place()
    await store.put(**place | {"owner": "dead", "until": 0})

    seen = list[str]()

    async def handle(events: list[Event]) -> None:
        seen.extend(event.run_id for event in events)

    await begin(store, "next")
    other = Bus(store, clock=clock)
    await other.subscribe("group", handle)
    assert await other.flush()
    assert seen == ["next"]
    assert await store.marks("run/") == {}


async def test_a_dead_letter_erased_during_its_redelivery_stays_erased() -> None:
    clock, store = ManualClock(), Breaking()
    await store.setup()
    await begin(store, "bad")
    await store.put(alone=5)
    erases = False

    async def fail(_: list[Event]) -> None:
        if erases:
            await store.erase("bad")
            store.dies_at_marks = True
        raise KeyError

    bus = Bus(store, clock=clock)
    await bus.subscribe("group", fail)
    await bus.flush()
    assert [letter.seq for letter in await bus.dead_letters("group")] == [1]
    erases = True
    assert await bus.retry_dead_letters("group") == 0
    assert await store.marks("run/") == {}


# -- stores that break -------------------------------------------------------------------------


async def test_a_claim_is_renewed_again_after_any_error_of_the_store(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        store, gate = Breaking(), asyncio.Event()
        await store.setup()
        await begin(store, "run")

        async def slow(_: list[Event]) -> None:
            store.breaks_swaps = True
            await gate.wait()

        bus = Bus(store, lease_s=0.03, poll_s=0.01)
        await bus.subscribe("group", slow)
        async with running(bus):
            await until(lambda: caplog.messages)
            store.breaks_swaps = False
            until_then = (await store.place())["until"]
            while (await store.place())["until"] == until_then:
                await pause(0.001)
            gate.set()

    with caplog.at_level(logging.WARNING, "lib.events.bus"):
        await main()
    assert caplog.messages[0] == f"the claim {PLACE} was not renewed"


async def test_a_claim_that_cannot_be_released_stops_no_group() -> None:
    store, clock, seen = Breaking(), ManualClock(), list[str]()
    await store.setup()
    await begin(store, "run")

    async def handle(events: list[Event]) -> None:
        if not seen:
            store.breaks_swaps = True
        seen.extend(event.run_id for event in events)

    bus = Bus(store, clock=clock)
    await bus.subscribe("group", handle)
    async with running(bus) as pumps:
        await until(lambda: clock.sleepers)
        store.breaks_swaps = False
        clock.advance(60)
        await until(lambda: len(seen) == 2)
        assert not pumps.done()
