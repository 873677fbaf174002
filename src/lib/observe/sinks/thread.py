"""A thread for a sink that may block."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from lib.errors import ExportError

T = TypeVar("T")


class OneThread:
    """Runs one function at a time in a thread of its own; for any number of event loops.

    A pool would do, were it not for functions that never return: in a pool they take the threads
    that others need, and keep the process from ending. Here they take one thread, and the process
    ends without it.
    """

    def __init__(self, name: str) -> None:
        """Name the thread."""
        self._name = name
        self._queueing = threading.Lock()
        self._turn: Future[None] = _begun()
        self._turn.set_result(None)
        self._last: Future[Any] | None = None

    async def run(self, work: Callable[[], T]) -> T:
        """Return what the work returns, or raise what it raises.

        Raises:
            ExportError: work whose caller was cancelled still goes on.
        """
        mine = _begun()
        with self._queueing:
            before, self._turn = self._turn, mine
        try:
            await asyncio.wrap_future(before)
            return await self._begin(work)
        finally:
            # A caller that is cancelled while waiting passes its turn on, but no earlier.
            before.add_done_callback(lambda _: mine.set_result(None))

    async def _begin(self, work: Callable[[], T]) -> T:
        if self._last is not None and not self._last.done():
            raise ExportError(f"{self._name} has not returned from its last call")
        future: Future[T] = _begun()
        self._last = future
        arguments = (future, contextvars.copy_context(), work)
        threading.Thread(target=_main, args=arguments, name=self._name, daemon=True).start()
        return await asyncio.wrap_future(future)


def _begun() -> Future[Any]:
    """Return a running future, which cancelling a waiter does not cancel."""
    future = Future[Any]()
    future.set_running_or_notify_cancel()
    return future


def _main(future: Future[T], context: contextvars.Context, work: Callable[[], T]) -> None:
    try:
        result = context.run(work)
    except BaseException as error:  # noqa: BLE001 - nothing is caught: the caller gets it
        future.set_exception(error)
    else:
        future.set_result(result)
