"""Waiting for tasks, in ways that asyncio does not offer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

T = TypeVar("T")


async def cancelled(task: asyncio.Task[Any]) -> None:
    """Cancel a task and wait for its end, whatever that is."""
    task.cancel()
    await asyncio.wait([task])


async def whole(work: Awaitable[T]) -> T:
    """Return what the work returns; a caller that is cancelled waits for its end.

    So the caller keeps its locks as long as the work goes on.
    """
    running = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not running.done():
        try:
            await asyncio.wait([running])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        running.exception()  # seen, so that it is not reported as forgotten
        raise cancelled
    return running.result()
