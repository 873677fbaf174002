"""Calls that wait at the same time share a round trip, and each gets its own outcome."""

import asyncio
from collections.abc import Sequence

import pytest

from lib._util.batcher import Batcher
from lib._util.clock import SYSTEM_CLOCK


class Service:
    """Doubles numbers, a batch at a time; it refuses 13, and waits while it is not open."""

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

    def batcher(self, max_items: int | None = None) -> Batcher[int, int]:
        return Batcher(self.double, max_items=max_items, name="test")


async def test_waiting_items_are_processed_as_one_batch_in_order() -> None:
    service = Service()
    batcher = service.batcher(max_items=3)
    assert await asyncio.gather(*map(batcher.put, range(5))) == [0, 2, 4, 6, 8]
    assert await batcher.put(7) == 14
    assert service.batches == [[0, 1, 2], [3, 4], [7]]


async def test_items_put_during_a_batch_share_the_next_one() -> None:
    service = Service()
    service.open.clear()
    batcher = service.batcher()
    first = batcher.put(1)
    await SYSTEM_CLOCK.sleep(0)
    rest = [batcher.put(2), batcher.put(3)]
    service.open.set()
    assert await asyncio.gather(first, *rest) == [2, 4, 6]
    assert service.batches == [[1], [2, 3]]


async def test_an_item_cancelled_before_its_batch_is_not_processed() -> None:
    service = Service()
    service.open.clear()
    batcher = service.batcher()
    under_way = batcher.put(1)
    await SYSTEM_CLOCK.sleep(0)
    given_up, kept = batcher.put(2), batcher.put(3)
    given_up.cancel()
    under_way.cancel()
    service.open.set()
    assert await kept == 6
    assert service.batches == [[1], [3]]


async def test_an_exception_of_a_batch_is_raised_to_all_its_callers_and_to_no_other() -> None:
    service = Service()
    batcher = service.batcher(max_items=2)
    found = await asyncio.gather(*map(batcher.put, (12, 13, 14)), return_exceptions=True)
    assert [type(each) for each in found] == [ValueError, ValueError, int]
    service.open.clear()
    dropped = batcher.put(13)
    await SYSTEM_CLOCK.sleep(0)
    dropped.cancel()
    service.open.set()
    assert await batcher.put(15) == 30


async def test_a_refusal_is_raised_to_its_own_caller_only() -> None:
    refusal = ValueError("odd")

    async def process(numbers: Sequence[int]) -> list[int | Exception]:
        return [refusal if number % 2 else number for number in numbers]

    batcher = Batcher(process, name="test")
    found = await asyncio.gather(*map(batcher.put, range(4)), return_exceptions=True)
    assert found == [0, refusal, 2, refusal]


async def test_the_next_items_of_settled_callers_share_a_batch_with_waiting_items() -> None:
    service = Service()
    service.open.clear()
    batcher = service.batcher()

    async def twice(number: int) -> int:
        return await batcher.put(await batcher.put(number))

    first = [asyncio.ensure_future(twice(number)) for number in (1, 2)]
    await SYSTEM_CLOCK.sleep(0)
    await SYSTEM_CLOCK.sleep(0)
    waiting = batcher.put(3)
    service.open.set()
    assert await asyncio.gather(*first, waiting) == [4, 8, 6]
    assert service.batches == [[1, 2], [3, 2, 4]]


async def test_items_without_an_outcome_wait_for_the_next_batch() -> None:
    batches: list[list[int]] = []

    async def process(numbers: Sequence[int]) -> list[int]:
        batches.append(list(numbers))
        return list(numbers)[:2]

    batcher = Batcher(process, name="test")
    assert await asyncio.gather(*map(batcher.put, range(5))) == [0, 1, 2, 3, 4]
    assert batches == [[0, 1, 2, 3, 4], [2, 3, 4], [4]]


async def test_drained_waits_for_the_batch_under_way_and_for_waiting_items() -> None:
    service = Service()
    batcher = service.batcher(max_items=1)
    await batcher.drained()
    put = [batcher.put(1), batcher.put(2)]
    await batcher.drained()
    assert [future.result() for future in put] == [2, 4]


async def test_cancelling_the_task_cancels_its_batch_and_waiting_items_go_on() -> None:
    service = Service()
    service.open.clear()
    batcher = service.batcher()
    under_way = batcher.put(1)
    await SYSTEM_CLOCK.sleep(0)
    waiting = batcher.put(2)
    worker().cancel()
    with pytest.raises(asyncio.CancelledError):
        await under_way
    service.open.set()
    assert await waiting == 4
    assert await batcher.put(4) == 8


async def test_a_batch_whose_task_is_cancelled_before_it_begins_is_processed() -> None:
    batcher = Service().batcher()
    put = batcher.put(1)
    worker().cancel()
    await batcher.drained()
    assert put.result() == 2
    assert await batcher.put(3) == 6


async def test_a_task_cancelled_between_two_batches_raises_in_no_callback() -> None:
    failed = list[object]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failed.append(context))
    batcher = Service().batcher()
    assert await batcher.put(1) == 2
    worker().cancel()
    await batcher.drained()
    assert await batcher.put(3) == 6
    assert failed == []


def test_items_put_by_tasks_of_an_ending_loop_are_processed() -> None:
    service, outcomes = Service(), list[int]()
    batcher = service.batcher()

    async def background() -> None:
        try:
            await batcher.put(1)
        finally:
            outcomes.append(await batcher.put(2))

    async def main() -> asyncio.Task[None]:
        return asyncio.create_task(background())

    asyncio.run(main())  # its loop cancels what is left
    assert outcomes == [4]


def worker() -> asyncio.Task[object]:
    [task] = [task for task in asyncio.all_tasks() if task.get_name() == "test"]
    return task
