"""Helpers of the tests of the PostgreSQL event store: an open store, and its server."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import psycopg

from lib.errors import StoreError
from lib.events import PostgresEventStore
from servers import postgres

LOST = "may or may not"


@asynccontextmanager
async def opened(
    url: str, schema: str, *, kind: type[PostgresEventStore] = PostgresEventStore, **options: Any
) -> AsyncGenerator[PostgresEventStore]:
    """Open a store on a schema, as a process of its own would."""
    store = kind(url, schema=schema, **options)
    await store.setup()
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def hasty(
    url: str, schema: str, timeout_s: float, **options: Any
) -> AsyncGenerator[PostgresEventStore]:
    """Open a store that soon gives up, however often this process is too slow for it."""
    store = PostgresEventStore(url, schema=schema, timeout_s=timeout_s, **options)
    while True:
        try:
            await store.setup()
            break
        except StoreError as error:
            if not error.retryable:
                raise
    try:
        yield store
    finally:
        await store.close()


async def called(function: Callable[..., Any], *args: Any) -> Any:
    """Call what blocks."""
    return await asyncio.to_thread(function, *args)


async def execute(connection: psycopg.AsyncConnection[Any], statement: str) -> None:
    await connection.execute(statement.encode())


async def until_blocked() -> None:
    """Wait until one connection waits for a lock of another."""
    find = (
        "SELECT count(*) FROM pg_stat_activity "
        "WHERE backend_type = 'client backend' AND cardinality(pg_blocking_pids(pid)) > 0"
    )
    while await called(postgres.shared().execute, find) == [(0,)]:
        pass
