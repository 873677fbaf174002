"""A clock that a test moves by hand."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta


class ManualClock:
    """Stands still until `advance`, which wakes the sleepers whose time has come."""

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        """Begin at `start`."""
        self._start = start
        self._passed_s = 0.0
        self._sleepers: list[tuple[float, asyncio.Future[None]]] = []

    def now(self) -> datetime:
        """Return the time of day, in UTC."""
        return self._start + timedelta(seconds=self._passed_s)

    def monotonic(self) -> float:
        """Return the seconds that have passed."""
        return self._passed_s

    async def sleep(self, delay_s: float) -> None:
        """Return once `delay_s` seconds have been advanced."""
        if delay_s <= 0:
            return
        woken = asyncio.get_running_loop().create_future()
        self._sleepers.append((self._passed_s + delay_s, woken))
        await woken

    @property
    def sleepers(self) -> int:
        """The number of tasks that are asleep."""
        return sum(not woken.done() for _, woken in self._sleepers)

    def advance(self, seconds: float) -> None:
        """Let time pass and wake the sleepers whose time has come."""
        self._passed_s += seconds
        due = [woken for at, woken in self._sleepers if at <= self._passed_s]
        self._sleepers = [sleeper for sleeper in self._sleepers if sleeper[1] not in due]
        for woken in due:
            if not woken.done():
                woken.set_result(None)
