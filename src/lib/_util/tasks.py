"""Waiting for tasks, in ways that asyncio does not offer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Generator
from contextlib import contextmanager
from typing import Any, TypeVar


class Calls:
    """Knows what has begun and not ended, in each event loop."""

    def __init__(self) -> None:
        """Begin with none."""
        self._ends = set[asyncio.Future[None]]()

    @contextmanager
    def one(self) -> Generator[None]:
        """Be under way."""
        end = asyncio.get_running_loop().create_future()
        self._ends.add(end)
        try:
            yield
        finally:
            self._ends.discard(end)
            end.set_result(None)

    async def ended(self, timeout_s: float) -> None:
        """Return when those of this event loop have ended, or when the time has."""
        loop = asyncio.get_running_loop()
        waiting = [end for end in self._ends.copy() if end.get_loop() is loop]
        if waiting:
            await asyncio.wait(waiting, timeout=timeout_s)


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
