"""Tests rate limiters: their laws, waits, corrections and pauses, in one process."""

import asyncio
import logging
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.errors import RateLimited, StoreError
from lib.events import MemoryEventStore
from lib.resilience import Permit, RateLimiter, deadline
from lib.resilience.window import Limits, Window, window_of
from lib.testing.clock import ManualClock

# -- the laws, of what is granted ------------------------------------------------------------------

steps = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 12)), min_size=1, max_size=60)


@given(steps, st.none() | st.integers(1, 6), st.none() | st.integers(1, 12))
def test_no_minute_holds_more_than_its_limits(
    calls: list[tuple[int, int]], requests: int | None, tokens: int | None
) -> None:
    limits, window, now = Limits(requests, tokens), Window(), 1_000
    granted: list[tuple[int, int]] = []
    for later, wanted in calls:
        now += later
        window.forget(now)
        taken = limits.capped(wanted)
        second = window.first_free(limits, taken, now)
        assert second >= now
        window.add(second, 1, taken)
        granted.append((second, taken))

    for begin, _ in granted:  # a request goes out somewhere in its second, so 61 of them count
        inside = [taken for second, taken in granted if begin <= second <= begin + 60]
        assert requests is None or len(inside) <= requests
        assert tokens is None or sum(inside) <= tokens


@given(steps, st.integers(1, 6), st.integers(1, 12))
def test_a_call_gets_the_first_second_with_room_for_it(
    calls: list[tuple[int, int]], requests: int, tokens: int
) -> None:
    limits, window, now = Limits(requests, tokens), Window(), 1_000
    for later, wanted in calls:
        now += later
        window.forget(now)
        taken = limits.capped(wanted)
        second = window.first_free(limits, taken, now)
        for earlier in range(now, second):
            tried = window_of(window.to_text())
            tried.add(earlier, 1, taken)
            used = tried.used
            assert any(
                sum(used.get(s, (0, 0))[0] for s in range(begin, begin + 61)) > requests
                or sum(used.get(s, (0, 0))[1] for s in range(begin, begin + 61)) > tokens
                for begin in range(earlier - 60, earlier + 1)
            )
        window.add(second, 1, taken)


@given(steps)
def test_calls_alike_get_their_turns_in_the_order_in_which_they_come(
    calls: list[tuple[int, int]],
) -> None:
    limits, window, now, last = Limits(3, None), Window(), 1_000, 0
    for later, _ in calls:
        now += later
        second = window.first_free(limits, 0, now)
        window.add(second, 1, 0)
        assert second >= last
        last = second


@given(steps, st.integers(0, 2_000))
def test_a_window_is_the_same_after_it_was_written(
    calls: list[tuple[int, int]], paused: int
) -> None:
    window = Window(paused_until=paused)
    for second, tokens in calls:
        window.add(second, 1, tokens)

    assert window_of(window.to_text()) == window


@pytest.mark.parametrize("text", ["", "[]", "{", '{"used": {"a": 1}}', '{"used": {"1": [1]}}'])
def test_a_mark_that_is_no_window_is_an_empty_one(text: str) -> None:
    assert window_of(text) == Window()


def test_a_wrong_clock_of_another_machine_does_not_stop_calls() -> None:
    window = Window({10_000_000: (5, 5)}, paused_until=10_000_000)
    window.forget(1_000)

    assert window.first_free(Limits(1, None), 0, 1_000) == 1_000
    assert window.used == {}


# -- calls -----------------------------------------------------------------------------------------


async def settle_down() -> None:
    """Let tasks that can go on do so."""
    for _ in range(10):
        await asyncio.sleep(0)  # noqa: TID251 - lets them go on


async def advance(clock: ManualClock, seconds: float, step_s: float = 0.5) -> None:
    """Let time pass in steps, and what waits for it go on."""
    for _ in range(round(seconds / step_s)):
        clock.advance(step_s)
        await settle_down()


