"""Tests deadlines, and attempts beside each other."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from lib.errors import DeadlineExceeded, LLMError
from lib.resilience import RetryPolicy, deadline, retry, time_left_s
from lib.resilience.hedge import Claim, hedged
from lib.testing.clock import ManualClock


async def settle_down() -> None:
    """Let tasks that can go on do so."""
    for _ in range(10):
        await asyncio.sleep(0)  # noqa: TID251 - lets them go on


async def test_a_block_that_takes_longer_is_cancelled() -> None:
    clock, ended = ManualClock(), list[str]()

    async def work() -> None:
        async with deadline(5.0, clock=clock):
            try:
                await asyncio.Event().wait()
            finally:
                ended.append("cleaned up")

    task = asyncio.create_task(work())
    await settle_down()
    clock.advance(4.9)
    await settle_down()
    assert not task.done()
    clock.advance(0.1)

    with pytest.raises(DeadlineExceeded, match=r"^no result within 5 s, all attempts together$"):
        await task
    assert ended == ["cleaned up"]


async def test_the_time_left_is_that_of_the_deadline_that_comes_first() -> None:
    clock = ManualClock()
    assert time_left_s() is None
    async with deadline(5.0, clock=clock):
        clock.advance(1.0)
        async with deadline(60.0, clock=clock):
            assert time_left_s() == 4.0
        async with deadline(None, clock=clock):
            assert time_left_s() == 4.0
        async with deadline(1.0, clock=clock):
            assert time_left_s() == 1.0
        assert time_left_s() == 4.0
    assert time_left_s() is None


async def test_another_timeout_and_a_cancellation_stay_what_they_are() -> None:
    with pytest.raises(TimeoutError):
        async with deadline(5.0, clock=ManualClock()):
            raise TimeoutError

    async def work() -> None:
        async with deadline(5.0, clock=ManualClock()):
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await settle_down()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_nothing_is_waited_for_that_would_come_after_the_deadline() -> None:
    async def busy() -> None:
        raise LLMError("busy", status=429, retryable=True, retry_after_s=30.0)

    clock = ManualClock()
    with pytest.raises(LLMError, match="busy"):
        async with deadline(20.0, clock=clock):
            await retry(busy, policy=RetryPolicy(), clock=clock, random=lambda: 0.0)


@pytest.mark.parametrize("wrong", [0, -1.0, float("nan")])
async def test_a_deadline_is_above_nothing(wrong: float) -> None:
    with pytest.raises(ValueError, match="expected deadline_s above 0"):
        async with deadline(wrong):
            pass


# -- hedges ----------------------------------------------------------------------------------------


class Attempts:
    """Attempts whose ends a test decides; what became of each."""

    def __init__(self) -> None:
        self.ends: list[asyncio.Future[str]] = []
        self.claims: list[Claim] = []

    def make(self) -> Callable[[Claim], Awaitable[str]]:
        async def attempt(claim: Claim) -> str:
            end = asyncio.get_running_loop().create_future()
            self.ends.append(end)
            self.claims.append(claim)
            return await end

        return attempt


async def begun(clock: ManualClock) -> tuple[Attempts, asyncio.Task[str]]:
    """Return attempts of which the second has just begun."""
    attempts = Attempts()
    call = hedged(attempts.make(), attempts.make(), after_s=2.0, clock=clock)
    task = asyncio.create_task(call)
    await settle_down()
    assert len(attempts.ends) == 1
    clock.advance(2.0)
    await settle_down()
    assert len(attempts.ends) == 2
    return attempts, task


@pytest.mark.parametrize("winner", [0, 1])
async def test_the_first_result_counts_and_the_other_attempt_is_cancelled(winner: int) -> None:
    attempts, task = await begun(ManualClock())
    attempts.ends[winner].set_result("first")

    assert await task == "first"
    assert attempts.ends[1 - winner].cancelled()


@pytest.mark.parametrize("failing", [0, 1])
async def test_a_failure_waits_for_the_other_attempt(failing: int) -> None:
    attempts, task = await begun(ManualClock())
    attempts.ends[failing].set_exception(LLMError("down"))
    await settle_down()
    assert not task.done()
    attempts.ends[1 - failing].set_result("late")

    assert await task == "late"


async def test_if_both_fail_the_error_is_that_of_the_first() -> None:
    attempts, task = await begun(ManualClock())
    attempts.ends[1].set_exception(LLMError("second"))
    await settle_down()
    attempts.ends[0].set_exception(LLMError("first"))

    with pytest.raises(LLMError, match="first"):
        await task


async def test_a_claim_cancels_the_other_and_what_follows_is_its_own() -> None:
    attempts, task = await begun(ManualClock())
    attempts.claims[1]()
    with pytest.raises(asyncio.CancelledError):
        attempts.claims[0]()
    await settle_down()
    assert attempts.ends[0].cancelled()
    attempts.ends[1].set_exception(LLMError("broke off"))

    with pytest.raises(LLMError, match="broke off"):
        await task


async def test_an_attempt_that_has_claimed_or_ended_gets_no_second_one() -> None:
    clock, attempts = ManualClock(), Attempts()
    task = asyncio.ensure_future(hedged(attempts.make(), attempts.make(), after_s=2.0, clock=clock))
    await settle_down()
    attempts.claims[0]()
    clock.advance(60.0)
    await settle_down()
    attempts.ends[0].set_result("whole")
    assert await task == "whole"
    assert len(attempts.ends) == 1

    async def failing(_: Claim) -> str:
        raise LLMError("at once")

    with pytest.raises(LLMError, match="at once"):
        await hedged(failing, attempts.make(), after_s=2.0, clock=clock)
    assert len(attempts.ends) == 1


async def test_a_cancelled_call_leaves_no_attempt_behind() -> None:
    attempts, task = await begun(ManualClock())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert all(end.cancelled() for end in attempts.ends)
