"""Calls that wait at the same time share a round trip, and each is told what came of it."""

import asyncio
from collections.abc import Sequence

import pytest

from lib._util.clock import SYSTEM_CLOCK
from lib._util.together import Together
from lib.testing.aio import run


class Service:
    """Doubles numbers, a batch at a time; it refuses 13, and hangs until it is let go."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.open = asyncio.Event()
        self.open.set()

    async def double(self, numbers: Sequence[int]) -> list[int | Exception]:
        self.batches.append(list(numbers))
        await self.open.wait()
        if 13 in numbers:
            raise ValueError("13")
        return [2 * number for number in numbers]

    def together(self, most: int | None = None) -> Together[int, int]:
        return Together(self.double, most=most, name="test")


async def test_what_waits_at_the_same_time_is_carried_out_together_and_in_order() -> None:
    service = Service()
    together = service.together(most=3)
    assert await asyncio.gather(*map(together.put, range(5))) == [0, 2, 4, 6, 8]
    assert await together.put(7) == 14
    assert service.batches == [[0, 1, 2], [3, 4], [7]]


async def test_what_arrives_meanwhile_waits_for_the_next_batch() -> None:
    service = Service()
    service.open.clear()
    together = service.together()
    first = together.put(1)
    await SYSTEM_CLOCK.sleep(0)
    rest = [together.put(2), together.put(3)]
    service.open.set()
    assert await asyncio.gather(first, *rest) == [2, 4, 6]
    assert service.batches == [[1], [2, 3]]


async def test_what_is_cancelled_before_its_batch_is_not_carried_out() -> None:
    service = Service()
    service.open.clear()
    together = service.together()
    under_way = together.put(1)
    await SYSTEM_CLOCK.sleep(0)
    given_up, kept = together.put(2), together.put(3)
    given_up.cancel()
    under_way.cancel()
    service.open.set()
    assert await kept == 6
    assert service.batches == [[1], [3]]


async def test_a_failure_is_told_to_all_of_its_batch_and_to_no_other() -> None:
    service = Service()
    together = service.together(most=2)
    found = await asyncio.gather(*map(together.put, (12, 13, 14)), return_exceptions=True)
    assert [type(each) for each in found] == [ValueError, ValueError, int]
    service.open.clear()
    dropped = together.put(13)
    await SYSTEM_CLOCK.sleep(0)
    dropped.cancel()
    service.open.set()
    assert await together.put(15) == 30


async def test_a_refusal_is_raised_to_its_own_caller_only() -> None:
    refusal = ValueError("odd")

    async def carry_out(numbers: Sequence[int]) -> list[int | Exception]:
        return [refusal if number % 2 else number for number in numbers]

    together = Together(carry_out, name="test")
    found = await asyncio.gather(*map(together.put, range(4)), return_exceptions=True)
    assert found == [0, refusal, 2, refusal]


async def test_what_those_who_were_told_ask_for_next_shares_a_batch_with_what_waits() -> None:
    service = Service()
    service.open.clear()
    together = service.together()

    async def twice(number: int) -> int:
        return await together.put(await together.put(number))

    first = [asyncio.ensure_future(twice(number)) for number in (1, 2)]
    await SYSTEM_CLOCK.sleep(0)
    await SYSTEM_CLOCK.sleep(0)
    waiting = together.put(3)
    service.open.set()
    assert await asyncio.gather(*first, waiting) == [4, 8, 6]
    assert service.batches == [[1, 2], [3, 2, 4]]


async def test_what_a_batch_has_no_room_for_waits_for_the_next() -> None:
    batches: list[list[int]] = []

    async def carry_out(numbers: Sequence[int]) -> list[int]:
        batches.append(list(numbers))
        return list(numbers)[:2]

    together = Together(carry_out, name="test")
    assert await asyncio.gather(*map(together.put, range(5))) == [0, 1, 2, 3, 4]
    assert batches == [[0, 1, 2, 3, 4], [2, 3, 4], [4]]


async def test_drained_waits_for_what_is_under_way_and_for_what_waits() -> None:
    service = Service()
    together = service.together(most=1)
    await together.drained()
    put = [together.put(1), together.put(2)]
    await together.drained()
    assert [future.result() for future in put] == [2, 4]


async def test_whoever_is_under_way_is_told_when_the_work_is_cancelled_and_the_others_go_on() -> (
    None
):
    service = Service()
    service.open.clear()
    together = service.together()
    under_way = together.put(1)
    await SYSTEM_CLOCK.sleep(0)
    waiting = together.put(2)
    worker().cancel()
    with pytest.raises(asyncio.CancelledError):
        await under_way
    service.open.set()
    assert await waiting == 4
    assert await together.put(4) == 8


async def test_work_that_is_cancelled_before_it_has_begun_is_done_nevertheless() -> None:
    together = Service().together()
    put = together.put(1)
    worker().cancel()
    await together.drained()
    assert put.result() == 2
    assert await together.put(3) == 6


async def test_work_that_is_cancelled_between_two_batches_raises_in_no_callback() -> None:
    failed = list[object]()
    asyncio.get_running_loop().set_exception_handler(lambda _, told: failed.append(told))
    together = Service().together()
    assert await together.put(1) == 2
    worker().cancel()
    await together.drained()
    assert await together.put(3) == 6
    assert failed == []


def test_a_loop_that_ends_at_once_still_carries_out_what_its_tasks_ask_for_last() -> None:
    service, told = Service(), list[int]()
    together = service.together()

    async def background() -> None:
        try:
            await together.put(1)
        finally:
            told.append(await together.put(2))

    async def main() -> asyncio.Task[None]:
        return asyncio.create_task(background())

    run(main())
    assert told == [4]


def worker() -> asyncio.Task[object]:
    [task] = [task for task in asyncio.all_tasks() if task.get_name() == "test"]
    return task
