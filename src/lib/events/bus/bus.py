"""The bus: carries the events of all runs to groups of handlers, in the order of their commits.

The progress of each group in each partition of the store is the mark `bus/<group>/<partition>`: a
cursor, which moves only when a batch has been handled, and the process that delivers. Any number of
processes share a group: one of them claims a partition by compare-and-set, for as long as it has
events to deliver, and a claim that is not renewed ends by itself. So a group sees every event at
least once, whatever crashes: a batch may come again, and a handler recognizes its events by
`(run_id, seq)`. Groups do not wait for each other.

An event that a handler cannot process does not stop its group: after `max_deliveries` it becomes a
dead letter.
"""

from __future__ import annotations

import asyncio
from typing import Final, Literal

from lib._util.clock import SYSTEM_CLOCK, Clock
from lib._util.ids import new_id
from lib.events.bus import dead_letters
from lib.events.bus.consumer import GroupConfig, Handler, PartitionConsumer
from lib.events.bus.dead_letters import DeadLetter
from lib.events.runs import partition_of
from lib.events.store import EventStore


class Bus:
    """Carries events from a store; the buses of several processes share the groups of a store.

    Attributes:
        can_flush: whether `flush` delivers.
    """

    can_flush: Final = True

    def __init__(
        self,
        store: EventStore,
        *,
        clock: Clock = SYSTEM_CLOCK,
        batch: int = 512,
        poll_s: float = 1.0,
        lease_s: float = 30.0,
        max_deliveries: int = 10,
    ) -> None:
        """Make a bus without groups.

        Args:
            store: holds the events and the cursors; the caller sets it up and closes it.
            clock: decides when claims end, and paces the retries of a handler that fails.
            batch: how many events a handler gets at most at once.
            poll_s: how often to look for events without a wake-up.
            lease_s: how long a killed process keeps others out of its partitions.
            max_deliveries: so many deliveries of a batch may fail, or die with their process,
                before its events are delivered one by one; one that still fails alone becomes a
                dead letter.
        """
        self._store = store
        self._config = GroupConfig(
            store=store,
            clock=clock,
            owner=new_id(),
            batch=batch,
            poll_s=poll_s,
            lease_s=lease_s,
            max_deliveries=max_deliveries,
        )
        self._groups: dict[str, list[PartitionConsumer]] = {}
        self._tasks: asyncio.TaskGroup | None = None

    async def subscribe(
        self, group: str, handler: Handler, *, start: Literal["beginning", "now"] = "beginning"
    ) -> None:
        """Deliver the events of a group to a handler, from the group's cursor on.

        Args:
            group: names the cursors, for good.
            handler: gets batches, some of them again: those of one partition in commit order, and
                as a rule one at a time over all processes: one whose claim has ended while its
                handler works on overlaps with its successor. Those of several partitions come at
                the same time.
            start: where a group without a cursor begins: at the store's first event, or
                after its last.

        Raises:
            ValueError: the group has a handler already.
        """
        if group in self._groups:
            raise ValueError(f"group {group!r} has a handler already: unsubscribe it first")
        consumers = self._groups[group] = [
            PartitionConsumer(self._config, group, partition, handler)
            for partition in range(self._store.partitions)
        ]
        try:
            for consumer in consumers:
                await consumer.begin(start)
        except BaseException:
            await self.unsubscribe(group)
            raise
        self._start(consumers)

    async def unsubscribe(self, group: str) -> None:
        """Stop delivering events of a group in this process; the group keeps its cursors.

        A batch under way is waited for, so a handler cannot unsubscribe itself.

        Raises:
            KeyError: no such group.
        """
        consumers = self._groups.pop(group)
        async with asyncio.TaskGroup() as tasks:
            for consumer in consumers:
                tasks.create_task(consumer.stop())

    async def run(self) -> None:
        """Deliver to all groups until cancelled; a batch under way is then cut off.

        Raises:
            RuntimeError: it runs already.
        """
        if self._tasks is not None:
            raise RuntimeError("this bus runs already")
        try:
            async with asyncio.TaskGroup() as self._tasks:
                for consumers in self._groups.values():
                    self._start(consumers)
                await asyncio.Event().wait()
        finally:
            self._tasks = None
            for consumer in self._all():
                await consumer.release()

    async def flush(self) -> bool:
        """Deliver every event appended so far to every group, without the pauses before retries.

        Waits for other processes with a claim until they make no progress for `lease_s`; the claim
        of a process that died ends before, and its events are delivered here.

        Returns:
            False if events are left: a handler or the store failed, or another process has a claim
            and makes no progress. `run` goes on with them, and so does another call.
        """
        async with asyncio.TaskGroup() as tasks:
            flushed = [tasks.create_task(consumer.flush()) for consumer in self._all()]
        return all(task.result() for task in flushed)

    async def dead_letters(self, group: str) -> list[DeadLetter]:
        """Return the dead letters of a group, oldest first.

        It reads the marks of all runs: for an operator, not for a loop.
        """
        return await dead_letters.dead_letters(self._store, group)

    async def retry_dead_letters(
        self, group: str, *, run_id: str | None = None, seq: int | None = None
    ) -> int:
        """Deliver dead letters again, each once and alone; one that fails remains a dead letter.

        One in a partition that another process has claimed is left for another call.

        Args:
            group: one with a handler here.
            run_id: only those of this run; None for all.
            seq: only this event; None for all.

        Returns:
            How many were handled.

        Raises:
            KeyError: no such group.
        """
        consumers, handled = self._groups[group], 0
        for letter in await self.dead_letters(group):
            if letter.run_id != (run_id or letter.run_id) or letter.seq != (seq or letter.seq):
                continue
            info = await self._store.run(letter.run_id)
            if info is None:
                await dead_letters.remove(self._store, letter)
            else:
                consumer = consumers[partition_of(info.root_id, len(consumers))]
                handled += await consumer.retry(letter)
        return handled

    def _all(self) -> list[PartitionConsumer]:
        return [consumer for consumers in self._groups.values() for consumer in consumers]

    def _start(self, consumers: list[PartitionConsumer]) -> None:
        if self._tasks is not None:
            for consumer in consumers:
                consumer.start(self._tasks)
