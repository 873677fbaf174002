"""Run a coroutine in a test."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T], *, timeout_s: float = 240.0) -> T:
    """Return the coroutine's result, from an event loop of its own.

    Raises:
        TimeoutError: it took longer than `timeout_s`.
    """

    async def bounded() -> T:
        async with asyncio.timeout(timeout_s):
            return await main

    return asyncio.run(bounded())
