"""The log of changes: which records were written, by whatever connection, so that others follow.

Triggers note each row that is inserted, updated or deleted, whatever writes it: another process,
an older release or the `sqlite3` shell. A reader that has followed up to one number asks for its
namespace's entries after it. The oldest entries are deleted once there are more than a quarter of
the records (or some thousand); a reader that has missed some of them reads its namespace again,
which costs no more than four times what was written.
"""

from __future__ import annotations

import sqlite3
from typing import Final

from lib.vector.stores.sqlite.schema import Table

_STATE: Final = """
    SELECT (SELECT min(number) FROM [table_changes]), (SELECT max(number) FROM [table_changes])
"""
_SINCE: Final = "SELECT DISTINCT id FROM [table_changes] WHERE namespace = ? AND number > ?"
_TRIM: Final = """
    DELETE FROM [table_changes] WHERE number <= (SELECT max(number) FROM [table_changes])
        - max(?, (SELECT coalesce(max(rid), 0) FROM [table]) / 4)
"""
_FORGET: Final = (
    "INSERT INTO [table_changes] (namespace, id) VALUES ('', '')",
    "DELETE FROM [table_changes] WHERE number < (SELECT max(number) FROM [table_changes])",
)
_LEAST_KEPT: Final = 4_096


class Changes:
    """The log of one table; its methods belong into a transaction."""

    def __init__(self, connection: sqlite3.Connection, table: Table, *, is_kept: bool) -> None:
        """Take the connection.

        Args:
            connection: of the table.
            table: whose log it is.
            is_kept: True if the table has one; older releases have made none.
        """
        self._connection, self._is_kept = connection, is_kept
        self._state, self._since = table.named(_STATE), table.named(_SINCE)
        self._trim = table.named(_TRIM)
        self._forget = [table.named(statement) for statement in _FORGET]

    def last(self) -> int:
        """Return the number of the last change."""
        if not self._is_kept:
            return 0
        _, last = self._connection.execute(self._state).fetchone()
        return last

    def since(self, number: int, namespace: str) -> list[str] | None:
        """Return the ids that were written in a namespace after a change; None if it is unknown."""
        if not self._is_kept:
            return None
        first, _ = self._connection.execute(self._state).fetchone()
        if first > number + 1:
            return None
        return [name for (name,) in self._connection.execute(self._since, (namespace, number))]

    def trim(self) -> None:
        """Delete the oldest entries of a log that has grown too long."""
        if self._is_kept:
            self._connection.execute(self._trim, (_LEAST_KEPT,))

    def forget(self) -> None:
        """Delete all entries, and with them the names that they hold."""
        if self._is_kept:
            for statement in self._forget:
                self._connection.execute(statement)
