"""Calls that wait at the same time, and share a round trip."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")


class Together(Generic[T, R]):
    """Carries out together what waits at the same time, one batch after another.

    What arrives while a batch is under way waits for the next one: the slower the answer, the
    larger the batches.
    """

    def __init__(
        self,
        carry_out: Callable[[Sequence[T]], Awaitable[Sequence[R | Exception]]],
        *,
        name: str,
        most: int | None = None,
    ) -> None:
        """Begin without work.

        Args:
            carry_out: returns what comes of the items of a batch, in their order: of all, or of the
                first ones, and the rest waits for the next batch. An exception is raised to whoever
                waits for that item, one that it raises itself to all of them.
            name: of the tasks in which it is done.
            most: how many items a batch has at most, None for all that wait.
        """
        self._carry_out, self._name, self._most = carry_out, name, most
        self._waiting: list[tuple[T, asyncio.Future[R]]] = []
        self._task: asyncio.Task[None] | None = None

    def put(self, item: T) -> asyncio.Future[R]:
        """Return what is to come of it; cancelled before its batch, it is not carried out."""
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
            await _turn()  # what those who were told ask for next shares a batch

    def _next(self) -> list[tuple[T, asyncio.Future[R]]]:
        waiting = [each for each in self._waiting if not each[1].done()]
        most = len(waiting) if self._most is None else self._most
        self._waiting = waiting[most:]
        return waiting[:most]

    async def _outcomes(
        self, batch: Sequence[tuple[T, asyncio.Future[R]]]
    ) -> Sequence[R | Exception]:
        try:
            return await self._carry_out([item for item, _ in batch])
        except Exception as error:  # noqa: BLE001 - told to those who wait
            return [error] * len(batch)
        except BaseException as error:  # nobody else would ever tell those who wait
            for _, future in batch:
                _settle(future, error)
            raise


async def _turn() -> None:
    """Let the tasks run that are ready now."""
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
