"""Wake-ups: tell the tasks of one event loop that logs have new events.

A wake-up means "look again", never what has happened: the log is the truth. A store calls
`committed` after each commit of its own, and `foreign` when it sees a commit of another process.
One poll per store finds that out (`poll_for_commits`), never one per waiter.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from lib._util.clock import Clock
from lib.errors import StoreError

_log = logging.getLogger(__name__)

_SHORTEST_PAUSE_S: Final = 0.05
_PAUSE_GROWTH: Final = 1.5


@dataclass(slots=True, eq=False)
class Listener:
    """One waiter; a wake-up since its last `wait` ends the next one at once."""

    signals_only: bool
    partition: int | None = None
    _event: asyncio.Event = field(default_factory=asyncio.Event)
    _woken: bool = False
    _hinted: bool = False
    _ignores_hints: bool = False

    def wake(self) -> None:
        """Let `wait` return."""
        self._woken = True
        self._event.set()

    def hint(self) -> None:
        """Let `wait` return once its `rest_s` is over."""
        self._hinted = True
        if not self._ignores_hints:
            self._event.set()

    async def wait(self, timeout_s: float | None = None, *, rest_s: float = 0.0) -> bool:
        """Return True on a wake-up, False after `timeout_s` seconds without one.

        Args:
            timeout_s: how long to wait; None for ever.
            rest_s: for how long commits of other processes do not end the wait; one that came
                meanwhile ends it afterwards.
        """
        if rest_s and not self._woken:
            await self._rest(rest_s)
            timeout_s = None if timeout_s is None else max(timeout_s - rest_s, 0.0)
        woken = await self._is_set_within(timeout_s)
        if woken:
            self._event.clear()
            self._woken = self._hinted = False
        return woken

    async def _rest(self, rest_s: float) -> None:
        self._ignores_hints = True
        self._event.clear()
        try:
            await self._is_set_within(rest_s)
        finally:
            self._ignores_hints = False
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


class Wakeups:
    """The listeners of one store."""

    def __init__(self) -> None:
        self._by_run: defaultdict[str | None, set[Listener]] = defaultdict(set)
        self._has_listeners = asyncio.Event()

    @property
    def wanted(self) -> bool:
        """True if there is a listener, so that polling for other processes is worth it."""
        return self._has_listeners.is_set()

    async def demanded(self) -> None:
        """Return as soon as there is a listener."""
        await self._has_listeners.wait()

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
            signals_only: no wake-up for what the run's owner appends.
            partition: no wake-up for commits of another partition; None for all.
        """
        listener = Listener(signals_only, partition)
        self._by_run[run_id].add(listener)
        self._has_listeners.set()
        try:
            yield listener
        finally:
            self._by_run[run_id].discard(listener)
            if not self._by_run[run_id]:
                del self._by_run[run_id]
            if not self._by_run:
                self._has_listeners.clear()

    def committed(self, run_id: str, *, signal: bool, partition: int | None = None) -> None:
        """Wake the listeners of this run; call it on the event loop, after the commit.

        Args:
            run_id: the run that has new events.
            signal: whether the last one is a signal.
            partition: that of the run; None if there is one partition, or it is unknown.
        """
        for key in (run_id, None):
            for listener in self._by_run.get(key, ()):
                if (signal or not listener.signals_only) and _concerns(listener, partition):
                    listener.wake()

    def foreign(self, partition: int | None = None) -> None:
        """Hint all listeners that another process has committed in this partition, or in any."""
        for listeners in self._by_run.values():
            for listener in listeners:
                if _concerns(listener, partition):
                    listener.hint()


def _concerns(listener: Listener, partition: int | None) -> bool:
    return partition is None or listener.partition in (None, partition)


async def poll_for_commits(
    look: Callable[[], Awaitable[bool]],
    *,
    wakeups: Wakeups,
    clock: Clock,
    longest_pause_s: float,
    store: str,
) -> None:
    """Look for commits of other processes while there are listeners, until cancelled.

    The pauses between looks start at 50 ms and grow by half while nothing is new. A store that
    cannot be read is logged once until it can, and looked at again.

    Args:
        look: wakes the listeners of what is new; returns whether anything was.
        wakeups: has the listeners.
        clock: paces the looks.
        longest_pause_s: between two looks.
        store: for messages.
    """
    pause_s, failing = _SHORTEST_PAUSE_S, False
    while True:
        await wakeups.demanded()
        await clock.sleep(pause_s)
        try:
            changed = await look()
            failing = False
        except StoreError:
            if not failing:
                _log.exception("%s: cannot look for commits of other processes", store)
            changed, failing = False, True
        pause_s = _SHORTEST_PAUSE_S if changed else min(pause_s * _PAUSE_GROWTH, longest_pause_s)
