"""Several processes that share groups of a bus: they start, hang, fail, are killed, and come back.

Nothing here waits for real time: the clock is moved by hand, and the event loop's time-outs with
it. A store between each process and its data lets others run around every call, so that a process
may die anywhere.
"""

import asyncio
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, cast

from lib.events import Event, EventStore, FeedPage, MemoryEventStore, NewEvent, RunInfo
from lib.events import kinds as k
from lib.events.bus import Bus
from lib.events.runs import partition_of
from lib.events.store import run_mark
from lib.events.wakeups import Wakeups
from lib.testing.clock import ManualClock

from .process_kit import Mortal, SlowStore

LEASE_S, POLL_S, MOST = 6.0, 1.0, 3
Key = tuple[str, int]


class PartitionedStore:
    """The part of a store that a bus uses, with a memory store for each partition."""

    def __init__(self, partitions: int, clock: ManualClock) -> None:
        self.partitions = partitions
        self.wakeups = Wakeups()
        self._stores = [MemoryEventStore(clock=clock) for _ in range(partitions)]

    def partition(self, run_id: str) -> int:
        return partition_of(run_id, self.partitions)

    def _of(self, run_id: str) -> MemoryEventStore:
        return self._stores[self.partition(run_id)]

    async def setup(self) -> None:
        for store in self._stores:
            await store.setup()

    async def append(
        self, run_id: str, events: Sequence[NewEvent], *, expected: int | None
    ) -> list[Event]:
        stored = await self._of(run_id).append(run_id, events, expected=expected)
        self.wakeups.committed(run_id, signal=False, partition=self.partition(run_id))
        return stored

    async def read(self, run_id: str, **rest: Any) -> list[Event]:
        return await self._of(run_id).read(run_id, **rest)

    async def run(self, run_id: str) -> RunInfo | None:
        return await self._of(run_id).run(run_id)

    async def feed(self, after: str = "", *, limit: int = 512, partition: int = 0) -> FeedPage:
        return await self._stores[partition].feed(after, limit=limit)

    async def erase(self, run_id: str) -> bool:
        for name in await self.marks(run_mark(run_id)):
            await self._stores[0].compare_and_set_mark(
                name, expected=await self.mark(name), value=None
            )
        return await self._of(run_id).erase(run_id)

    async def mark(self, name: str) -> str | None:
        return await self._stores[0].mark(name)

    async def marks(self, prefix: str) -> dict[str, str]:
        return await self._stores[0].marks(prefix)

    async def set_mark(self, name: str, value: str) -> None:
        await self._stores[0].set_mark(name, value)

    async def compare_and_set_mark(
        self, name: str, *, expected: str | None, value: str | None
    ) -> bool:
        return await self._stores[0].compare_and_set_mark(name, expected=expected, value=value)


@dataclass
class Seen:
    """The deliveries to a group in one partition.

    Attributes:
        handled: the events that some handler has returned for.
        busy: the processes that are at work.
    """

    handled: set[Key] = field(default_factory=set[Key])
    busy: set["Process"] = field(default_factory=set["Process"])


