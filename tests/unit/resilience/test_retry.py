import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.errors import InvalidReply, LibError, LLMError, ToolError
from lib.resilience import RetryPolicy, is_retryable, retry
from lib.testing.clock import ManualClock

BUSY = LLMError("busy", status=503, retryable=True)
policies = st.builds(
    RetryPolicy,
    attempts=st.integers(1, 200),
    base_s=st.floats(0, 100),
    cap_s=st.floats(0, 100),
    deadline_s=st.floats(0, 1000),
)
jitters = st.floats(0, 1, exclude_max=True)


@given(policies, st.integers(1, 300), jitters, st.floats(0, 2000), st.none() | st.floats(-9, 2000))
def test_a_delay_is_within_its_bounds_or_there_is_none(
    policy: RetryPolicy, failed: int, jitter: float, elapsed_s: float, wanted_s: float | None
):
    delay_s = policy.delay_s(failed, elapsed_s=elapsed_s, jitter=jitter, retry_after_s=wanted_s)

    least_s = max(wanted_s or 0.0, 0.0)
    bound_s = min(policy.cap_s, policy.base_s * 2.0 ** (failed - 1))
    if delay_s is None:
        too_late = elapsed_s + least_s + bound_s > policy.deadline_s
        assert failed >= policy.attempts or too_late
    else:
        assert failed < policy.attempts
        assert least_s <= delay_s <= least_s + bound_s
        assert elapsed_s + delay_s <= policy.deadline_s


def test_the_bound_doubles_up_to_the_cap():
    policy = RetryPolicy(attempts=1000, deadline_s=1e9)
    delays = [policy.delay_s(failed, elapsed_s=0, jitter=0.5) for failed in range(1, 9)]

    assert delays == [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 10.0, 10.0]
    assert policy.delay_s(999, elapsed_s=0, jitter=0.5) == 10.0


def test_the_servers_wait_is_kept_to_even_above_the_cap():
    policy = RetryPolicy(base_s=1.0)

    assert policy.delay_s(1, elapsed_s=0, jitter=0.5, retry_after_s=60.0) == 60.5
    assert policy.delay_s(1, elapsed_s=0, jitter=0.5, retry_after_s=-3.0) == 0.5
    assert policy.delay_s(1, elapsed_s=0, jitter=0.5, retry_after_s=120.0) is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"attempts": 0}, "at least 1 attempt, got 0"),
        ({"base_s": -1.0}, "not negative"),
        ({"cap_s": -1.0}, "not negative"),
        ({"deadline_s": -1.0}, "not negative"),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(options: dict[str, Any], message: str):
    with pytest.raises(ValueError, match=message):
        RetryPolicy(**options)


def test_only_a_model_call_that_may_succeed_later_is_repeated():
    assert is_retryable(LLMError("slow down", retryable=True, retry_after_s=3.0)) == (True, 3.0)
    assert is_retryable(InvalidReply("no")) == (False, None)
    assert is_retryable(ToolError("timeout", "too slow")) == (False, None)


class Flaky:
    """Fails with the errors that it was given, then answers."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.calls = 0

    async def __call__(self) -> str:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return "answer"


async def within(clock: ManualClock, waits: list[float], make: Callable[[], Any]) -> Any:
    """Run the call, advancing the clock by each wait as soon as a task sleeps."""
    task = asyncio.ensure_future(make())
    for wait in waits:
        while not clock.sleepers:
            await asyncio.wait([task], timeout=0)
            assert not task.done()
        clock.advance(wait)
    return await task


async def test_a_call_is_made_again_after_each_wait():
    clock, retries = ManualClock(), list[tuple[int, LibError, float]]()
    flaky = Flaky(BUSY, LLMError("wait", retryable=True, retry_after_s=7.0), BUSY)

    def tell(failed: int, error: LibError, delay_s: float) -> None:
        retries.append((failed, error, delay_s))

    async def main() -> str:
        return await within(
            clock,
            [0.25, 7.5, 1.0],
            lambda: retry(
                flaky, policy=RetryPolicy(), clock=clock, random=lambda: 0.5, on_retry=tell
            ),
        )

    assert (await main()) == "answer"
    assert flaky.calls == 4
    assert [(failed, delay_s) for failed, _, delay_s in retries] == [(1, 0.25), (2, 7.5), (3, 1.0)]
    assert clock.monotonic() == 8.75


@pytest.mark.parametrize(
    ("errors", "policy", "calls"),
    [
        ([BUSY] * 9, RetryPolicy(attempts=3, base_s=0), 3),
        ([BUSY] * 9, RetryPolicy(attempts=1), 1),
        ([LLMError("no")], RetryPolicy(), 1),
        ([LLMError("wait", retryable=True, retry_after_s=121)], RetryPolicy(), 1),
    ],
)
async def test_the_last_error_is_raised_when_trying_again_is_over(
    errors: list[Exception], policy: RetryPolicy, calls: int
):
    flaky, last = Flaky(*errors), errors[calls - 1]

    with pytest.raises(LLMError) as caught:
        await retry(flaky, policy=policy, clock=ManualClock(), random=lambda: 0.5)

    assert caught.value is last
    assert flaky.calls == calls


async def test_the_deadline_counts_the_time_that_the_calls_took():
    clock, calls = ManualClock(), list[float]()
    clock.advance(1000.0)

    async def slow() -> str:
        calls.append(clock.monotonic())
        clock.advance(50.0)
        raise BUSY

    with pytest.raises(LLMError):
        await retry(slow, policy=RetryPolicy(base_s=0), clock=clock, random=lambda: 0.5)

    assert calls == [1000.0, 1050.0, 1100.0]


async def test_the_caller_decides_what_may_be_repeated():
    failing = ToolError("timeout", "too slow")
    flaky = Flaky(failing, failing)

    answer = await retry(
        flaky,
        policy=RetryPolicy(),
        clock=ManualClock(),
        random=lambda: 0.0,
        is_retryable=lambda error: (error is failing, None),
    )

    assert (answer, flaky.calls) == ("answer", 3)


async def test_an_error_that_is_not_the_librarys_is_never_repeated():
    flaky = Flaky(OSError("disk"))

    with pytest.raises(OSError, match="disk"):
        await retry(flaky, policy=RetryPolicy(), clock=ManualClock(), random=lambda: 0.0)

    assert flaky.calls == 1
