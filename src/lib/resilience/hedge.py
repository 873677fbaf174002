"""Hedging: a second attempt beside one that is slow; the first result counts.

Source: J. Dean, L. A. Barroso, "The Tail at Scale", CACM 56(2), 2013, "Hedged requests".
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeAlias, TypeVar

from lib._util.attempts import count
from lib._util.clock import Clock

T = TypeVar("T")

Claim: TypeAlias = Callable[[], None]
"""Makes the attempt that calls it the one that counts, and cancels the other.

An attempt calls it before anything of it is seen outside. It raises `CancelledError` in the other.
"""
Attempting: TypeAlias = Callable[[Claim], Awaitable[T]]


async def hedged(
    first: Attempting[T], second: Attempting[T], *, after_s: float | None, clock: Clock
) -> T:
    """Return the result of the first attempt, or of one that begins `after_s` later.

    The second one begins only if the first one has neither ended nor claimed. The first result
    counts, and the other attempt is cancelled and waited for; the error of the first attempt is
    raised if both fail.

    Args:
        first: makes an attempt.
        second: makes the other attempt.
        after_s: None for no second attempt.
        clock: waits.
    """
    if after_s is None:
        return await first(lambda: None)
    race = _Race[T]()
    race.begin(first)
    timer = asyncio.ensure_future(clock.sleep(after_s))
    try:
        await asyncio.wait([race.tasks[0], timer], return_when=asyncio.FIRST_COMPLETED)
        if not race.tasks[0].done() and race.winner is None:
            count("hedges")
            race.begin(second)
        return await race.result()
    finally:
        timer.cancel()
        await race.stop()


class _Race(Generic[T]):
    """Attempts of which one counts."""

    def __init__(self) -> None:
        self.tasks: list[asyncio.Future[T]] = []
        self.winner: asyncio.Future[T] | None = None

    def begin(self, attempt: Attempting[T]) -> None:
        number = len(self.tasks)
        self.tasks.append(asyncio.ensure_future(attempt(lambda: self._claim(number))))

    async def result(self) -> T:
        """Return the result of the one that claims, or has one first."""
        pending = set(self.tasks)
        while pending and self.winner is None:
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            for task in self.tasks:
                if self.winner is None and task in done and _has_result(task):
                    self.winner = task
        return await (self.winner or self.tasks[0])

    async def stop(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    def _claim(self, number: int) -> None:
        own = self.tasks[number]
        if self.winner not in (None, own):
            raise asyncio.CancelledError
        self.winner = own
        for task in self.tasks:
            if task is not own:
                task.cancel()


def _has_result(task: asyncio.Future[Any]) -> bool:
    return not task.cancelled() and task.exception() is None
