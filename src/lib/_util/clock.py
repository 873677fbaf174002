"""Time as an argument: code takes a `Clock`, tests move a `ManualClock`."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """A source of time: reads the time of day, measures, and sleeps."""

    def now(self) -> datetime:
        """Return the time of day, in UTC."""
        ...

    def monotonic(self) -> float:
        """Return seconds since some fixed moment; never goes back."""
        ...

    async def sleep(self, delay_s: float) -> None:
        """Return after `delay_s` seconds."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        """Return the time of day, in UTC."""
        return datetime.now(UTC)  # noqa: TID251 - the one place that reads it

    def monotonic(self) -> float:
        """Return seconds since some fixed moment; never goes back."""
        return time.monotonic()

    async def sleep(self, delay_s: float) -> None:
        """Return after `delay_s` seconds."""
        await asyncio.sleep(delay_s)  # noqa: TID251 - the one place that sleeps


SYSTEM_CLOCK = SystemClock()


def own_time(clock: Clock) -> datetime | None:
    """Return the time of a clock that stands in for the machine's, None for the machine's own.

    A server's clock is shared by all processes, so it is better than the machine's own.
    """
    return None if type(clock) is SystemClock else clock.now()
