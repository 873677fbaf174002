"""Removes erased data from the file, and not only from the tables.

1. Deleted rows and freed pages are overwritten with zeros (`PRAGMA secure_delete`) in the
   transaction that erases.
2. The write-ahead log still holds older versions of those pages. After the transaction it is moved
   into the file and cut to nothing, unless another process reads just then: then that is done
   after the next transaction, or when the store is closed.
3. SQLite moves rows from page to page when it balances its trees, and may leave a copy of one in
   the unused part of a page. Only a rewrite of the whole file surely removes those. It takes time
   and disk space in proportion to the file, so the last process to close the file does it;
   `lib_meta` records that it is due.

Source: https://www.sqlite.org/pragma.html#pragma_secure_delete, https://www.sqlite.org/lang_vacuum.html
"""

from __future__ import annotations

import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from datetime import datetime
from typing import Final

from lib._util.sqlite import use_write_ahead_log
from lib.events.codec import encode_time
from lib.events.store import run_mark, tombstone_name
from lib.events.stores.sqlite.layout import refuse_newer
from lib.events.stores.sqlite.rows import above

ERASED: Final = "events.erased"
"""The key under which `lib_meta` counts erasures: of runs, and of marks whose run was erased."""
_SCRUBBED: Final = "events.scrubbed"
_MAX_WAIT_MS: Final = 200

_BY_NUMBER: Final = (
    "DELETE FROM lib_events WHERE run = ?",
    "DELETE FROM lib_blob_uses WHERE run = ?",
    "DELETE FROM lib_runs WHERE id = ?",
)
_ADD_TOMBSTONE: Final = (
    "INSERT OR REPLACE INTO lib_tombstones (name, events, erased_at) VALUES (?, ?, ?)"
)
_ERASE_MARKS: Final = "DELETE FROM lib_marks WHERE name >= ? AND name < ?"
_COUNT: Final = """
    INSERT INTO lib_meta (key, value) VALUES (?, '1')
    ON CONFLICT (key) DO UPDATE SET value = value + 1
"""


def erase_marks(connection: sqlite3.Connection, run_id: str) -> bool:
    """Delete the marks of a run, which may be erased already; return True if there were any."""
    first = run_mark(run_id)
    found = connection.execute(_ERASE_MARKS, (first, above(first))).rowcount > 0
    if found:
        connection.execute(_COUNT, (ERASED,))
    return found


def erase_run(
    connection: sqlite3.Connection, number: int, run_id: str, events: int, now: datetime
) -> None:
    """Delete the run with this number, and add its tombstone."""
    for statement in _BY_NUMBER:
        connection.execute(statement, (number,))
    connection.execute(_ADD_TOMBSTONE, (tombstone_name(run_id), events, encode_time(now)))
    connection.execute(_COUNT, (ERASED,))


def truncate_log(connection: sqlite3.Connection) -> bool:
    """Move the write-ahead log into the file and empty it; False if a reader prevented it."""
    with _short_wait(connection):
        [[busy, *_]] = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    return not busy


def scrub(connection: sqlite3.Connection, store: str) -> None:
    """Rewrite the file if that is due and no other process has it open.

    Raises:
        SchemaTooNew: a newer release has written it meanwhile.
    """
    erased = _count(connection, ERASED)
    if erased == _count(connection, _SCRUBBED):
        return
    refuse_newer(connection, store)
    with _short_wait(connection):
        if not _is_alone(connection):
            return
        connection.execute("VACUUM")
        record = "INSERT OR REPLACE INTO lib_meta (key, value) VALUES (?, ?)"
        connection.execute(record, (_SCRUBBED, erased))
        use_write_ahead_log(connection)


def _is_alone(connection: sqlite3.Connection) -> bool:
    """Return True if no other process has the file open; its write-ahead log is gone then.

    SQLite refuses to leave WAL mode while another process has the file open.
    """
    try:
        [[mode]] = connection.execute("PRAGMA journal_mode=DELETE").fetchall()
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
            raise
        return False
    return mode == "delete"


def _count(connection: sqlite3.Connection, key: str) -> str | None:
    row = connection.execute("SELECT value FROM lib_meta WHERE key = ?", (key,)).fetchone()
    return row[0] if row else None


@contextmanager
def _short_wait(connection: sqlite3.Connection) -> Generator[None]:
    """Shorten the wait for other processes: what is done here can be done later."""
    [[wait_ms]] = connection.execute("PRAGMA busy_timeout").fetchall()
    connection.execute(f"PRAGMA busy_timeout={min(wait_ms, _MAX_WAIT_MS)}")
    try:
        yield
    finally:
        connection.execute(f"PRAGMA busy_timeout={wait_ms}")
