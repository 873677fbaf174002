"""Who wants to know that a log has grown: wake-ups inside one event loop.

A wake-up says "look again", never what has happened: the log is the truth. A store calls
`committed` after each commit of its own, and `foreign` when it sees that another process has
written. One poll per store finds that out, never one per waiter.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

SHORTEST_LOOK_S: Final = 0.05
_LOOK_GROWTH: Final = 1.5


@dataclass(slots=True, eq=False)
class Listener:
    """One waiter; whatever came since it last looked wakes it at once."""

    signals_only: bool
    partition: int | None = None
    _event: asyncio.Event = field(default_factory=asyncio.Event)
    _called: bool = False
    _hinted: bool = False
    _rests: bool = False

    def wake(self) -> None:
        """Let `wait` return."""
        self._called = True
        self._event.set()

    def hint(self) -> None:
        """Let `wait` return once it has rested."""
        self._hinted = True
        if not self._rests:
            self._event.set()

    async def wait(self, timeout_s: float | None = None, *, rest_s: float = 0.0) -> bool:
        """Return True on a wake-up, False after `timeout_s` seconds without one.

        Args:
            timeout_s: how long to wait; None for ever.
            rest_s: for how long not to heed what only tells that another process has written
                something; that is heeded afterwards.
        """
        if rest_s and not self._called:
            await self._rest(rest_s)
            timeout_s = None if timeout_s is None else max(timeout_s - rest_s, 0.0)
        woken = await self._is_set_within(timeout_s)
        if woken:
            self._event.clear()
            self._called = self._hinted = False
        return woken

    async def _rest(self, rest_s: float) -> None:
        self._rests = True
        self._event.clear()
        try:
            await self._is_set_within(rest_s)
        finally:
            self._rests = False
            if self._hinted:
                self._event.set()

    async def _is_set_within(self, timeout_s: float | None) -> bool:
        if timeout_s is None:  # the hot path of every run: no timer is made for it
            await self._event.wait()
        else:
            try:
                async with asyncio.timeout(timeout_s):
                    await self._event.wait()
            except TimeoutError:
                return False
        return True


def next_look_s(pause_s: float, longest_s: float, *, changed: bool) -> float:
    """Return how long a store waits before it looks again for what other processes have written.

    The longer nothing happens, the longer: from `SHORTEST_LOOK_S` on, half as long again each time.
    """
    return SHORTEST_LOOK_S if changed else min(pause_s * _LOOK_GROWTH, longest_s)


class Wakeups:
    """The listeners of one store."""

    def __init__(self) -> None:
        self._by_run: defaultdict[str | None, set[Listener]] = defaultdict(set)
        self._demand = asyncio.Event()

    @property
    def wanted(self) -> bool:
        """Whether anybody listens, so that polling for other processes is worth it."""
        return self._demand.is_set()

    async def demanded(self) -> None:
        """Return as soon as anybody listens."""
        await self._demand.wait()

    @contextmanager
    def listen(
        self,
        run_id: str | None = None,
        *,
        signals_only: bool = False,
        partition: int | None = None,
    ) -> Generator[Listener]:
        """Listen to one run, or with None to all, until the block ends.

        Args:
            run_id: the run, or None for every run.
            signals_only: stay asleep for what the run's owner appends.
            partition: stay asleep for what is known to be in another one; None for all.
        """
        listener = Listener(signals_only, partition)
        self._by_run[run_id].add(listener)
        self._demand.set()
        try:
            yield listener
        finally:
            self._by_run[run_id].discard(listener)
            if not self._by_run[run_id]:
                del self._by_run[run_id]
            if not self._by_run:
                self._demand.clear()

    def committed(self, run_id: str, *, signal: bool, partition: int | None = None) -> None:
        """Wake those who wait for this run; call it on the event loop, after the commit.

        Args:
            run_id: the run that has grown.
            signal: whether by a signal.
            partition: where the run is; None if there is one partition, or nobody knows.
        """
        for key in (run_id, None):
            for listener in self._by_run.get(key, ()):
                if (signal or not listener.signals_only) and _concerns(listener, partition):
                    listener.wake()

    def foreign(self, partition: int | None = None) -> None:
        """Wake everybody: another process has written something, in this partition or in any."""
        for listeners in self._by_run.values():
            for listener in listeners:
                if _concerns(listener, partition):
                    listener.hint()


def _concerns(listener: Listener, partition: int | None) -> bool:
    return partition is None or listener.partition in (None, partition)
