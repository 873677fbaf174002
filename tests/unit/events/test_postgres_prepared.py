"""Statements that PostgreSQL has prepared, and poolers that lose them."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import psycopg
import pytest

from lib._util import postgres as driver
from lib.events import PostgresEventStore
from lib.testing.event_store.kit import begin, note
from servers import postgres

from .postgres_kit import opened

PREPARED = "SELECT name, statement FROM pg_prepared_statements"
PREPARED_IN = "SELECT pg_backend_pid(), statement FROM pg_prepared_statements"


@pytest.fixture
def schema() -> str:
    return postgres.fresh_schema()


@pytest.fixture
def url() -> str:
    return postgres.url()


@asynccontextmanager
async def sessions(store: PostgresEventStore) -> AsyncGenerator[list[driver.Connection]]:
    """Take all connections of a store, which is idle."""
    connections: Any = store._writer._connections  # pyright: ignore[reportPrivateUsage, reportOptionalMemberAccess] - as a pooler would
    async with AsyncExitStack() as held:
        size = connections._own.get_stats()["pool_size"]
        yield [await held.enter_async_context(connections.one()) for _ in range(size)]


async def in_sessions(store: PostgresEventStore, statement: str) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []
    async with sessions(store) as connections:
        for connection in connections:
            async with driver.cursor(connection) as using:
                found = await using.execute(statement.encode(), prepare=False)
                rows += await found.fetchall() if using.description else []
    return rows


async def written(store: PostgresEventStore, run_id: str, *, first: int = 1, last: int = 6) -> None:
    """Append, read and lease one after the other."""
    for seq in range(first, last):
        await store.append(run_id, [note(str(seq))], expected=seq)
        [lease] = await store.claim("me", ttl_s=30, run_id=run_id)
        assert await store.renew(lease, ttl_s=30)
        await store.release(lease)
        assert len(await store.read(run_id)) == seq + 1


async def test_the_stores_own_statements_are_prepared_once_under_names_of_their_own(
    url: str, schema: str
) -> None:
    async with opened(url, schema) as one, opened(url, schema) as two:
        names: list[set[str]] = []
        for store, run_id in ((one, "a"), (two, "b")):
            await begin(store, run_id)
            await written(store, run_id)
            rows = await in_sessions(store, PREPARED)
            before = {name for name, _ in rows}
            await written(store, run_id, first=6, last=30)
            after = {name for name, _ in await in_sessions(store, PREPARED)}
            assert len(after) <= 2 * len({text for _, text in rows}) * 3
            texts = [text for _, text in rows]
            assert len(before) == len(rows)
            for verb in ("lib_events", "held.wanted", "FOR UPDATE OF lib_runs SKIP LOCKED"):
                assert any(verb in text for text in texts), verb
            names.append(before)

        assert names[0].isdisjoint(names[1])


LOSSES = {
    "forgotten": "DO $$ BEGIN EXECUTE 'DEALLOCATE ALL'; END $$",
    "replaced": (
        "DO $$ DECLARE each text; BEGIN "
        "FOR each IN SELECT name FROM pg_prepared_statements LOOP "
        "EXECUTE format('DEALLOCATE %I', each); END LOOP; END $$"
    ),
}


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
async def test_a_store_goes_on_without_statements_that_a_pooler_has_lost(
    url: str, schema: str, loss: str
) -> None:
    async with opened(url, schema) as store:
        await begin(store, "run")
        await written(store, "run")
        prepared = await in_sessions(store, PREPARED_IN)
        await in_sessions(store, loss)
        await written(store, "run", first=6, last=9)
        log = await store.read("run")
        still = {session for session, _ in await in_sessions(store, PREPARED_IN)}

        assert [event.seq for event in log] == list(range(1, 10))
        # A second connection, opened on a busy machine, may have lost nothing that it needs since.
        texts = {text for _, text in prepared}
        whole = {
            one for one, _ in prepared if texts == {text for in_, text in prepared if in_ == one}
        }
        assert still.isdisjoint(whole)


async def test_a_taken_statement_name_is_no_failure(url: str, schema: str) -> None:
    async with opened(url, schema) as store:
        await begin(store, "run")
        async with sessions(store) as connections:
            # The number of the next one.
            firsts = [each._prepared._prepared_idx for each in connections]  # pyright: ignore[reportPrivateUsage] - as above
        for number in [first + n for first in firsts for n in range(4)]:
            await in_sessions(store, f"PREPARE _pg3_{number} AS SELECT 1")
        await written(store, "run")

        assert len(await store.read("run")) == 6


async def test_a_failure_of_the_statement_itself_is_raised_and_not_tried_again(url: str) -> None:
    connections = driver.Connections(url, name="store")
    await connections.open()
    try:
        async with connections.asking() as using:
            statement = driver.Fixed("SELECT 1 / %(by)s::int")
            with pytest.raises(psycopg.errors.DivisionByZero):
                await driver.run(using, statement, {"by": 0})
            found = await driver.run(using, statement, {"by": 1})
            assert await found.fetchall() == [(1,)]
    finally:
        await connections.close()


async def test_many_writers_share_statements_and_lose_none(url: str, schema: str) -> None:
    async with opened(url, schema) as store:
        names = [f"run-{number}" for number in range(20)]
        await asyncio.gather(*(begin(store, name) for name in names))
        await asyncio.gather(*(written(store, name, last=4) for name in names))
        heads = {info.head for info in await store.runs()}

        assert heads == {4}
