"""Detects commits to an SQLite file from the event loop, without waiting for anything."""

from __future__ import annotations

import sqlite3
from threading import Lock

from lib._util import sqlite


class ForeignWrites:
    """A connection that reads nothing but the version of the file.

    To read it takes some microseconds in a file with a write-ahead log: SQLite compares a header
    in memory that all connections share. In other journal modes it may roll back what a dead
    process has left, so there it is left alone.

    Source: https://www.sqlite.org/pragma.html#pragma_data_version.
    """

    def __init__(self, path: str) -> None:
        """Open the file.

        Args:
            path: of a database that has another connection in this process; or `:memory:`, which
                no other connection can write to.
        """
        self._connection: sqlite3.Connection | None = None
        self._is_private = path == sqlite.MEMORY
        self._in_use = Lock()  # two threads at once would step one statement
        if self._is_private or sqlite3.threadsafety < _SERIALIZED:
            return
        connection = sqlite.connect(path)
        if connection.execute("PRAGMA journal_mode").fetchone() == ("wal",):
            connection.execute("PRAGMA busy_timeout = 0")
            self._connection = connection
        else:
            connection.close()

    def version(self) -> int | None:
        """Return a number that changes with each commit of any other connection.

        None if it cannot be read now: the file is locked, or has no write-ahead log, or another
        thread reads it.
        """
        if self._connection is None:
            return 0 if self._is_private else None
        if not self._in_use.acquire(blocking=False):
            return None
        try:
            (version,) = self._connection.execute("PRAGMA data_version").fetchone()
        except sqlite3.Error:
            return None
        else:
            return version
        finally:
            self._in_use.release()

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


_SERIALIZED = 3