async def test_calls_beyond_the_rate_wait_for_their_turn_in_order() -> None:
    clock = ManualClock()
    limiter = RateLimiter(requests_per_minute=2, max_wait_s=200.0, clock=clock)
    order: list[tuple[int, float]] = []

    async def call(number: int) -> None:
        permit = await limiter.acquire()
        order.append((number, permit.waited_s))

    async with asyncio.TaskGroup() as group:
        for number in range(5):
            group.create_task(call(number))
        await settle_down()
        assert order == [(0, 0.0), (1, 0.0)]
        await advance(clock, 122.0)

    assert order == [(0, 0.0), (1, 0.0), (2, 61.0), (3, 61.0), (4, 122.0)]


async def test_small_calls_do_not_starve_a_large_one() -> None:
    clock = ManualClock()
    limiter = RateLimiter(tokens_per_minute=10, max_wait_s=200.0, clock=clock)
    await limiter.acquire(6)

    async with asyncio.TaskGroup() as group:
        large = group.create_task(limiter.acquire(1_000))  # takes a minute alone
        await settle_down()
        small = await limiter.acquire(4)  # there is room, and it does not delay the large one
        assert small.waited_s == 0.0
        waiting = group.create_task(limiter.acquire(1))
        await settle_down()
        await advance(clock, 61.0)
        assert large.done()
        assert not waiting.done()
        await advance(clock, 61.0)

    assert [large.result().waited_s, waiting.result().waited_s] == [61.0, 122.0]


async def test_a_call_that_would_wait_too_long_is_refused_at_once() -> None:
    clock = ManualClock()
    limiter = RateLimiter("gpt", requests_per_minute=1, max_wait_s=10.0, clock=clock)
    await limiter.acquire()
    clock.advance(21.0)

    with pytest.raises(RateLimited) as refusal:
        await limiter.acquire()
    assert (refusal.value.retry_after_s, refusal.value.max_wait_s) == (40.0, 10.0)
    assert refusal.value.retryable

    clock.advance(40.0)  # and a refusal takes nothing
    assert (await limiter.acquire()).waited_s == 0.0


async def test_a_wait_beyond_the_callers_deadline_is_refused_at_once() -> None:
    clock = ManualClock()
    limiter = RateLimiter(requests_per_minute=1, clock=clock)
    await limiter.acquire()

    with pytest.raises(RateLimited) as refusal:
        async with deadline(20.0, clock=clock):
            await limiter.acquire()
    assert refusal.value.max_wait_s == 20.0


async def test_a_cancelled_wait_takes_nothing() -> None:
    clock = ManualClock()
    limiter = RateLimiter(requests_per_minute=1, clock=clock)
    await limiter.acquire()
    cancelled = asyncio.create_task(limiter.acquire())
    await settle_down()
    cancelled.cancel()
    await asyncio.wait([cancelled])

    next_one = asyncio.create_task(limiter.acquire())
    await settle_down()
    await advance(clock, 61.0)
    assert (await next_one).waited_s == 61.0


async def test_tokens_are_corrected_by_what_was_used() -> None:
    clock = ManualClock()
    limiter = RateLimiter(tokens_per_minute=100, max_wait_s=0.0, clock=clock)
    first = await limiter.acquire(90)
    await limiter.settle(first, 10)
    second = await limiter.acquire(80)
    await limiter.settle(second, 95)

    with pytest.raises(RateLimited):
        await limiter.acquire(1)
    clock.advance(61.0)
    await limiter.acquire(100)


async def test_a_wait_that_the_server_asks_for_holds_for_everybody() -> None:
    clock = ManualClock()
    limiter = RateLimiter(requests_per_minute=2, clock=clock)
    await limiter.acquire()
    await limiter.acquire()
    waiting = asyncio.create_task(limiter.acquire())
    await settle_down()
    await limiter.pause(100.0)
    await limiter.pause(5.0)  # does not make it shorter
    await limiter.pause(0.0)

    await advance(clock, 99.5)
    assert not waiting.done()
    await advance(clock, 0.5)
    assert (await waiting).waited_s == 100.0


