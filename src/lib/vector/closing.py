"""`Closing`: a store closes once, after the calls that are under way."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from lib.errors import StoreClosed


class Closing:
    """Counts the calls of a store, and closes it once, when the last of them has ended.

    `with closing:` around a call keeps the store open until the call ends, or raises StoreClosed.
    """

    def __init__(self, name: str) -> None:
        """Start open.

        Args:
            name: of the store's class, for messages.
        """
        self._name = name
        self._begun = False
        self._calls = 0
        self._idle: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None

    def check_open(self) -> None:
        """Refuse a call once closing has begun.

        Raises:
            StoreClosed: it has.
        """
        if self._begun:
            raise StoreClosed(f"{self._name} is closed")

    def __enter__(self) -> None:
        self.check_open()
        self._calls += 1

    def __exit__(self, *_: object) -> None:
        self._calls -= 1
        if self._calls == 0 and self._idle is not None and not self._idle.done():
            self._idle.set_result(None)

    async def close(self, release: Callable[[], Awaitable[None]]) -> None:
        """Refuse new calls, wait for those in flight, then release; safe to repeat.

        If the caller is cancelled, closing goes on; a repeated call waits for the same closing and
        raises the same error.

        Args:
            release: frees what the store holds; called once, unless the event loop ends before.
        """
        self._begun = True
        if self._task is None or self._task.cancelled():  # as an event loop does when it ends
            self._task = asyncio.create_task(self._released(release))
        await asyncio.shield(self._task)

    async def _released(self, release: Callable[[], Awaitable[None]]) -> None:
        if self._calls:
            self._idle = asyncio.get_running_loop().create_future()
            await self._idle
        await release()
