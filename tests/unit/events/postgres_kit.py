"""What tests of the PostgreSQL event store share: a store that is set up, and closed at the end."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from lib.events import PostgresEventStore


@asynccontextmanager
async def opened(url: str, schema: str, **options: Any) -> AsyncGenerator[PostgresEventStore]:
    """Open a store on a schema, as a process of its own would."""
    store = PostgresEventStore(url, schema=schema, **options)
    await store.setup()
    try:
        yield store
    finally:
        await store.close()
