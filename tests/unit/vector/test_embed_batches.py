"""Batches: how they are cut, and how several are under way at once."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.errors import LLMError
from lib.vector.embed.remote import batches, each


@given(st.lists(st.text(max_size=20)), st.integers(1, 5), st.integers(1, 40))
def test_batches_hold_the_texts_in_order_within_the_bounds(
    texts: list[str], max_texts: int, max_bytes: int
) -> None:
    cut = list(batches(texts, max_texts=max_texts, max_bytes=max_bytes))

    assert [text for batch in cut for text in batch] == texts
    for batch in cut:
        assert 1 <= len(batch) <= max_texts
        assert len(batch) == 1 or sum(len(text.encode()) for text in batch) <= max_bytes


def test_a_batch_is_as_full_as_it_may_be() -> None:
    texts = ["aa", "é", "b", "cccc", "dddddd", "e", "f", "g", "h"]

    cut = list(batches(texts, max_texts=3, max_bytes=5))

    assert cut == [["aa", "é", "b"], ["cccc"], ["dddddd"], ["e", "f", "g"], ["h"]]


def test_a_lone_surrogate_has_a_size_too() -> None:
    assert list(batches(["\ud800", "a"], max_texts=9, max_bytes=2)) == [["\ud800", "a"]]


class Gate:
    """Calls that wait until they are let through, in any order."""

    def __init__(self) -> None:
        self.running: dict[int, asyncio.Future[str]] = {}
        self.begun: list[int] = []
        self.cancelled: list[int] = []

    async def __call__(self, item: int) -> str:
        self.begun.append(item)
        self.running[item] = asyncio.get_running_loop().create_future()
        try:
            return await self.running[item]
        except asyncio.CancelledError:
            self.cancelled.append(item)
            raise

    async def settled(self) -> None:
        for _ in range(10):
            await asyncio.sleep(0)  # noqa: TID251 - one turn of the event loop


async def test_results_are_in_order_and_so_many_calls_run_at_once() -> None:
    gate = Gate()
    whole = asyncio.create_task(each([0, 1, 2, 3, 4], gate, concurrency=2))
    await gate.settled()
    assert gate.begun == [0, 1]

    gate.running[1].set_result("one")
    await gate.settled()
    assert gate.begun == [0, 1, 2]

    for item, name in ((2, "two"), (3, "three"), (0, "zero"), (4, "four")):
        gate.running[item].set_result(name)
        await gate.settled()

    assert await whole == ["zero", "one", "two", "three", "four"]


async def test_the_first_failure_cancels_the_others_and_begins_no_more() -> None:
    gate = Gate()
    whole = asyncio.create_task(each(range(9), gate, concurrency=3))
    await gate.settled()
    gate.running[1].set_exception(LLMError("busy", status=429))

    with pytest.raises(LLMError, match="busy") as failed:
        await whole

    assert failed.value.status == 429
    assert (gate.begun, sorted(gate.cancelled)) == ([0, 1, 2], [0, 2])


async def test_of_two_failures_at_once_one_is_raised() -> None:
    gate = Gate()
    whole = asyncio.create_task(each(range(9), gate, concurrency=2))
    await gate.settled()
    gate.running[1].set_exception(LLMError("first"))
    gate.running[0].set_exception(LLMError("second"))

    with pytest.raises(LLMError, match="first"):
        await whole


async def test_cancelling_the_whole_cancels_every_call() -> None:
    gate = Gate()
    whole = asyncio.create_task(each(range(9), gate, concurrency=3))
    await gate.settled()

    whole.cancel()
    with pytest.raises(asyncio.CancelledError):
        await whole

    assert sorted(gate.cancelled) == [0, 1, 2]


async def test_nothing_needs_no_call() -> None:
    gate = Gate()

    assert await each([], gate, concurrency=4) == []
    assert gate.begun == []
