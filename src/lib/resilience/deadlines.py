"""Deadlines: a total time for one call, with all its attempts, waits and fallbacks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from contextvars import ContextVar

from lib._util.clock import SYSTEM_CLOCK, Clock
from lib.errors import DeadlineExceeded

_DEADLINE: ContextVar[tuple[Clock, float] | None] = ContextVar("deadline", default=None)


def require_seconds(**times: object) -> None:
    """Refuse a time that is no number above 0; None is for no limit.

    Raises:
        TypeError: one is no number.
        ValueError: one is not above 0.
    """
    for name, seconds in times.items():
        if seconds is None:
            continue
        if isinstance(seconds, bool) or not isinstance(seconds, int | float):
            raise TypeError(f"expected seconds or None as {name}, got {seconds!r}")
        if not seconds > 0:
            raise ValueError(f"expected {name} above 0, got {seconds!r}")


@asynccontextmanager
async def deadline(
    deadline_s: float | None, *, clock: Clock = SYSTEM_CLOCK
) -> AsyncGenerator[None]:
    """Cancel the block after so many seconds; what waits inside sees how much time is left.

    An outer deadline that comes first still counts.

    Args:
        deadline_s: None for no limit.
        clock: measures and waits.

    Raises:
        DeadlineExceeded: the block took longer.
        ValueError: `deadline_s` is not above 0.
    """
    if deadline_s is None:
        yield
        return
    require_seconds(deadline_s=deadline_s)
    left_s = time_left_s()
    token = _DEADLINE.set(
        (clock, clock.monotonic() + min(deadline_s, deadline_s if left_s is None else left_s))
    )
    scope = asyncio.timeout(None)

    async def expire() -> None:
        await clock.sleep(deadline_s)
        scope.reschedule(asyncio.get_running_loop().time())

    timer = asyncio.create_task(expire())
    try:
        async with scope:
            yield
    except TimeoutError:
        if not scope.expired():
            raise
        raise DeadlineExceeded(deadline_s) from None
    finally:
        timer.cancel()
        _DEADLINE.reset(token)


def time_left_s() -> float | None:
    """Return the seconds until the innermost deadline, at least 0; None without one."""
    current = _DEADLINE.get()
    return None if current is None else max(0.0, current[1] - current[0].monotonic())
