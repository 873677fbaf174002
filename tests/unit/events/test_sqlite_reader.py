"""A reader of a file that it cannot lock, while others write."""

import os
import sqlite3
from itertools import count
from pathlib import Path

import pytest

from lib._util import sqlite
from lib.errors import StoreError
from lib.events import SQLiteEventStore
from lib.events.runs import RunQuery
from lib.events.stores.sqlite.reader import Reader
from lib.testing.aio import run
from lib.testing.event_store.kit import begin

TIMES = count(1)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    async def main() -> None:
        store = SQLiteEventStore(tmp_path / "log.db")
        await store.setup()
        await begin(store, "run", 1)
        await store.close()

    run(main())
    return tmp_path / "log.db"


def interrupted(path: Path, *, writes: int) -> Reader:
    """Return a reader that takes the file as unchanging, which changes while it is read."""
    left = [None] * writes

    def others_write(statement: str) -> None:
        if left and "lib_runs" in statement:
            left.pop()
            os.utime(path, ns=(0, next(TIMES)))

    def connect(path: str) -> sqlite3.Connection:
        connection = sqlite.connect_to_look(path)
        connection.set_trace_callback(others_write)
        return connection

    return Reader.open(str(path), "store", connect=connect)


def test_a_read_during_a_write_is_repeated(path: Path) -> None:
    reading = interrupted(path, writes=3)
    assert not reading.look()

    assert [one.run_id for one in reading.runs(RunQuery())] == ["run"]
    assert reading.look()
    assert not reading.look()
    reading.close()


def test_a_file_that_always_changes_is_given_up(path: Path) -> None:
    reading = interrupted(path, writes=100)

    with pytest.raises(StoreError, match="faster than it is read"):
        reading.runs(RunQuery())
    reading.close()


@pytest.mark.parametrize("changed", [False, True])
def test_an_error_counts_only_if_the_file_has_stayed_the_same(path: Path, *, changed: bool) -> None:
    reading = interrupted(path, writes=0)

    def deny(*_: object) -> int:
        if changed:
            os.utime(path, ns=(0, next(TIMES)))
        return sqlite3.SQLITE_DENY

    reading._connection.set_authorizer(deny)  # pyright: ignore[reportPrivateUsage] - no other way
    if changed:
        assert [one.run_id for one in reading.runs(RunQuery())] == ["run"]
    else:
        with pytest.raises(StoreError, match=r"not authorized|prohibited"):
            reading.runs(RunQuery())
    reading.close()
