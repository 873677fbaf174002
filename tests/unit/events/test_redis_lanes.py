"""Operations share a script: one that breaks fails alone."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from lib.events.stores.redis.operations import Lane


class Numbered:
    """An operation that may break before its script, or on its reply."""

    def __init__(self, number: int, *, before: bool = False, after: bool = False) -> None:
        self.number, self.before, self.after = number, before, after
        self.has_failed = False

    def arguments(self) -> list[bytes]:
        if self.before:
            raise RecursionError
        return [b"%d" % self.number]

    def outcome(self, reply: Any) -> Any:
        if self.after:
            raise OverflowError
        return reply

    def failed(self) -> None:
        self.has_failed = True


async def test_an_operation_that_breaks_fails_alone_and_its_lane_goes_on() -> None:
    scripts: list[list[bytes]] = []
    committed: list[Any] = []

    async def commit(args: Sequence[bytes]) -> Sequence[Any]:
        scripts.append(list(args))
        return [int(arg) for arg in args]

    lane = Lane(commit, committed.extend, max_operations=64)
    before, after = Numbered(2, before=True), Numbered(4, after=True)
    async with asyncio.timeout(200):
        operations = [Numbered(1), before, Numbered(3), after, Numbered(5)]
        outcomes = await asyncio.gather(
            *(lane.put(operation) for operation in operations), return_exceptions=True
        )
        with pytest.raises(RecursionError):  # and alone
            await lane.put(Numbered(6, before=True))
        assert await lane.put(Numbered(7)) == 7
        await lane.drained()

    assert outcomes[::2] == [1, 3, 5]
    assert [type(outcome) for outcome in outcomes[1::2]] == [RecursionError, OverflowError]
    assert (scripts, committed) == ([[b"1", b"3", b"4", b"5"], [b"7"]], [1, 3, 5, 7])
    assert (before.has_failed, after.has_failed) == (True, True)


async def test_operations_beyond_the_size_of_a_script_wait_for_the_next() -> None:
    scripts: list[int] = []

    async def commit(args: Sequence[bytes]) -> Sequence[Any]:
        scripts.append(len(args))
        return [len(arg) for arg in args]

    class Large(Numbered):
        def arguments(self) -> list[bytes]:
            return [b"x" * (3 * 1024 * 1024)]

    lane = Lane(commit, lambda _: None, max_operations=64)
    async with asyncio.timeout(200):
        await asyncio.gather(*(lane.put(Large(number)) for number in range(5)))
    assert scripts == [2, 2, 1]
