"""How operations wait for the next script of their lane, and share it.

One script of a lane is under way at a time. What arrives meanwhile waits for the next one: the
slower the server, the larger the batches, so that all who wait share the cost of a round trip and
of the server's write to its disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from lib.events.stores.redis.operations import Operation, Outdated

_MAX_OPERATIONS: Final = 256
_MAX_BYTES: Final = 4 * 1024 * 1024  # the server does nothing else while a script runs

Waiting = tuple[Operation, asyncio.Future[Any]]


class Lane:
    """Carries operations from one event loop to the server."""

    def __init__(
        self,
        commit: Callable[[Sequence[bytes]], Awaitable[Sequence[Any]]],
        committed: Callable[[Sequence[Any]], None],
    ) -> None:
        """Serve the running event loop.

        Args:
            commit: carries out operations, given as arguments of the script, and returns a reply
                for each.
            committed: called after each script with the outcomes of what it has carried out.
        """
        self._loop = asyncio.get_running_loop()
        self._commit = commit
        self._committed = committed
        self._waiting: list[Waiting] = []
        self._task: asyncio.Task[None] | None = None
        self._idle = asyncio.Event()
        self._idle.set()

    def put(self, operation: Operation) -> asyncio.Future[Any]:
        """Return the outcome to come; cancelled before its script, nothing happens."""
        future: asyncio.Future[Any] = self._loop.create_future()
        self._waiting.append((operation, future))
        if self._idle.is_set():
            self._idle.clear()
            self._loop.call_soon(self._submit)
        return future

    async def drained(self) -> None:
        """Return when nothing waits and nothing is under way."""
        await self._idle.wait()

    def _submit(self) -> None:
        self._waiting = [waiting for waiting in self._waiting if not waiting[1].done()]
        if not self._waiting:
            self._idle.set()
            return
        self._task = self._loop.create_task(self._carry_out(), name="lib.events.commit")
        # After the tasks that were just woken: what they append next shares the script.
        self._task.add_done_callback(lambda _: self._loop.call_soon(self._submit))

    async def _carry_out(self) -> None:
        batch, args = self._next_batch()
        if not batch:
            return
        try:
            replies = await self._commit(args)
        except BaseException as error:  # nobody else would ever tell those who wait
            for operation, future in batch:
                operation.failed()
                _refuse(future, error)
            if not isinstance(error, Exception):
                raise
        else:
            self._settle(batch, replies)

    def _settle(self, batch: Sequence[Waiting], replies: Sequence[Any]) -> None:
        outcomes: list[Any] = []
        for (operation, future), reply in zip(batch, replies, strict=True):
            try:
                outcome = operation.outcome(reply)
            except Exception as refusal:  # noqa: BLE001 - told to who waits; the others go on
                operation.failed()
                _refuse(future, refusal)
                continue
            outcomes.append(outcome)
            if not future.done():
                future.set_result(outcome)
        self._committed(outcomes)

    def _next_batch(self) -> tuple[list[Waiting], list[bytes]]:
        """Return the operations that go together, and take them from those that wait."""
        batch: list[Waiting] = []
        args: list[bytes] = []
        size = taken = 0
        for operation, future in self._waiting:
            if taken == _MAX_OPERATIONS or size >= _MAX_BYTES:
                break
            taken += 1
            try:
                own = operation.arguments()
            except Outdated as refusal:
                _refuse(future, refusal)
                continue
            except Exception as refusal:  # noqa: BLE001 - told to who waits; the others go on
                operation.failed()
                _refuse(future, refusal)
                continue
            args += own
            size += sum(map(len, own))
            batch.append((operation, future))
        del self._waiting[:taken]
        return batch, args


def _refuse(future: asyncio.Future[Any], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)
