"""What tasks need that asyncio has no word for."""

from __future__ import annotations

import asyncio
from typing import Any


async def cancelled(task: asyncio.Task[Any]) -> None:
    """Cancel a task and wait for its end, whatever that is."""
    task.cancel()
    await asyncio.wait([task])