class World:
    """The store, its events in the order of their commits, and who has handled them."""

    def __init__(self, partitions: int, groups: Sequence[str]) -> None:
        self.clock = ManualClock()
        self.store: Any = (
            MemoryEventStore(clock=self.clock)
            if partitions == 1
            else PartitionedStore(partitions, self.clock)
        )
        self.groups = groups
        self.order: defaultdict[int, list[Key]] = defaultdict(list)
        self.seen: defaultdict[tuple[str, int], Seen] = defaultdict(Seen)
        self.poison: set[Key] = set()
        self.deadly: set[Key] = set()
        self.faults: list[str] = []
        self.heads: dict[str, int] = {}
        self.erased: set[str] = set()
        self.dead: dict[str, set[Key]] = {}

    def partition(self, run_id: str) -> int:
        return partition_of(run_id, self.store.partitions)

    async def append(self, run_id: str, count: int) -> list[Key]:
        """Append events to a run, which begins with the first; to the next one, if it is erased."""
        run_id = self._living(run_id)
        head = self.heads.get(run_id, 0)
        start = NewEvent(k.RUN_STARTED, {"algorithm": "a", "input": []}, self.clock.now())
        note = NewEvent("tests.note", {}, self.clock.now())
        events = [start if seq == 0 else note for seq in range(head, head + count)]
        await self.store.append(run_id, events, expected=head)
        self.heads[run_id] = head + count
        keys = [(run_id, seq) for seq in range(head + 1, head + count + 1)]
        self.order[self.partition(run_id)] += keys
        return keys

    def _living(self, run_id: str) -> str:
        while run_id in self.erased:
            run_id += "+"
        return run_id

    async def erase(self, run_id: str) -> None:
        """Erase a run, if there is one."""
        run_id = self._living(run_id)
        if await self.store.erase(run_id):
            self.erased.add(run_id)
            order = self.order[self.partition(run_id)]
            order[:] = [key for key in order if key[0] != run_id]

    def left_of(self, keys: Collection[Key]) -> list[Key]:
        """Return those of these events that have not been erased."""
        return [key for key in keys if key[0] not in self.erased]

    async def look_for_the_dead(self) -> None:
        for group in self.groups:
            letters = await Bus(self.store).dead_letters(group)
            self.dead[group] = {(letter.run_id, letter.seq) for letter in letters}
            for letter in letters:
                is_poison = (letter.run_id, letter.seq) in self.poison
                if not is_poison and letter.error != "died":
                    self.faults.append(f"nothing was wrong with {letter}")

    async def lacking(self) -> list[tuple[str, Key]]:
        """Return the events that a group neither has handled nor put aside."""
        await self.look_for_the_dead()
        return [
            (group, key)
            for partition, keys in self.order.items()
            for group in self.groups
            for key in keys
            if key not in self.seen[group, partition].handled and key not in self.dead[group]
        ]


class Process(Mortal):
    """A bus, as one process of many has it."""

    def __init__(self, world: World, dice: Random, *, batch: int) -> None:
        super().__init__(dice)
        self._world = world
        self.store = cast(EventStore, SlowStore(world.store, self))
        self.bus = Bus(
            self.store,
            clock=world.clock,
            batch=batch,
            poll_s=POLL_S,
            lease_s=LEASE_S,
            max_deliveries=MOST,
        )

    async def start(self, groups: Collection[str]) -> None:
        self.pump = self.call(self.bus.run())
        for group in groups:
            await self.bus.subscribe(group, self._handler(group))

    def _handler(self, group: str) -> Any:
        async def handle(events: list[Event]) -> None:
            partition = self._world.partition(events[0].run_id)
            seen = self._world.seen[group, partition]
            if seen.busy:
                self._world.faults.append(f"two handlers of {group} in partition {partition}")
            seen.busy.add(self)
            try:
                keys = self._world.left_of([(event.run_id, event.seq) for event in events])
                if keys:
                    await self._work(group, partition, keys)
            finally:
                seen.busy.discard(self)

        return handle

    async def _work(self, group: str, partition: int, keys: list[Key]) -> None:
        seen, order = self._world.seen[group, partition], self._world.order[partition]
        before = set(order[: order.index(keys[0])]) - seen.handled
        if before:
            await self._world.look_for_the_dead()
            before = set(self._world.left_of(before))
            if not before <= self._world.dead[group]:
                self._world.faults.append(f"events were skipped: {before}")
        if order[order.index(keys[0]) :][: len(keys)] != keys:
            self._world.faults.append(f"this is not the order: {keys}")
        for _ in range(self.dice.randrange(5)):
            if self.dice.random() < 0.1:
                await self._world.clock.sleep(self.dice.choice([0.1, LEASE_S * 1.5]))
            await self.breathe()
        if self._world.deadly.intersection(keys):
            self.die()
            await asyncio.sleep(0)  # noqa: TID251 - it is cancelled here
        if self._world.poison.intersection(keys):
            raise ConnectionError("connection refused")
        seen.handled |= set(keys)

    async def close(self, groups: Collection[str]) -> None:
        for group in groups:
            await self.bus.unsubscribe(group)
        self.pump.cancel()
        await asyncio.wait([self.pump])
        self.alive = False
