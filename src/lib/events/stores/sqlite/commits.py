"""How operations wait for the next transaction, and share it.

One transaction is under way at a time. What arrives meanwhile waits for the next one: the slower
the disk, the larger the batches, so that the cost of a commit is shared by all who wait for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Any, TypeVar

from lib.events.stores.sqlite.writer import Commit, Operation, Writer

T = TypeVar("T")
Waiting = tuple[Operation, asyncio.Future[Any]]


class CommitQueue:
    """Carries operations from one event loop to the thread of a writer."""

    def __init__(
        self,
        thread: Executor,
        commit: Callable[[Sequence[Operation]], Commit],
        committed: Callable[[Commit], None],
    ) -> None:
        """Serve the running event loop.

        Args:
            thread: where `commit` runs, one call at a time.
            commit: carries out a batch in one transaction.
            committed: called on the loop after each transaction.
        """
        self._loop = asyncio.get_running_loop()
        self._thread = thread
        self._commit = commit
        self._committed = committed
        self._waiting: list[Waiting] = []
        self._idle = asyncio.Event()
        self._idle.set()

    def put(self, operation: Callable[[Writer], T]) -> asyncio.Future[T]:
        """Return the outcome to come; cancelled before its transaction, it is not carried out."""
        future: asyncio.Future[T] = self._loop.create_future()
        self._waiting.append((operation, future))
        if self._idle.is_set():
            self._idle.clear()
            self._loop.call_soon(self._submit)
        return future

    async def drained(self) -> None:
        """Return when nothing waits and nothing is under way."""
        await self._idle.wait()

    def _submit(self) -> None:
        batch = [waiting for waiting in self._waiting if not waiting[1].done()]
        self._waiting.clear()
        if not batch:
            self._idle.set()
            return
        operations = [operation for operation, _ in batch]
        work = self._loop.run_in_executor(self._thread, self._commit, operations)
        work.add_done_callback(partial(self._done, batch))

    def _done(self, batch: Sequence[Waiting], work: asyncio.Future[Commit]) -> None:
        error = work.exception()
        if error is None:
            commit = work.result()
            for (_, future), outcome in zip(batch, commit.outcomes, strict=True):
                _settle(future, outcome)
            self._committed(commit)
        else:
            for _, future in batch:
                _settle(future, error)
        # After the tasks that were just woken: what they append next shares the transaction.
        self._loop.call_soon(self._submit)


def _settle(future: asyncio.Future[Any], outcome: Any) -> None:
    if future.done():
        return
    if isinstance(outcome, BaseException):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)
