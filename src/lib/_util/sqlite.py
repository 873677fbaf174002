"""What SQLite files have in common, whatever they hold."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Literal

MEMORY: Final = ":memory:"
BUSY_S: Final = 30.0
"""How long to wait for another process that writes: SQLite's lock is not a queue."""

_SETTLING: Final = 50
_UNWRITABLE: Final = {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM}
# SQLITE_ERROR is here since all statements are fixed: the file is not made as they expect.
_DAMAGED: Final = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR}


def failure(error: sqlite3.Error) -> Literal["unwritable", "damaged", "other"]:
    """Return what an error says of the file."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    if code in _UNWRITABLE:
        return "unwritable"
    return "damaged" if code in _DAMAGED else "other"


def connect(path: str) -> sqlite3.Connection:
    """Return a connection that may write and is in a transaction only when told to begin one."""
    return sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)


def connect_to_read(path: str) -> sqlite3.Connection:
    """Return a connection that cannot write.

    A file in a directory that cannot be written, with no log beside it, is taken as unchanging:
    SQLite could not even note that somebody reads it.
    """
    uri = f"{Path(path).absolute().as_uri()}?mode=ro"
    connection = _connect_uri(uri)
    try:
        connection.execute("SELECT 1 FROM sqlite_master LIMIT 1")
    except sqlite3.DatabaseError as error:
        connection.close()
        if failure(error) != "unwritable" or Path(f"{path}-wal").exists():
            raise
        connection = _connect_uri(f"{uri}&immutable=1")
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


@contextmanager
def transaction(connection: sqlite3.Connection, *, write: bool = True) -> Generator[None]:
    """Commit at the end, or roll back if anything is raised.

    Args:
        connection: made by `connect` or `connect_to_read`.
        write: hold the file's write lock from the start; False sees one state of the file.
    """
    connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
    try:
        yield
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            with suppress(sqlite3.Error):  # the error that brought us here is the one to tell
                connection.execute("ROLLBACK")


def _connect_uri(uri: str) -> sqlite3.Connection:
    return sqlite3.connect(
        uri, uri=True, timeout=BUSY_S, isolation_level=None, check_same_thread=False
    )
