"""Batches calls that wait at the same time, so that they share a round trip (group commit)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")


class Batcher(Generic[T, R]):
    """Processes the items that wait at the same time as one batch, one batch after another.

    What arrives while a batch is under way waits for the next one: the slower the answer, the
    larger the batches.
    """

    def __init__(
        self,
        process: Callable[[Sequence[T]], Awaitable[Sequence[R | Exception]]],
        *,
        name: str,
        max_items: int | None = None,
    ) -> None:
        """Begin with an empty queue.

        Args:
            process: returns the outcomes of the items of a batch, in their order: of all, or of the
                first ones, and the rest waits for the next batch. An exception is raised to the
                caller that put the item, one that `process` raises to all callers of the batch.
            name: of the tasks that process batches.
            max_items: of a batch, None for all that wait.
        """
        self._process, self._name, self._max_items = process, name, max_items
        self._waiting: list[tuple[T, asyncio.Future[R]]] = []
        self._task: asyncio.Task[None] | None = None

    def put(self, item: T) -> asyncio.Future[R]:
        """Return the future outcome; an item cancelled before its batch is not processed."""
        future: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
        if self._task is None:
            self._begin()
        return future

    async def drained(self) -> None:
        """Return when nothing waits and nothing is under way."""
        while self._task is not None:
            await asyncio.wait([self._task])

    def _begin(self) -> None:
        self._task = asyncio.create_task(self._work(), name=self._name)
        self._task.add_done_callback(self._ended)

    def _ended(self, _task: asyncio.Task[None]) -> None:
        """Go on with what waits: the end of a loop cancels all tasks, even before they begin."""
        self._task = None
        if any(not future.done() for _, future in self._waiting):
            self._begin()

    async def _work(self) -> None:
        while batch := self._next():
            outcomes = await self._outcomes(batch)
            self._waiting[:0] = batch[len(outcomes) :]
            for (_, future), outcome in zip(batch, outcomes, strict=False):
                _settle(future, outcome)
            await _yield_to_ready_tasks()  # the next items of the settled callers share a batch

    def _next(self) -> list[tuple[T, asyncio.Future[R]]]:
        waiting = [each for each in self._waiting if not each[1].done()]
        size = len(waiting) if self._max_items is None else self._max_items
        self._waiting = waiting[size:]
        return waiting[:size]

    async def _outcomes(
        self, batch: Sequence[tuple[T, asyncio.Future[R]]]
    ) -> Sequence[R | Exception]:
        try:
            return await self._process([item for item, _ in batch])
        except Exception as error:  # noqa: BLE001 - raised to every caller of the batch
            return [error] * len(batch)
        except BaseException as error:  # else the callers would wait for ever
            for _, future in batch:
                _settle(future, error)
            raise


async def _yield_to_ready_tasks() -> None:
    loop = asyncio.get_running_loop()
    turn = loop.create_future()
    loop.call_soon(_settle, turn, None)
    await turn


def _settle(future: asyncio.Future[R], outcome: R | BaseException) -> None:
    if future.done():
        return
    if isinstance(outcome, BaseException):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)
