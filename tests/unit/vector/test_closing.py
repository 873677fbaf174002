"""A store closes once, after the calls under way, even if a caller of `close` is cancelled."""

import asyncio

import pytest

from lib.errors import StoreClosed
from lib.vector.closing import Closing


class Held:
    """Something to release; it takes until it is let go."""

    def __init__(self) -> None:
        self.releases = 0
        self.let_go = asyncio.Event()

    async def release(self) -> None:
        self.releases += 1
        await self.let_go.wait()


async def test_no_call_begins_once_closing_has_begun() -> None:
    closing, held = Closing("Store"), Held()
    closing.check_open()
    first = asyncio.create_task(closing.close(held.release))
    await asyncio.wait([first], timeout=0)

    with pytest.raises(StoreClosed, match="Store is closed"):
        closing.check_open()
    with pytest.raises(StoreClosed), closing:
        raise AssertionError
    held.let_go.set()
    await first


async def test_what_is_held_is_released_after_the_last_running_call() -> None:
    closing, held = Closing("Store"), Held()
    held.let_go.set()
    with closing:
        with closing:
            closed = asyncio.create_task(closing.close(held.release))
            await asyncio.wait([closed], timeout=0.01)
        await asyncio.wait([closed], timeout=0.01)
        assert held.releases == 0
    await closed

    assert held.releases == 1


async def test_a_call_that_fails_is_over() -> None:
    closing, held = Closing("Store"), Held()
    held.let_go.set()
    with pytest.raises(ValueError, match="wrong"), closing:
        raise ValueError("wrong")
    await closing.close(held.release)
    assert held.releases == 1


async def test_a_cancelled_closing_goes_on_and_the_next_one_waits_for_it() -> None:
    closing, held = Closing("Store"), Held()
    first = asyncio.create_task(closing.close(held.release))
    await asyncio.wait([first], timeout=0.01)
    first.cancel()
    await asyncio.wait([first])
    assert first.cancelled()
    again = asyncio.create_task(closing.close(held.release))
    await asyncio.wait([again], timeout=0.01)
    assert not again.done()
    held.let_go.set()
    await again
    await closing.close(held.release)

    assert held.releases == 1


async def test_every_caller_of_a_failing_close_gets_its_error() -> None:
    closing = Closing("Store")

    async def release() -> None:
        raise OSError("the disk is gone")

    for _ in range(2):
        with pytest.raises(OSError, match="the disk is gone"):
            await closing.close(release)


def test_closing_interrupted_by_the_end_of_a_loop_can_be_repeated_in_the_next_one() -> None:
    closing, releases = Closing("Store"), list[bool]()

    async def release() -> None:
        releases.append(True)
        if len(releases) == 1:
            await asyncio.get_running_loop().create_future()

    async def interrupted() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(closing.close(release), 0.01)

    asyncio.run(interrupted())
    asyncio.run(closing.close(release))
    asyncio.run(closing.close(release))
    assert len(releases) == 2
