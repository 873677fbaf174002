"""Wakes listeners for what other processes have appended.

One look at the heads of the partitions, and only while somebody listens; it comes the less often
the longer nothing happens. Nothing is ever notified inside an append: PostgreSQL would let one
transaction of the whole database commit at a time.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from lib._util.clock import Clock
from lib.errors import StoreError
from lib.events.stores.postgres.reader import Reader
from lib.events.wakeups import SHORTEST_LOOK_S, Wakeups, next_look_s

_log = logging.getLogger(__name__)

_LONGEST_LOOK_S: Final = 1.0
_MANY: Final = 1_000
_KEPT_HEADS: Final = 10_000


class Watch:
    """Knows up to which position of each partition listeners have been told."""

    def __init__(
        self, reader: Reader, wakeups: Wakeups, clock: Clock, heads: Mapping[int, int], name: str
    ) -> None:
        """Begin at the heads there are."""
        self._reader, self._wakeups, self._clock = reader, wakeups, clock
        self._told = dict(heads)
        self._own: dict[str, int] = {}
        self._name = name

    def grown(
        self, partition: int, before: int, after: int, runs: Mapping[str, tuple[int, bool]]
    ) -> None:
        """Tell what this process has committed."""
        if before == self._told[partition]:
            self._told[partition] = after
        if len(self._own) > _KEPT_HEADS:
            self._own.clear()
        for run_id, (head, signal) in runs.items():
            self._own[run_id] = head
            self._wakeups.committed(run_id, signal=signal, partition=partition)

    async def watch(self) -> None:
        """Tell what others have committed, until cancelled."""
        pause_s = SHORTEST_LOOK_S
        while True:
            await self._wakeups.demanded()
            await self._clock.sleep(pause_s)
            try:
                changed = await self._look()
            except StoreError:
                _log.exception("%s: cannot look for what other processes have written", self._name)
                changed = False
            pause_s = next_look_s(pause_s, _LONGEST_LOOK_S, changed=changed)

    async def _look(self) -> bool:
        changed = False
        for partition, head in (await self._reader.heads()).items():
            told = self._told[partition]
            if head > told:
                changed = True
                await self._tell(partition, told, head)
        return changed

    async def _tell(self, partition: int, told: int, head: int) -> None:
        rows = await self._reader.grown(partition, told, head, _MANY)
        self._told[partition] = max(head, self._told[partition])
        if len(rows) == _MANY:
            self._wakeups.foreign(partition)
            return
        foreign = {run_id for run_id, seq in rows if seq > self._own.get(run_id, 0)}
        for run_id in foreign:  # whatever it was, its owner has to look at it
            self._wakeups.committed(run_id, signal=True, partition=partition)
