"""Calls that answer without waiting leave turns to other tasks."""

import asyncio

import pytest

from lib._util.turns import turn


class Rounds:
    """Counts how often the event loop goes round."""

    def __init__(self) -> None:
        self.number = 0
        self._count()

    def _count(self) -> None:
        self.number += 1
        asyncio.get_running_loop().call_soon(self._count)


async def work() -> None:
    await turn()
    sum(range(20_000))  # some tenths of a millisecond


async def test_a_loop_of_calls_lets_the_event_loop_go_round_in_between() -> None:
    rounds = Rounds()
    for _ in range(300):
        await work()
    assert rounds.number > 10


async def test_calls_that_are_made_at_once_are_spread_over_many_rounds() -> None:
    rounds = Rounds()
    await asyncio.gather(*(work() for _ in range(300)))
    assert rounds.number > 10


async def test_a_time_out_ends_calls_that_never_wait() -> None:
    async def main() -> None:
        async with asyncio.timeout(0.02):
            while True:
                await work()

    with pytest.raises(TimeoutError):
        await main()


async def test_a_waiter_that_is_cancelled_holds_no_other_up() -> None:
    ended: list[int] = []

    async def call(number: int) -> None:
        for _ in range(40):
            await work()
        ended.append(number)

    tasks = [asyncio.create_task(call(number)) for number in range(12)]
    await asyncio.wait([asyncio.create_task(work())])
    for task in tasks[4:8]:
        task.cancel()
    await asyncio.wait(tasks)
    assert sorted(ended) == [0, 1, 2, 3, 8, 9, 10, 11]
