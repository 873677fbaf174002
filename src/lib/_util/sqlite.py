"""Connections, transactions and errors of SQLite files, whatever they hold."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Literal, TypeVar

C = TypeVar("C", bound=sqlite3.Connection)

MEMORY: Final = ":memory:"
BUSY_S: Final = 30.0
"""Seconds to wait for another process that writes: SQLite's lock is not a queue."""

_SETTLING: Final = 50
_UNWRITABLE: Final = {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM}
# SQLITE_ERROR is here since all statements are fixed: the file is not made as they expect.
_DAMAGED: Final = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR}
_PASSING: Final = {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_PROTOCOL,  # a race for the lock, lost too often
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_NOMEM,
}


Failure = Literal["unwritable", "damaged", "interrupted", "other"]


def failure(error: sqlite3.Error) -> Failure:
    """Return the state of the file after an error; "interrupted" leaves open what was written."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    if code in _UNWRITABLE:
        return "unwritable"
    if code in _DAMAGED:
        return "damaged"
    return "interrupted" if code == sqlite3.SQLITE_IOERR else "other"


def may_pass(error: sqlite3.Error) -> bool:
    """Return True if the same call may succeed later: a lock, a full disk, a device that failed."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in _PASSING


def connect(path: str, *, busy_s: float = BUSY_S) -> sqlite3.Connection:
    """Return a connection that may write and begins no transaction by itself."""
    return sqlite3.connect(path, timeout=busy_s, isolation_level=None, check_same_thread=False)


def connect_to_read(path: str) -> sqlite3.Connection:
    """Return a connection that cannot write; call `outdated` after each read.

    A file in a directory that cannot be written, with no log beside it, is taken as unchanging:
    SQLite could not even note that there is a reader.
    """
    before = _state(path)
    connection = _connect_uri(path, "mode=ro", sqlite3.Connection)
    try:
        connection.execute("SELECT 1 FROM sqlite_master LIMIT 1")
    except sqlite3.DatabaseError as error:
        connection.close()
        if failure(error) != "unwritable" or _has_log(path):
            raise
        return _Unchanging.of(path, before)
    return connection


def connect_to_look(path: str) -> sqlite3.Connection:
    """Return a connection as `connect_to_read` does, but one that leaves no new file behind.

    Beside a file with a write-ahead log, one that reads makes two and may not remove them again.
    """
    before = _state(path)
    return connect_to_read(path) if _has_log(path) else _Unchanging.of(path, before)


def outdated(connection: sqlite3.Connection) -> bool:
    """Return True if the file has changed unseen by the connection: what it read is void."""
    return isinstance(connection, _Unchanging) and connection.state != _state(connection.path)


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
            with suppress(sqlite3.Error):  # the first error is the one to raise
                connection.execute("ROLLBACK")


class _Unchanging(sqlite3.Connection):
    """Takes the file as unchanging: it neither locks it nor learns that others have written.

    Attributes:
        path: of the file.
        state: of the file before it was opened, from `_state`.
    """

    path = ""
    state: object = None

    @classmethod
    def of(cls, path: str, state: object) -> _Unchanging:
        connection = _connect_uri(path, "mode=ro&immutable=1", cls)
        connection.path, connection.state = path, state
        return connection


def _state(path: str) -> object:
    """Return a value that differs once a process writes to the file, or is about to."""
    try:
        now = Path(path).stat()
        return now.st_ino, now.st_size, now.st_mtime_ns, _has_log(path)
    except OSError:
        return None


def _has_log(path: str) -> bool:
    """Return True if the database may hold more than its file."""
    return any(Path(path + ending).exists() for ending in ("-wal", "-journal"))


def _connect_uri(path: str, options: str, factory: type[C]) -> C:
    return sqlite3.connect(
        f"{Path(path).absolute().as_uri()}?{options}",
        uri=True,
        timeout=BUSY_S,
        isolation_level=None,
        check_same_thread=False,
        factory=factory,
    )
