"""Wakes listeners for the commits of other processes.

One look at the heads of the partitions, and only while there are listeners. No append notifies:
PostgreSQL would let one transaction of the whole database commit at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from lib.events.stores.postgres.reader import Reader
from lib.events.wakeups import Wakeups

_MAX_EVENTS: Final = 1_000
_MAX_CACHED_HEADS: Final = 10_000


class Watch:
    """The position in each partition up to which listeners have been woken."""

    def __init__(self, reader: Reader, wakeups: Wakeups, heads: Mapping[int, int]) -> None:
        """Begin at the present heads of the partitions."""
        self._reader, self._wakeups = reader, wakeups
        self._positions = dict(heads)
        self._own_heads: dict[str, int] = {}

    def appended(
        self, partition: int, before: int, after: int, runs: Mapping[str, tuple[int, bool]]
    ) -> None:
        """Wake listeners for a commit of this process."""
        if before == self._positions[partition]:
            self._positions[partition] = after
        if len(self._own_heads) > _MAX_CACHED_HEADS:
            self._own_heads.clear()
        for run_id, (head, signal) in runs.items():
            self._own_heads[run_id] = head
            self._wakeups.committed(run_id, signal=signal, partition=partition)

    async def look(self) -> bool:
        """Wake listeners for commits of other processes; return whether anything was new."""
        changed = False
        for partition, head in (await self._reader.heads()).items():
            position = self._positions[partition]
            if head > position:
                changed = True
                await self._wake(partition, position, head)
        return changed

    async def _wake(self, partition: int, position: int, head: int) -> None:
        rows = await self._reader.appended(partition, position, head, _MAX_EVENTS)
        self._positions[partition] = max(head, self._positions[partition])
        if len(rows) == _MAX_EVENTS:
            self._wakeups.foreign(partition)
            return
        foreign = {run_id for run_id, seq in rows if seq > self._own_heads.get(run_id, 0)}
        for run_id in foreign:  # as for a signal: the owner of the run must look, too
            self._wakeups.committed(run_id, signal=True, partition=partition)
