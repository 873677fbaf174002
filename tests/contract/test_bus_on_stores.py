"""Buses over store objects of their own on one place, as processes have them; one of them dies."""

import asyncio
import sys
from collections import defaultdict
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from lib._util.clock import SYSTEM_CLOCK
from lib.events import Event, EventStore
from lib.events.bus import Bus
from lib.events.bus.claim import Progress
from lib.events.runs import partition_of
from lib.testing.event_store import StoreKind
from lib.testing.event_store.kit import begin, note

sys.path.insert(0, str(Path(__file__).parent))

from test_event_stores import EVENT_STORES, SERVERS

RUNS, EVENTS, BATCH = 4, 40, 3
Key = tuple[str, int]


class Dying:
    """The store of a killed process: it carries out none of its later calls."""

    def __init__(self, store: EventStore) -> None:
        self._store, self.dead = store, False

    def __getattr__(self, name: str) -> Any:
        if self.dead and name != "close":
            raise asyncio.CancelledError
        return getattr(self._store, name)


class Processes:
    """Three processes, and the events that their group has received."""

    def __init__(self, kind: StoreKind, place: Path) -> None:
        self._stores = [Dying(kind.open(place, SYSTEM_CLOCK)) for _ in range(3)]
        self.pumps: list[asyncio.Task[None]] = []
        self.busy: dict[int, int] = {}
        self.seen: defaultdict[int, list[Key]] = defaultdict(list)
        self.faults: list[str] = []

    @property
    def store(self) -> Any:
        return next(store for store in self._stores if not store.dead)

    async def start(self) -> None:
        for process, store in enumerate(self._stores):
            await store.setup()
            bus = Bus(cast(EventStore, store), batch=BATCH, lease_s=3600, poll_s=0.05)
            await bus.subscribe("group", self._handler(process))
            self.pumps.append(asyncio.create_task(bus.run()))

    def _handler(self, process: int) -> Any:
        async def handle(events: list[Event]) -> None:
            (partition,) = {partition_of(e.run_id, self.store.partitions) for e in events}
            if partition in self.busy:
                self.faults.append(f"{self.busy[partition]} and {process} are in {partition}")
            self.busy[partition] = process
            try:
                await SYSTEM_CLOCK.sleep(0.002)
                self.seen[partition] += [(event.run_id, event.seq) for event in events]
            finally:
                self.busy.pop(partition, None)

        return handle

    async def kill(self) -> str:
        """Kill the first process that is at work; return the name of its bus."""
        while not self.busy:
            await SYSTEM_CLOCK.sleep(0)
        partition, process = next(iter(self.busy.items()))
        self._stores[process].dead = True
        self.pumps[process].cancel()
        await asyncio.wait([self.pumps[process]])
        text = await self.store.mark(f"bus/group/{partition}")
        owner = Progress.decode(text).owner
        assert owner is not None
        return owner

    async def end_claims(self, owner: str) -> None:
        """Let the time of the claims of this bus be over, and of no others."""
        for name, text in (await self.store.marks("bus/group/")).items():
            place = Progress.decode(text)
            if place.owner == owner:
                ended = replace(place, until=0.0).encode()
                await self.store.compare_and_set_mark(name, expected=text, value=ended)

    async def delivered(self, keys: set[Key], *, dead: str) -> None:
        while {key for some in self.seen.values() for key in some} < keys:
            await self.end_claims(dead)
            await SYSTEM_CLOCK.sleep(0.005)

    async def stop(self) -> None:
        for pump in self.pumps:
            pump.cancel()
            with suppress(asyncio.CancelledError):
                await pump
        for store in self._stores:
            await store.close()


@pytest.mark.parametrize("name", [name for name, kind in EVENT_STORES.items() if kind.shared])
async def test_partitions_claimed_by_a_dead_process_are_delivered_by_another_in_order(
    name: str, tmp_path: Path
) -> None:
    if start := SERVERS.get(name):
        start()

    dead, some = "", Processes(EVENT_STORES[name], tmp_path)
    await some.start()
    for number in range(RUNS):
        await begin(some.store, f"run-{number}")
    for head in range(1, EVENTS):
        for number in range(RUNS):
            await some.store.append(f"run-{number}", [note()], expected=head)
        if head == EVENTS // 2:
            dead = await some.kill()
    keys = {(f"run-{n}", seq) for n in range(RUNS) for seq in range(1, EVENTS + 1)}
    await some.delivered(keys, dead=dead)
    await some.stop()
    check_order(some)


def check_order(some: Processes) -> None:
    assert some.faults == []
    for keys in some.seen.values():
        first = list(dict.fromkeys(keys))
        for run_id in {run_id for run_id, _ in keys}:
            assert [seq for i, seq in first if i == run_id] == list(range(1, EVENTS + 1))
    assert sum(map(len, some.seen.values())) <= RUNS * EVENTS + BATCH * RUNS


@pytest.mark.parametrize("erased", [False, True])
@pytest.mark.parametrize("name", EVENT_STORES)
async def test_an_event_in_hand_is_identified_by_the_cursor_after_it(
    name: str, erased: bool, tmp_path: Path
) -> None:
    if start := SERVERS.get(name):
        start()

    store = EVENT_STORES[name].open(tmp_path, SYSTEM_CLOCK)
    await store.setup()
    where, seen = partition_of("tree", store.partitions), list[str]()
    await begin(store, "before", root="tree", notes=1)
    passed = (await store.feed(limit=2, partition=where)).cursor
    for run_id in ("deadly", "innocent", "later"):
        await begin(store, run_id, root="tree")
    hand = (await store.feed(passed, limit=1, partition=where)).cursor
    place = Progress(cursor=passed, alone=3, hand=hand, died=2)
    await store.set_mark(f"bus/group/{where}", place.encode())
    if erased:
        await store.erase("deadly")

    async def handle(events: list[Event]) -> None:
        seen.extend(event.run_id for event in events)

    bus = Bus(store)
    await bus.subscribe("group", handle)
    while not await bus.flush():
        pass
    dead = [letter.run_id for letter in await bus.dead_letters("group")]
    await store.close()
    assert (seen, dead) == (["innocent", "later"], [] if erased else ["deadly"])
