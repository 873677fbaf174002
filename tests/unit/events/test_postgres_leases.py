"""Leases in PostgreSQL: those claimed at the same time share a statement, and wait for none."""

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Iterable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest

from lib._util.clock import SYSTEM_CLOCK
from lib.events import EventStore, Lease, PostgresEventStore
from lib.testing.event_store.kit import begin
from servers import postgres

RUNS = [f"run-{number}" for number in range(20)]


@pytest.fixture
def schema() -> str:
    return postgres.fresh_schema()


@pytest.fixture
def url() -> str:
    return postgres.url()


@asynccontextmanager
async def a_store(url: str, schema: str) -> AsyncGenerator[EventStore]:
    store = PostgresEventStore(url, schema=schema)
    await store.setup()
    try:
        for name in RUNS:
            await begin(store, name)
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def row_held(url: str, schema: str, run_id: str) -> AsyncGenerator[None]:
    """Hold the row of a run, as an append of another process would."""
    connection = await psycopg.AsyncConnection.connect(url)
    async with connection:
        statement = f'SELECT 1 FROM "{schema}".lib_runs WHERE run_id = %s FOR UPDATE'
        await connection.execute(statement.encode(), [run_id])
        yield


async def test_a_claim_that_cannot_be_made_fails_alone(url: str, schema: str) -> None:
    async with a_store(url, schema) as store:
        claims = [store.claim(owner, ttl_s=30, run_id="run-1") for owner in ("a\ud800", "b")]
        refused, taken = await asyncio.gather(*claims, return_exceptions=True)
        assert isinstance(refused, ValueError)
        assert isinstance(taken, list)
        assert [lease.owner for lease in taken] == ["b"]


async def test_a_claim_of_none_takes_none(url: str, schema: str) -> None:
    async with a_store(url, schema) as store:
        assert await store.claim("me", ttl_s=30, run_id="run-1", limit=0) == []
        [lease] = await store.claim("you", ttl_s=30, run_id="run-1")
        assert lease.epoch == 1


async def test_each_of_many_claims_at_once_gets_its_own_run_and_no_run_is_claimed_twice(
    url: str, schema: str
) -> None:
    async with a_store(url, schema) as store:
        claims = [
            store.claim(owner, ttl_s=30, run_id=name)
            for name in [*RUNS, "missing"]
            for owner in ("me", "you")
        ]
        claimed = await asyncio.gather(*claims)
        mine, yours = claimed[::2], claimed[1::2]
        assert [lease.run_id for [lease] in mine[:-1]] == RUNS
        assert {(lease.owner, lease.epoch) for [lease] in mine[:-1]} == {("me", 1)}
        assert not any(yours)
        assert mine[-1] == []


async def test_concurrent_renewals_and_releases_are_kept_apart(url: str, schema: str) -> None:
    async with a_store(url, schema) as store:
        leases = await store.claim("me", ttl_s=30, limit=4)
        await store.release(leases[3])
        renewed = await asyncio.gather(*[store.renew(lease, ttl_s=60) for lease in leases])
        assert [each is not None for each in renewed] == [True, True, True, False]
        ends = [info.lease_until for info in (await store.runs())[:4]]
        assert ends == [*[each.until for each in renewed if each], None]
        idle = [1, 0, None]  # the head up to which there is nothing to do
        gives = [store.release(lease, idle_at=at) for lease, at in zip(leases, idle, strict=False)]
        await asyncio.gather(*gives)
        infos = (await store.runs())[:4]
        assert [(info.ready, info.owner) for info in infos] == [
            (False, None),
            (True, None),
            (True, None),
            (True, None),
        ]


async def test_of_two_concurrent_renewals_of_a_lease_the_last_counts(url: str, schema: str) -> None:
    async with a_store(url, schema) as store:
        [lease] = await store.claim("me", ttl_s=30)
        renewals = [store.renew(lease, ttl_s=ttl_s) for ttl_s in (50, 40)]
        first, second = await asyncio.gather(*renewals)
        info = await store.run(lease.run_id)
        assert first is not None
        assert second is not None
        assert info is not None
        assert info.lease_until in (first.until, second.until)


@pytest.mark.parametrize("what", ["claim", "renew", "release"])
async def test_a_writer_of_one_run_delays_only_claims_and_changes_of_that_run(
    url: str, schema: str, what: str
) -> None:
    async with a_store(url, schema) as store:
        leases: list[Lease] = []
        if what != "claim":
            leases = await store.claim("me", ttl_s=30, limit=len(RUNS))
        requests: dict[str, Iterable[Coroutine[Any, Any, Any]]] = {
            "claim": (store.claim("me", ttl_s=30, run_id=name) for name in RUNS),
            "renew": (store.renew(lease, ttl_s=60) for lease in leases),
            "release": (store.release(lease) for lease in leases),
        }
        async with row_held(url, schema, RUNS[3]):
            tasks = [asyncio.ensure_future(request) for request in requests[what]]
            await asyncio.wait([task for task in tasks if task is not tasks[3]])
            assert not tasks[3].done()
        await tasks[3]
        held = [info for info in await store.runs() if info.owner == "me"]
        assert len(held) == (0 if what == "release" else len(RUNS))


async def test_closing_waits_for_releases_under_way(url: str, schema: str) -> None:
    async with a_store(url, schema) as store:
        leases = await store.claim("me", ttl_s=30, limit=len(RUNS))
        releases = [asyncio.ensure_future(store.release(lease)) for lease in leases]
        await SYSTEM_CLOCK.sleep(0)
        await store.close()
        await asyncio.gather(*releases)
        await store.setup()
        assert not any(info.owner for info in await store.runs())


async def test_without_a_clock_of_its_own_a_store_goes_by_the_servers_time(
    url: str, schema: str
) -> None:
    async with a_store(url, schema) as store, await connected(url) as server:

        async def now() -> datetime:
            rows = await server.execute("SELECT clock_timestamp()")
            [at] = await rows.fetchone() or [None]
            assert isinstance(at, datetime)
            return at

        ttl = timedelta(seconds=30)
        before = await now()
        [lease] = await store.claim("me", ttl_s=30, run_id="run-1")
        [other] = await store.claim("me", ttl_s=30)
        between = await now()
        renewed = await store.renew(lease, ttl_s=30)
        after = await now()
        listed = await store.run("run-1")

        assert renewed is not None
        assert listed is not None
        assert before <= lease.until - ttl <= other.until - ttl <= between
        assert between <= renewed.until - ttl <= after
        assert listed.lease_until == renewed.until
        assert await store.claim("you", ttl_s=1, run_id="run-1") == []


async def connected(url: str) -> psycopg.AsyncConnection[Any]:
    return await psycopg.AsyncConnection.connect(url, autocommit=True)
