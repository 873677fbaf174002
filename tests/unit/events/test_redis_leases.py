"""Leases in Redis under clocks that differ, and for times far away."""

from datetime import datetime, timedelta

import pytest

from lib.events.codec import decode_time
from lib.testing.clock import ManualClock
from lib.testing.event_store.kit import begin
from servers import redis

from .redis_kit import admin, opened


@pytest.fixture
def url() -> str:
    return redis.fresh_url()


async def test_a_slow_clock_does_not_take_the_lease_of_another(url: str) -> None:
    ahead, behind = ManualClock(), ManualClock()
    ahead.advance(100)
    async with opened(url, clock=ahead) as one, opened(url, clock=behind) as two:
        for name in ("a", "b", "c"):
            await begin(one, name)
        [first] = await two.claim("two", ttl_s=50)
        [second] = await one.claim("one", ttl_s=50)  # also finds that a's lease is over
        assert (first.run_id, second.run_id, second.takeover) == ("a", "a", True)
        held = await two.renew(first, ttl_s=50)
        [third] = await two.claim("two", ttl_s=120)
        ahead.advance(60)
        fourth = await one.claim("one", ttl_s=50, limit=0)
        fifth = await two.claim("two", ttl_s=50, limit=5)

        assert held is None
        assert (third.run_id, fourth) == ("b", [])
        assert [lease.run_id for lease in fifth] == ["c"]
        assert await two.claim("two", ttl_s=50, run_id="a", limit=0) == []
        assert await one.claim("one", ttl_s=50, run_id="a", algorithms=["other"]) == []
        [last] = await one.claim("one", ttl_s=50, run_id="a", algorithms=["react"])
        assert last.epoch == 3


async def test_a_lease_found_over_by_a_clock_ahead_is_still_held_for_one_behind(url: str) -> None:
    ahead, behind = ManualClock(), ManualClock()
    ahead.advance(100)
    async with opened(url, clock=ahead) as one, opened(url, clock=behind) as two:
        await begin(one, "a")
        await begin(one, "b")
        await two.claim("two", ttl_s=50, run_id="b")
        [taken] = await one.claim("one", ttl_s=50)

        assert taken.run_id == "a"
        assert await two.claim("two", ttl_s=50, limit=5) == []
        [over] = await one.claim("one", ttl_s=50)
        assert (over.run_id, over.takeover) == ("b", True)


async def test_leases_at_times_far_away_are_kept_exactly(url: str) -> None:
    clock = ManualClock()
    clock.advance(200 * 365 * 86_400)
    async with opened(url, clock=clock) as store:
        await begin(store, "run")
        [lease] = await store.claim("me", ttl_s=30.000001)
        found = await store.run("run")

        assert found is not None
        assert found.lease_until == lease.until == clock.now() + timedelta(seconds=30.000001)
        assert await store.claim("you", ttl_s=1) == []


async def test_without_a_clock_of_its_own_a_store_goes_by_the_servers_time(url: str) -> None:
    async with opened(url) as store, admin(url) as server:

        async def now() -> datetime:
            seconds, micros = await server.call("TIME")
            return decode_time(int(seconds) * 10**6 + int(micros))

        await begin(store, "run")
        ttl = timedelta(seconds=30)
        before = await now()
        [lease] = await store.claim("me", ttl_s=30)
        between = await now()
        renewed = await store.renew(lease, ttl_s=30)
        after = await now()
        listed = await store.run("run")

        assert renewed is not None
        assert listed is not None
        assert before <= lease.until - ttl <= between <= renewed.until - ttl <= after
        assert listed.lease_until == renewed.until
        assert await store.claim("you", ttl_s=1) == []
