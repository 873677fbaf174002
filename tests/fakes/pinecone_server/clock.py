"""A clock for waits that end by asking, not by time."""

from __future__ import annotations

import asyncio

from lib.testing.clock import ManualClock


class HurryingClock(ManualClock):
    """Lets time pass as soon as a task wants to sleep."""

    async def sleep(self, delay_s: float) -> None:
        """Return at once, so much later."""
        self.advance(delay_s)
        await asyncio.wait([asyncio.ensure_future(_nothing())])


async def _nothing() -> None:
    """Let others run."""
