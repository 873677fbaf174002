"""Looks at the server for what other processes write."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from lib._util.clock import Clock
from lib.errors import StoreError
from lib.events.stores.redis.server import Server
from lib.events.wakeups import SHORTEST_LOOK_S, Wakeups, next_look_s

_log = logging.getLogger(__name__)

_LONGEST_LOOK_S: Final = 1.0


class Heads:
    """How long the feeds of the partitions are known to be."""

    def __init__(self, lengths: Sequence[int], wakeups: Wakeups) -> None:
        """Know them, and whom to tell of others' events."""
        self._lengths = list(lengths)
        self.wakeups = wakeups

    @property
    def partitions(self) -> int:
        """How many partitions there are."""
        return len(self._lengths)

    def grown(self, partition: int, before: int, after: int) -> None:
        """Take note of what this process has written."""
        if before > self._lengths[partition]:
            self.wakeups.foreign(partition)
        self._lengths[partition] = max(after, self._lengths[partition])

    def seen(self, lengths: Sequence[int]) -> bool:
        """Take note of what there was a moment ago; return whether that is news."""
        # A feed never ends: one that is empty is lost, which whoever listens finds when they read.
        news = [
            p for p, n in enumerate(lengths) if n > self._lengths[p] or (not n and self._lengths[p])
        ]
        for partition in news:
            self._lengths[partition] = lengths[partition]
            self.wakeups.foreign(partition)
        return bool(news)


async def lengths(server: Server, key: str, partitions: int) -> list[int]:
    """Return how long the feeds are, in one round trip."""
    return await server.together([("LLEN", f"{key}:feed:{p}") for p in range(partitions)])


async def watch(server: Server, key: str, heads: Heads, clock: Clock) -> None:
    """Wake listeners when another process has written, as long as anybody listens."""
    pause_s, lost = SHORTEST_LOOK_S, False
    while True:
        await heads.wakeups.demanded()
        await clock.sleep(pause_s)
        try:
            changed = heads.seen(await lengths(server, key, heads.partitions))
            lost = False
        except StoreError as error:
            if not lost:
                _log.warning("cannot look for what other processes have written", exc_info=error)
            changed, lost = False, True
        pause_s = next_look_s(pause_s, _LONGEST_LOOK_S, changed=changed)
