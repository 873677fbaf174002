"""Rates: the same decisions as a token bucket, in one process and over Redis."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.errors import StoreClosed, StoreReadOnly
from lib.events.rates import Rate, Rates, RateState
from lib.testing.clock import ManualClock
from servers import redis

from .redis_kit import commands, opened

NAMES = 1_000_000 if os.environ.get("LIB_TEST_LONG") else 100_000


class Bucket:
    """A token bucket, as a book has it: a full one at first, filled all the time."""

    def __init__(self, rate: Rate) -> None:
        self.rate, self.tokens, self.at = rate, float(rate.count), 0.0

    def take(self, now: float) -> bool:
        earned = (now - self.at) * self.rate.count / self.rate.window_s
        self.tokens, self.at = min(self.rate.count, self.tokens + earned), now
        if self.tokens < 1:
            return False
        self.tokens -= 1
        return True


@given(
    st.integers(1, 8),
    st.lists(st.integers(0, 40), max_size=60),
)
def test_decisions_are_those_of_a_token_bucket(count: int, pauses: list[int]) -> None:
    clock, rate = ManualClock(), Rate(count, 8.0 * count)  # a token each 8 seconds
    rates, bucket = Rates(clock=clock), Bucket(rate)
    for pause in pauses:
        clock.advance(pause)
        [state] = rates.take([("a", rate)])
        assert (not state.retry_after_s) == bucket.take(clock.monotonic())
        assert state.remaining == int(bucket.tokens)


def test_a_refusal_says_when_again_and_that_is_so() -> None:
    clock, rate = ManualClock(), Rate(3, 30)
    rates = Rates(clock=clock)
    states = [rates.take([("a", rate)])[0] for _ in range(4)]
    assert states[0] == RateState(2, 10.0, 0.0)
    assert states[3] == RateState(0, 30.0, 10.0)

    clock.advance(states[3].retry_after_s - 0.001)
    assert rates.take([("a", rate)])[0].retry_after_s > 0
    clock.advance(0.001)
    assert rates.take([("a", rate)])[0] == RateState(0, 30.0, 0.0)


def test_a_request_that_one_name_refuses_counts_under_none() -> None:
    rates = Rates(clock=ManualClock())
    both = [("tenant", Rate(10)), ("key", Rate(1))]
    rates.take(both)
    for _ in range(5):
        tenant, key = rates.take(both)
        assert (tenant.remaining, tenant.retry_after_s) == (9, 0.0)
        assert key.retry_after_s == 60.0


def test_many_names_take_bounded_room() -> None:
    rates, rate = Rates(clock=ManualClock(), max_names=1000), Rate(1)
    shared = ("all of them", Rate(NAMES))
    for n in range(NAMES):
        states = rates.take([shared, (f"key {n}", rate)])
        if n % (NAMES // 10) == 0:
            assert not states[0].retry_after_s
            assert len(rates) <= 1000

    assert len(rates) == 1000
    assert rates.take([shared])[0].retry_after_s > 0  # the shared one was never forgotten


@pytest.mark.parametrize(
    ("count", "window_s"),
    [(0, 60), (-1, 60), (10**10, 60), (1, 0), (1, float("nan")), (1, 1e9)],
)
def test_a_rate_that_cannot_be_counted_is_refused(count: int, window_s: float) -> None:
    with pytest.raises(ValueError, match="expected"):
        Rate(count, window_s)


@pytest.fixture
def url() -> str:
    return redis.fresh_url()


async def test_redis_decides_as_the_memory_of_one_process_does(url: str) -> None:
    clock = ManualClock()
    wanted = [("tenant é\udc80", Rate(7, 3.5)), ("key", Rate(3, 60))]
    async with opened(url, clock=clock) as store:
        rates = Rates(clock=clock)
        for pause in (0, 0, 0.1, 0, 0, 15, 3, 0, 40, 0, 0, 0, 0, 100, 0):
            clock.advance(pause)
            assert await store.take_rates(wanted) == rates.take(wanted)


async def test_processes_share_a_rate_over_redis(url: str) -> None:
    rate = [("a", Rate(5, 3600))]
    async with opened(url) as one, opened(url) as two:
        granted = [not (await store.take_rates(rate))[0].retry_after_s for store in (one, two) * 5]

    assert granted == [True] * 5 + [False] * 5


async def test_names_expire_from_redis_when_their_window_is_free_again(url: str) -> None:
    async with opened(url) as store:
        await store.take_rates([("a", Rate(10, 600))])
        [keys] = await commands(url, ("KEYS", "*:rate:*"))
        [expires_ms] = await commands(url, ("PTTL", keys[0]))

    assert len(keys) == 1
    assert b":rate:a" not in keys[0]  # names of users are kept as digests
    assert 0 < expires_ms <= 60_000


async def test_a_store_that_cannot_write_counts_nothing(url: str) -> None:
    async with opened(url) as store:
        pass
    with pytest.raises(StoreClosed):
        await store.take_rates([("a", Rate(1))])
    async with opened(url, read_only=True) as store:
        with pytest.raises(StoreReadOnly):
            await store.take_rates([("a", Rate(1))])
