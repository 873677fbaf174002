"""Closing a store: once, after the calls that run, whatever becomes of those who asked for it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager

from lib.errors import StoreClosed


class Closing:
    """Whether a store is open, how many calls use it, and how it is closed."""

    def __init__(self, name: str) -> None:
        """Be open.

        Args:
            name: of the store's class, for messages.
        """
        self._name = name
        self._begun = False
        self._calls = 0
        self._idle: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None

    def check_open(self) -> None:
        """See that nobody has begun to close the store.

        Raises:
            StoreClosed: somebody has.
        """
        if self._begun:
            raise StoreClosed(f"{self._name} is closed")

    @contextmanager
    def call(self) -> Generator[None]:
        """Keep what the store holds from being released, as long as a call goes on.

        Raises:
            StoreClosed: somebody has begun to close the store.
        """
        self.check_open()
        self._calls += 1
        try:
            yield
        finally:
            self._calls -= 1
            if self._calls == 0 and self._idle is not None and not self._idle.done():
                self._idle.set_result(None)

    async def close(self, release: Callable[[], Awaitable[None]]) -> None:
        """Let no more calls begin, wait for those that go on, then release; safe to repeat.

        A caller that is cancelled goes on at once, and the closing goes on, too: who asks again
        waits for the same one, and is told the same error.

        Args:
            release: lets go what the store holds; called once, if its event loop lets it end.
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
