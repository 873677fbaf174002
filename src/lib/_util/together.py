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
        self, carry_out: Callable[[Sequence[T]], Awaitable[Sequence[R]]], *, most: int, name: str
    ) -> None:
        """Begin without work.

        Args:
            carry_out: returns what comes of each item of a batch, in their order.
            most: how many items a batch has at most.
            name: of the tasks in which it is done.
        """
        self._carry_out, self._most, self._name = carry_out, most, name
        self._waiting: list[tuple[T, asyncio.Future[R]]] = []
        self._task: asyncio.Task[None] | None = None

    def put(self, item: T) -> asyncio.Future[R]:
        """Return what is to come of it; cancelled before its batch, it is not carried out."""
        future: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
        if self._task is None:
            self._task = asyncio.create_task(self._work(), name=self._name)
        return future

    async def drained(self) -> None:
        """Return when nothing waits and nothing is under way."""
        while self._task is not None:
            await asyncio.wait([self._task])

    async def _work(self) -> None:
        under_way: list[tuple[T, asyncio.Future[R]]] = []
        try:
            while under_way := self._next():
                try:
                    found = await self._carry_out([item for item, _ in under_way])
                except Exception as error:  # noqa: BLE001 - told to those who wait
                    _refuse(under_way, error)
                    continue
                for (_, future), each in zip(under_way, found, strict=True):
                    if not future.done():
                        future.set_result(each)
        except BaseException as error:  # nobody else would ever tell those who wait
            _refuse(under_way + self._waiting, error)
            self._waiting.clear()
            raise
        finally:
            self._task = None

    def _next(self) -> list[tuple[T, asyncio.Future[R]]]:
        waiting = [each for each in self._waiting if not each[1].done()]
        self._waiting = waiting[self._most :]
        return waiting[: self._most]


def _refuse(waiting: Sequence[tuple[T, asyncio.Future[R]]], error: BaseException) -> None:
    for _, future in waiting:
        if not future.done():
            future.set_exception(error)