async def test_a_process_that_was_late_sends_no_burst() -> None:
    clock = ManualClock()
    limiter = RateLimiter(requests_per_minute=1, max_wait_s=300.0, clock=clock)
    starts: list[float] = []

    async def call() -> None:
        await limiter.acquire()
        starts.append(clock.monotonic())

    async with asyncio.TaskGroup() as group:
        for _ in range(3):
            group.create_task(call())
        await settle_down()
        clock.advance(130.0)  # all that wait wake at once
        await settle_down()
        await advance(clock, 122.0)

    assert len(starts) == 3
    assert all(later - earlier >= 61.0 for earlier, later in pairwise(starts))


async def test_a_store_that_fails_leaves_the_process_to_count_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Failing:
        async def mark(self, name: str) -> str | None:
            raise StoreError("gone")

        async def compare_and_set_mark(
            self, name: str, *, expected: str | None, value: str | None
        ) -> bool:
            raise StoreError("gone")

    limiter = RateLimiter(
        "gpt", requests_per_minute=2, max_wait_s=0.0, store=Failing(), clock=ManualClock()
    )
    with caplog.at_level(logging.WARNING, logger="lib.resilience"):
        await limiter.acquire()
        await limiter.acquire()
        with pytest.raises(RateLimited):
            await limiter.acquire()

    assert [record.getMessage() for record in caplog.records] == [
        "the rate of gpt is counted in this process alone, its store failed: gone"
    ]


async def test_a_cancelled_call_gives_back_what_it_takes_in_a_store() -> None:
    clock, taking = ManualClock(), asyncio.Event()
    go_on = asyncio.Event()

    class Slow(MemoryEventStore):
        async def compare_and_set_mark(
            self, name: str, *, expected: str | None, value: str | None
        ) -> bool:
            taking.set()
            await go_on.wait()
            return await super().compare_and_set_mark(name, expected=expected, value=value)

    async with Slow(clock=clock) as store:
        limiter = RateLimiter(
            "gpt", requests_per_minute=1, max_wait_s=0.0, store=store, clock=clock
        )
        caller = asyncio.create_task(limiter.acquire())
        await taking.wait()
        caller.cancel()
        await settle_down()
        go_on.set()
        await asyncio.wait([caller])
        assert caller.cancelled()

        assert (await limiter.acquire()).waited_s == 0.0


async def test_two_limiters_of_one_name_share_a_store() -> None:
    clock = ManualClock()
    async with MemoryEventStore(clock=clock) as store:
        one, other = (
            RateLimiter("gpt", requests_per_minute=3, max_wait_s=0.0, store=store, clock=clock)
            for _ in range(2)
        )

        async def tried(limiter: RateLimiter) -> bool:
            try:
                await limiter.acquire()
            except RateLimited:
                return False
            return True

        got = await asyncio.gather(*(tried(each) for each in [one, other] * 4))
        await one.pause(5.0)
        clock.advance(61.0)
        assert sum(got) == 3
        assert await tried(other)


def test_one_limiter_serves_loop_after_loop() -> None:
    limiter = RateLimiter(requests_per_minute=5)
    permits: list[Permit] = [asyncio.run(limiter.acquire()) for _ in range(3)]
    assert [permit.waited_s < 60.0 for permit in permits] == [True] * 3


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"requests_per_minute": 0},
        {"tokens_per_minute": -5},
        {"requests_per_minute": 1, "max_wait_s": -1.0},
        {"requests_per_minute": 1, "max_wait_s": 1e9},
        {"requests_per_minute": 1, "store": MemoryEventStore()},
    ],
)
def test_a_limiter_that_makes_no_sense_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"expected|needs a name"):
        RateLimiter(**wrong)  # pyright: ignore[reportArgumentType] - wrong on purpose
