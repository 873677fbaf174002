"""Reads of a file that calls share: none shows less than was there when it was called."""

import asyncio
from collections.abc import Callable, Coroutine

import pytest

from lib.vector.stores.sqlite.reads import SharedReads


class Reader:
    """Reads that end at a call of `end`; each returns its number.

    Attributes:
        began: how many have begun.
    """

    def __init__(self) -> None:
        self.began = 0
        self._ends: list[asyncio.Future[None]] = []

    async def read(self) -> int:
        self.began += 1
        number = self.began
        self._ends.append(asyncio.get_running_loop().create_future())
        await self._ends[-1]
        return number

    def end(self, error: Exception | None = None) -> None:
        if error is None:
            self._ends[-1].set_result(None)
        else:
            self._ends[-1].set_exception(error)


def calls(
    shared: SharedReads[int], read: Callable[[], Coroutine[None, None, int]], key: str, number: int
) -> list[asyncio.Task[int]]:
    return [asyncio.create_task(shared.result(key, read)) for _ in range(number)]


async def settle() -> None:
    """Let every task go on until it waits for the reader."""
    loop = asyncio.get_running_loop()
    for _ in range(10):
        passed = loop.create_future()
        loop.call_soon(passed.set_result, None)
        await passed


async def test_calls_that_come_during_a_read_share_the_next_one() -> None:
    shared, reader = SharedReads[int](), Reader()
    (first,) = calls(shared, reader.read, "a", 1)
    await settle()
    others = calls(shared, reader.read, "a", 20)
    await settle()
    assert reader.began == 1
    reader.end()
    await settle()
    assert (await first, reader.began) == (1, 2)
    late = calls(shared, reader.read, "a", 2)
    await settle()
    reader.end()
    assert await asyncio.gather(*others) == [2] * 20
    await settle()
    reader.end()
    assert await asyncio.gather(*late) == [3, 3]


async def test_another_key_is_read_at_the_same_time() -> None:
    shared, reader, other = SharedReads[int](), Reader(), Reader()
    tasks = [*calls(shared, reader.read, "a", 1), *calls(shared, other.read, "b", 1)]
    await settle()
    other.end()
    assert await tasks[1] == 1
    reader.end()
    assert await tasks[0] == 1


async def test_a_read_that_fails_or_is_cancelled_is_repeated_by_those_who_wait() -> None:
    shared, reader = SharedReads[int](), Reader()
    (first,) = calls(shared, reader.read, "a", 1)
    await settle()
    second, third, fourth = calls(shared, reader.read, "a", 3)
    await settle()
    reader.end(ValueError("damaged"))
    with pytest.raises(ValueError, match="damaged"):
        await first
    await settle()
    second.cancel()
    third.cancel()
    await settle()
    assert second.cancelled()
    assert third.cancelled()
    assert reader.began == 3
    reader.end()
    assert await fourth == 3
    (last,) = calls(shared, reader.read, "a", 1)  # nothing is left behind
    await settle()
    reader.end()
    assert await last == 4
