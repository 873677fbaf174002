"""Any number of buses over one store: every event to every group, in order, one handler at once."""

import asyncio
import logging
import os
from collections.abc import Iterator
from functools import partial
from random import Random
from typing import Any
from urllib.parse import quote

import pytest

from lib.events import Event
from lib.events.bus import Bus
from lib.testing.clock import ManualClock
from lib.testing.event_store.kit import begin, note

from .bus_world import LEASE_S, PartitionedStore, Process, World
from .process_kit import new_loop

GROUPS = ["a", "b/0"]
MAX_PROCESSES = 3
STEPS = 40
SEEDS = int(os.environ.get("BUS_SEEDS", "500" if os.environ.get("LIB_TEST_LONG") else "25"))


class Story:
    """Does at random what may happen to processes that share the groups of a store."""

    def __init__(self, seed: int, partitions: int) -> None:
        self.dice = Random(seed)
        self.world = World(partitions, GROUPS)
        self.processes: list[Process] = []

    async def tell(self) -> None:
        await self.world.store.setup()
        rules = [
            self.start,
            self.crash,
            self.flush,
            self.grow,
            self.grow,
            self.grow_poison,
            self.erase,
        ]
        rules += [self.pass_time, self.pass_time, self.go_on, self.go_on, self.go_on]
        for _ in range(STEPS):
            await self.dice.choice(rules)()
            self.processes = [process for process in self.processes if process.alive]
        await self.settle()

    async def spin(self, rounds: int) -> None:
        for _ in range(rounds):
            await asyncio.sleep(0)  # noqa: TID251 - lets the processes run

    async def pass_seconds(self, seconds: float) -> None:
        """Let time pass in steps in which a process that lives can renew its claims."""
        for _ in range(max(1, round(seconds / 0.5))):
            self.world.clock.advance(0.5)
            await self.spin(40)

    # -- what may happen

    async def start(self) -> None:
        if len(self.processes) < MAX_PROCESSES:
            process = Process(self.world, self.dice, batch=self.dice.choice([1, 2, 5, 100]))
            self.processes.append(process)
            process.call(process.start(GROUPS))
            await self.spin(20)

    async def crash(self) -> None:
        if self.processes:
            process = self.processes.pop(self.dice.randrange(len(self.processes)))
            while process.tasks:
                process.die()
                await self.spin(1)

    async def flush(self) -> None:
        if self.processes:
            process = self.dice.choice(self.processes)
            process.call(process.bus.flush())
            await self.spin(30)

    async def grow(self) -> None:
        await self.world.append(f"run-{self.dice.randrange(4)}", self.dice.randrange(1, 5))

    async def grow_poison(self) -> None:
        if len(self.world.poison) + len(self.world.deadly) < 3:
            keys = await self.world.append(f"run-{self.dice.randrange(4)}", 1)
            self.dice.choice([self.world.poison, self.world.deadly]).update(keys)

    async def erase(self) -> None:
        await self.world.erase(f"run-{self.dice.randrange(4)}")

    async def pass_time(self) -> None:
        await self.pass_seconds(self.dice.choice([0.5, 3, LEASE_S * 2]))

    async def go_on(self) -> None:
        await self.spin(self.dice.choice([1, 3, 10, 60]))

    # -- what must hold

    async def settle(self) -> None:
        """Every group gets everything, whatever has happened, if only some process lives."""
        for _ in range(200):
            self.processes = [process for process in self.processes if process.alive]
            if not self.processes:
                await self.start()
            await self.pass_seconds(LEASE_S)
            if self.world.faults or not await self.world.lacking():
                break
        assert self.world.faults == []
        assert await self.world.lacking() == []
        left = "".join(await self.world.store.marks("run/"))
        assert [run_id for run_id in self.world.erased if f"/{quote(run_id)}/" in left] == []
        for process in self.processes:
            await self.finish(process.call(process.close(GROUPS)))
        assert self.world.faults == []

    async def finish(self, task: asyncio.Task[Any]) -> None:
        for _ in range(200):
            if task.done():
                return task.result()
            await self.pass_seconds(0.5)
        raise AssertionError(f"it never ends: {task}")


@pytest.fixture
def silence() -> Iterator[None]:
    logging.disable(logging.CRITICAL)  # a world full of failures has much to tell
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.usefixtures("silence")
@pytest.mark.timeout(0 if SEEDS > 25 else 900)
@pytest.mark.parametrize("partitions", [1, 3])
def test_every_group_receives_every_event_in_order_when_buses_fail(
    partitions: int,
) -> None:
    for seed in range(SEEDS):
        story = Story(seed, partitions)
        factory = partial(new_loop, story.world.clock.monotonic)
        with asyncio.Runner(loop_factory=factory) as runner:
            try:
                runner.run(story.tell())
            except AssertionError as error:
                error.add_note(f"seed {seed}")
                raise


async def test_a_partition_held_for_long_is_briefly_left_to_other_buses() -> None:
    clock, seen = ManualClock(), list[int]()
    store: Any = PartitionedStore(3, clock)
    await store.setup()

    async def handle(events: list[Event]) -> None:
        seen.extend(event.seq for event in events)

    async def until(count: int) -> None:
        while len(seen) < count:  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0)  # noqa: TID251 - lets the bus run

    bus = Bus(store, clock=clock, lease_s=30, poll_s=1)
    await bus.subscribe("group", handle)
    pump = asyncio.create_task(bus.run())
    await begin(store, "run")
    await until(1)
    clock.advance(31)
    await store.append("run", [note()], expected=1)
    await until(2)
    while not clock.sleepers:  # noqa: ASYNC110 - nothing tells
        await asyncio.sleep(0)  # noqa: TID251 - lets the bus run
    marks = await store.marks("bus/group/")
    assert list(marks.values()) == ['{"cursor":"2"}']
    await store.append("run", [note()], expected=2)
    assert await bus.flush()  # which does not wait for the bus
    assert seen == [1, 2, 3]
    pump.cancel()
    await asyncio.wait([pump])
