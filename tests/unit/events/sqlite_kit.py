"""Helpers of the tests of the SQLite event store: to make, alter and refuse a file."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from lib.errors import StoreError
from lib.events import Event, SQLiteEventStore
from lib.testing.aio import run
from lib.testing.event_store.kit import begin


def made(path: Path, notes: int = 1) -> list[Event]:
    """Make a store with one run, and return its log."""

    async def main() -> list[Event]:
        store = SQLiteEventStore(path)
        await store.setup()
        log = await begin(store, "run", notes)
        await store.close()
        return log

    return run(main())


def alter(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


def cannot_open(path: Path, expected: type[StoreError], *, read_only: bool) -> StoreError:
    async def main() -> StoreError:
        store = SQLiteEventStore(path, read_only=read_only)
        with pytest.raises(expected) as caught:
            await store.setup()
        with pytest.raises(expected):  # and a second try is no different
            await store.setup()
        await store.close()
        return caught.value

    return run(main())
