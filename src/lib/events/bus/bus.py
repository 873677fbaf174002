"""The bus: carries the events of all runs to groups of handlers, in the order of their commits.

Each group has a place in each partition of the store, kept as the mark `bus/<group>/<partition>`:
a cursor, which moves only when a batch has been handled, and who is at work there. Any number of
processes share a group: one of them claims a partition by compare-and-swap, for as long as it has
events to deliver, and a claim that is not renewed ends by itself. So a group sees every event at
least once, whatever crashes: a batch may come again, and a handler tells events that it knows by
`(run_id, seq)`. Groups do not wait for each other.

A group is not stopped by an event that its handler cannot take: after so many deliveries that
event is put aside as a dead letter.
"""

from __future__ import annotations

import asyncio
from typing import Final, Literal

from lib._util.clock import SYSTEM_CLOCK, Clock
from lib._util.ids import new_id
from lib.events.bus.dead import DeadLetter, letters, unbury
from lib.events.bus.share import Handler, Share, Terms
from lib.events.runs import partition_of
from lib.events.store import EventStore


class Bus:
    """Carries events from any store; those of several processes share the groups of a store.

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
            store: where the events and the cursors are; `setup()` is the caller's.
            clock: tells when claims end, and paces the retries of a handler that fails.
            batch: how many events a handler gets at most at once.
            poll_s: how often to look for events of which no wake-up tells.
            lease_s: how long a killed process keeps others from going on in its partitions.
            max_deliveries: so many deliveries of a batch may fail, or die with their process,
                before its events are delivered one by one; one that still fails alone becomes a
                dead letter.
        """
        self._store = store
        self._terms = Terms(
            store=store,
            clock=clock,
            owner=new_id(),
            batch=batch,
            poll_s=poll_s,
            lease_s=lease_s,
            max_deliveries=max_deliveries,
        )
        self._groups: dict[str, list[Share]] = {}
        self._pumps: asyncio.TaskGroup | None = None

    async def subscribe(
        self, group: str, handler: Handler, *, start: Literal["beginning", "now"] = "beginning"
    ) -> None:
        """Let a handler have events of a group, from where the group has come to.

        Args:
            group: names the cursors, for good.
            handler: gets batches, some of them again: those of one partition in commit order, and
                as a rule one at a time over all processes: one whose claim has ended while its
                handler works on overlaps with its successor. Those of several partitions come at
                the same time.
            start: where a group begins that has no cursor yet: at the store's first event, or
                after its last.

        Raises:
            ValueError: the group has a handler already.
        """
        if group in self._groups:
            raise ValueError(f"group {group!r} has a handler already: unsubscribe it first")
        shares = self._groups[group] = [
            Share(self._terms, group, partition, handler)
            for partition in range(self._store.partitions)
        ]
        try:
            for share in shares:
                await share.begin(start)
        except BaseException:
            await self.unsubscribe(group)
            raise
        self._start(shares)

    async def unsubscribe(self, group: str) -> None:
        """Stop giving events of a group to this process; the group keeps its cursors.

        A batch under way is waited for, so a handler cannot unsubscribe itself.

        Raises:
            KeyError: no such group.
        """
        shares = self._groups.pop(group)
        async with asyncio.TaskGroup() as tasks:
            for share in shares:
                tasks.create_task(share.leave())

    async def run(self) -> None:
        """Deliver to all groups until cancelled; a batch under way is then cut off.

        Raises:
            RuntimeError: it runs already.
        """
        if self._pumps is not None:
            raise RuntimeError("this bus runs already")
        try:
            async with asyncio.TaskGroup() as self._pumps:
                for shares in self._groups.values():
                    self._start(shares)
                await asyncio.Event().wait()
        finally:
            self._pumps = None
            for share in self._all():
                await share.give_back()

    async def flush(self) -> bool:
        """Deliver all that has been appended so far, to every group; nothing waits for a retry.

        What another process has claimed is waited for, until that has got no further for
        `lease_s`; the claim of a process that died ends before, and is delivered here.

        Returns:
            False if something is left: a handler or the store failed, or another process has
            events in hand and gets no further. `run` goes on with it, and so does another call.
        """
        async with asyncio.TaskGroup() as tasks:
            flushed = [tasks.create_task(share.flush()) for share in self._all()]
        return all(task.result() for task in flushed)

    async def dead(self, group: str) -> list[DeadLetter]:
        """Return the dead letters of a group, oldest first.

        It reads the marks of all runs: for people who look, not for a loop.
        """
        return await letters(self._store, group)

    async def retry(self, group: str, *, run_id: str | None = None, seq: int | None = None) -> int:
        """Deliver dead letters again, each once and alone; what fails remains a dead letter.

        One in a partition where another process is at work is left for another call.

        Args:
            group: one with a handler here.
            run_id: only those of this run; None for all.
            seq: only this event; None for all.

        Returns:
            How many were handled.

        Raises:
            KeyError: no such group.
        """
        shares, handled = self._groups[group], 0
        for letter in await self.dead(group):
            if letter.run_id != (run_id or letter.run_id) or letter.seq != (seq or letter.seq):
                continue
            info = await self._store.run(letter.run_id)
            if info is None:
                await unbury(self._store, letter)
            else:
                share = shares[partition_of(info.root_id, len(shares))]
                handled += await share.retry(letter)
        return handled

    def _all(self) -> list[Share]:
        return [share for shares in self._groups.values() for share in shares]

    def _start(self, shares: list[Share]) -> None:
        if self._pumps is not None:
            for share in shares:
                share.start(self._pumps)
