"""Moves work off the event loop that would take it more than 0.3 ms.

Less is not worth it: to go to a thread and back takes about as long.

Effort is counted in floats read from memory, some five of which take a nanosecond.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import nullcontext
from threading import Lock
from typing import Any, TypeVar

from lib._util.tasks import whole

T = TypeVar("T")

_INLINE_EFFORT = 1_500_000
_COPY_EFFORT, _FLOAT_EFFORT = 20_000, 75  # copying a record, and each float of its vector


def is_small(effort: int) -> bool:
    """Return True if work of this effort may stay on the event loop."""
    return effort <= _INLINE_EFFORT


def copying(records: int, floats: int) -> int:
    """Return what it costs to copy records that hold so many floats each."""
    return records * (_COPY_EFFORT + floats * _FLOAT_EFFORT)


async def offload(effort: int, work: Callable[[], T], lock: Lock | None = None) -> T:
    """Return what the work returns; it runs in a thread unless its effort is small.

    A caller that is cancelled goes on at once, while the thread works to the end.

    Args:
        effort: what it costs, in floats read.
        work: the work.
        lock: held while it runs; if it is not free, a thread waits for it.
    """
    if not is_small(effort) or not (lock is None or lock.acquire(blocking=False)):
        return await asyncio.to_thread(_locked, work, lock)
    try:
        return work()
    finally:
        if lock is not None:
            lock.release()


async def offload_whole(effort: int, work: Callable[[], T]) -> T:
    """Return what the work returns, as `offload`; a caller that is cancelled waits for its end."""
    if is_small(effort):
        return work()
    return await whole(asyncio.to_thread(work))


def _locked(work: Callable[[], T], lock: Lock | None) -> T:
    with lock or nullcontext():
        return work()


def finished(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that never waits, as one over a blocking client does not.

    Raises:
        RuntimeError: it waits for something.
    """
    try:
        work.send(None)
    except StopIteration as end:
        return end.value
    raise RuntimeError("the client waits for something, though it is one that blocks")
