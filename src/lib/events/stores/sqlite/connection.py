"""Connections to one SQLite file, and SQLite's errors as ours."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from lib.errors import StoreCorrupt, StoreError, StoreReadOnly

MEMORY: Final = ":memory:"
BUSY_S: Final = 30.0
"""How long to wait for another process that writes: SQLite's lock is not a queue."""

_SETTLING: Final = 50
_UNWRITABLE: Final = {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM}
_DAMAGED: Final = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR}


@contextmanager
def typed_errors(store: str) -> Generator[None]:
    """Raise what SQLite raises as a `StoreError` of the right type."""
    try:
        yield
    except sqlite3.Error as error:
        raise _typed(error, store) from error


def _typed(error: sqlite3.Error, store: str) -> StoreError:
    # All statements here are fixed, so "no such column" says that the tables are not ours, and an
    # OperationalError without a code that a text in them is not UTF-8.
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    if code in _UNWRITABLE:
        return StoreReadOnly(f"{store} cannot be opened or written: {error}")
    if code in _DAMAGED:
        return StoreCorrupt(f"{store} is damaged or not an event store: {error}")
    return StoreError(f"{store} failed and has changed nothing: {error}")


def open_writer(path: str, *, synchronous: str) -> sqlite3.Connection:
    """Return a connection that may write; the file is made when it is missing."""
    connection = sqlite3.connect(
        path, timeout=BUSY_S, isolation_level=None, check_same_thread=False
    )
    connection.execute(f"PRAGMA synchronous={synchronous}")
    connection.execute("PRAGMA secure_delete=ON")  # what is erased is gone from the file
    return connection


def use_write_ahead_log(connection: sqlite3.Connection) -> None:
    """Switch the file to its write-ahead log; without effect if that has been done.

    Workaround: this switch should wait for the lock as every statement does, but answers "locked"
    at once while another process opens the same file for the first time. An empty transaction
    does wait. Source: https://www.sqlite.org/wal.html, "Sometimes Queries Return SQLITE_BUSY".
    """
    for _ in range(_SETTLING):
        with suppress(sqlite3.OperationalError):
            connection.execute("PRAGMA journal_mode=WAL")
            return
        with transaction(connection):
            pass
    connection.execute("PRAGMA journal_mode=WAL")


def open_reader(path: str) -> sqlite3.Connection:
    """Return a connection that cannot write.

    A file in a directory that cannot be written, with no log beside it, is taken as unchanging:
    SQLite could not even note that somebody reads it.
    """
    uri = f"{Path(path).absolute().as_uri()}?mode=ro"
    connection = _connect_uri(uri)
    try:
        connection.execute("SELECT 1 FROM sqlite_master LIMIT 1")
    except sqlite3.OperationalError as error:
        connection.close()
        unnoted = error.sqlite_errorcode == sqlite3.SQLITE_READONLY_DIRECTORY
        if not unnoted or Path(f"{path}-wal").exists():
            raise
        connection = _connect_uri(f"{uri}&immutable=1")
    return connection


def _connect_uri(uri: str) -> sqlite3.Connection:
    return sqlite3.connect(
        uri, uri=True, timeout=BUSY_S, isolation_level=None, check_same_thread=False
    )


@contextmanager
def transaction(connection: sqlite3.Connection) -> Generator[None]:
    """Hold the file's write lock; commit at the end, or roll back if anything is raised."""
    connection.execute("BEGIN IMMEDIATE")
    done = False
    try:
        yield
        connection.execute("COMMIT")
        done = True
    finally:
        if not done and connection.in_transaction:
            with suppress(sqlite3.Error):  # the error that brought us here is the one to tell
                connection.execute("ROLLBACK")
