"""Small work runs on the event loop, large work in a thread that its caller always awaits."""

import asyncio
from threading import Event, Lock, current_thread, main_thread

import pytest

from lib.vector.offload import finished, offload, offload_whole

LARGE = 10**9


def here() -> bool:
    return current_thread() is main_thread()


async def test_only_large_work_goes_to_a_thread() -> None:
    assert await offload(0, here) is await offload_whole(0, here) is True
    assert await offload(LARGE, here) is await offload_whole(LARGE, here) is False


async def test_work_waits_for_its_lock_in_a_thread_and_never_on_the_loop() -> None:
    lock = Lock()
    assert await offload(0, lambda: (here(), lock.locked()), lock) == (True, True)
    assert await offload(LARGE, lambda: (here(), lock.locked()), lock) == (False, True)
    lock.acquire()
    waiting = asyncio.create_task(offload(0, here, lock))
    await asyncio.wait([waiting], timeout=0.01)
    assert not waiting.done()
    lock.release()
    assert await waiting is False
    assert not lock.locked()


async def test_a_lock_is_free_again_after_a_failure() -> None:
    def fail() -> None:
        raise ValueError

    lock = Lock()
    for effort in (0, LARGE):
        with pytest.raises(ValueError):  # noqa: PT011 - our own
            await offload(effort, fail, lock)
        assert not lock.locked()


@pytest.mark.parametrize("fails", [False, True])
async def test_who_is_cancelled_waits_for_the_end_of_the_work(fails: bool) -> None:
    begun, go_on, ended = Event(), Event(), Event()

    def work() -> None:
        begun.set()
        go_on.wait(10)
        ended.set()
        if fails:
            raise ValueError

    caller = asyncio.create_task(offload_whole(LARGE, work))
    await asyncio.to_thread(begun.wait, 10)
    for _ in range(2):
        caller.cancel()
        await asyncio.wait([caller], timeout=0.01)
        assert not caller.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert ended.is_set()


async def test_a_failure_in_a_thread_is_raised() -> None:
    def fail() -> None:
        raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011 - our own
        await offload_whole(LARGE, fail)


async def test_a_coroutine_that_waits_against_its_contract_is_an_error() -> None:
    async def waiting() -> None:
        await asyncio.Event().wait()

    async def at_once() -> str:
        return "here"

    assert finished(at_once()) == "here"
    with pytest.raises(RuntimeError, match="waits for something"):
        finished(waiting())
