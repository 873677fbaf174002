"""Calls under way, which closing waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager


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
