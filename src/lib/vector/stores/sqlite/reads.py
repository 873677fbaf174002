"""Reads of the file that calls share, so that one visit to its thread serves all who wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from itertools import count
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class SharedReads(Generic[T]):
    """Runs one read at a time for each key; the calls of one event loop share its result.

    A call that comes while a read is under way waits for the one that follows: the first may have
    missed what was written since it began. All calls that wait share that one, and go on together.
    """

    def __init__(self) -> None:
        """Start without reads."""
        self._under_way: dict[Hashable, _Read[T]] = {}
        self._moments = count()

    async def result(self, key: Hashable, read: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return the result of a read that began after this call; its errors are its own call's.

        Args:
            key: calls of one key share their reads.
            read: reads.
        """
        called = next(self._moments)
        while (other := self._under_way.get(key)) is not None:
            await asyncio.wait([other.ended])
            if other.began > called and other.found:
                return other.found[0]
        mine = self._under_way[key] = _Read[T](next(self._moments))
        try:
            found = await read()
            mine.found.append(found)
            return found
        finally:
            del self._under_way[key]
            mine.ended.set_result(None)


class _Read(Generic[T]):
    """A read: when it began, what it found, and the end of it."""

    def __init__(self, began: int) -> None:
        self.began: int = began
        self.found: list[T] = []  # nothing, if it has failed or was cancelled
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
