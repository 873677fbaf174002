"""A PostgreSQL event store beside others on its schema: their locks, commits and news."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import psycopg
import pytest

from lib.errors import Conflict, RunErased, RunNotFound, StoreError
from lib.events.runs import partition_of
from lib.testing.clock import ManualClock
from lib.testing.event_store.kit import all_events, begin, note, started
from servers import postgres

from .postgres_kit import LOST, execute, hasty, opened, until_blocked


@pytest.fixture
def url() -> str:
    return postgres.url()


@pytest.fixture
def schema() -> str:
    return postgres.fresh_schema()


async def test_calls_time_out_while_another_connection_locks_the_tables(
    url: str, schema: str
) -> None:
    async def unanswered(call: Callable[[], Awaitable[Any]]) -> StoreError:
        while True:
            with pytest.raises(StoreError) as caught:
                await call()
            assert caught.value.retryable
            if "no connection" not in str(caught.value):  # this process was too slow for one
                return caught.value

    async with (
        opened(url, schema, partitions=1) as patient,
        hasty(url, schema, 0.5) as store,
        await psycopg.AsyncConnection.connect(url) as other,
    ):
        await begin(patient, "run")
        tables = f'"{schema}".lib_partitions, "{schema}".lib_runs, "{schema}".lib_marks'
        await execute(other, f"LOCK TABLE {tables} IN ACCESS EXCLUSIVE MODE")
        calls = [
            unanswered(lambda: store.append("run", [note()], expected=1)),
            unanswered(lambda: store.run("run")),
            unanswered(lambda: store.claim("me", ttl_s=30)),
            unanswered(lambda: store.set_mark("m", "v")),
        ]
        async with asyncio.timeout(200):
            errors = await asyncio.gather(*calls)
        await other.rollback()
        for error in errors:
            assert "gave no answer in time" in str(error)
        assert LOST in str(errors[0])
        await patient.append("run", [note()], expected=1)
        await execute(other, f"LOCK TABLE {tables} IN ACCESS EXCLUSIVE MODE")
        blocked = asyncio.create_task(until_blocked())
        waits = asyncio.create_task(store.append("run", [note()], expected=2))
        await asyncio.wait([waits, blocked], return_when=asyncio.FIRST_COMPLETED)
        while not blocked.done():  # this process was too slow to look
            waits = asyncio.create_task(store.append("run", [note()], expected=2))
            await asyncio.wait([waits, blocked], return_when=asyncio.FIRST_COMPLETED)
        async with asyncio.timeout(200):
            await store.close()
        with pytest.raises(StoreError, match=LOST):
            await waits


async def test_two_starts_of_one_run_with_different_roots_are_one_start(
    url: str, schema: str
) -> None:
    assert partition_of("a", 8) != partition_of("b", 8)
    async with opened(url, schema) as one, opened(url, schema) as two:
        for number in range(20):
            outcomes = await asyncio.gather(
                one.append(f"run-{number}", [started(root="a")], expected=0),
                two.append(f"run-{number}", [started(root="b")], expected=0),
                return_exceptions=True,
            )
            assert sorted(type(outcome).__name__ for outcome in outcomes) == [
                "Conflict",
                "list",
            ]


async def test_the_cache_of_runs_never_decides_against_the_database(url: str, schema: str) -> None:
    async with opened(url, schema) as one, opened(url, schema) as two:
        await begin(one, "run")
        await two.append("run", [note()], expected=1)
        await two.append("run", [note()], expected=2)
        await one.append("run", [note()], expected=3)  # it remembers a head of 1
        await two.append("run", [note()], expected=None)
        with pytest.raises(Conflict) as caught:
            await one.append("run", [note()], expected=4)
        assert caught.value.actual == 5
        await two.erase("run")
        for expected in (0, 5, None):
            events = [started()] if expected == 0 else [note()]
            with pytest.raises(RunErased):
                await one.append("run", events, expected=expected)
        with pytest.raises(RunNotFound):
            await one.append("none", [note()], expected=None)
        assert await all_events(one) == []


async def test_a_reader_does_not_skip_what_is_committed_late(url: str, schema: str) -> None:
    """The gap of stores that number by a sequence: a later number is visible before an earlier."""

    async with opened(url, schema, partitions=1) as store, opened(url, schema) as other:
        await begin(store, "first")
        cursor = (await other.feed()).cursor
        async with await psycopg.AsyncConnection.connect(url) as slow:
            # As an append does, and then it takes its time.
            await execute(slow, f"UPDATE {schema}.lib_partitions SET head = head + 1")
            await execute(
                slow,
                f"INSERT INTO {schema}.lib_events (part, pos, run, seq, kind, at, data) "
                f"SELECT 0, head, (SELECT id FROM {schema}.lib_runs), 2, 'late', 0, '{{}}' "
                f"FROM {schema}.lib_partitions",
            )
            quick = asyncio.create_task(begin(other, "quick"))
            await until_blocked()
            assert (await store.feed(cursor)).events == []
            await slow.commit()
        await quick
        page = await store.feed(cursor)
        assert [event.kind for event in page.events] == ["late", "lib.run.started"]


async def test_listeners_wake_for_commits_of_other_processes_and_for_nothing_else(
    url: str, schema: str
) -> None:
    clock = ManualClock()

    async def until(clock: ManualClock, wait: Callable[[float], Any]) -> None:
        for _ in range(100):
            clock.advance(1)
            if await wait(0.05):
                return
        pytest.fail("no listener woke")

    async with (
        opened(url, schema, clock=clock) as one,
        opened(url, schema, clock=clock) as two,
    ):
        await begin(one, "theirs")
        await begin(two, "mine")
        with two.wakeups.listen("mine") as mine, two.wakeups.listen("theirs") as theirs:
            await two.append("mine", [note()], expected=1)
            assert await mine.wait(0)
            await one.append("theirs", [note()], expected=1)
            await until(clock, theirs.wait)
            assert not await mine.wait(0)
            await one.append("theirs", [note()] * 1_100, expected=2)
            await until(clock, mine.wait)  # too many runs to name: all listeners wake
