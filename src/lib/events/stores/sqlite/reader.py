"""The connection that reads. Everything here blocks, and runs in one thread."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import ExitStack, closing
from typing import Any, Final

from lib._util.sqlite import connect_to_read, outdated
from lib.errors import RunNotFound, StoreCorrupt, StoreError
from lib.events.codec import encode_time
from lib.events.event import Event
from lib.events.runs import RunInfo, RunQuery
from lib.events.store import END, FeedPage, Tombstone, tombstone_name
from lib.events.stores.sqlite import rows
from lib.events.stores.sqlite.erasure import ERASED
from lib.events.stores.sqlite.file import OpenFile, leave_log, typed_errors
from lib.events.stores.sqlite.layout import check_readable, store_id

_TRIES: Final = 5


class Reader:
    """Reads one file; every method sees all commits before its call."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        store: str,
        path: str = "",
        file: OpenFile | None = None,
        *,
        connect: Callable[[str], sqlite3.Connection] = connect_to_read,
    ) -> None:
        """Take a connection to a file of the newest layout, its path, and the way to open it."""
        self._connect = connect
        self._connection = connection
        self._path = path
        self._store = store
        self._file = file or OpenFile(store)
        self._version: int | None = None

    @classmethod
    def open(
        cls,
        path: str,
        store: str,
        *,
        connect: Callable[[str], sqlite3.Connection] = connect_to_read,
    ) -> Reader:
        """Open a file that exists and has the newest layout.

        Raises:
            StoreError: see `EventStore.setup`.
        """
        with typed_errors(store), ExitStack() as held:
            connection = held.enter_context(closing(connect(path)))
            check_readable(connection, store)
            reader = cls(
                connection, store, path, OpenFile.of(connection, path, store), connect=connect
            )
            reader.look()
            held.pop_all()
            return reader

    def close(self) -> None:
        """Close the connection."""
        if not self._file.is_there():
            leave_log(self._connection)
        self._connection.close()

    def look(self) -> bool:
        """Return True if another connection has committed since the last look."""
        [[version]] = self._all("PRAGMA data_version")
        changed, self._version = version != self._version, version
        return changed

    def schema_version(self) -> int:
        """Return the layout version; see `EventStore.schema_version`."""
        with typed_errors(self._store):
            self._file.check()
            return check_readable(self._connection, self._store)

    def store_id(self) -> str:
        """Return the id of the store; see `EventStore.store_id`."""
        with typed_errors(self._store):
            return store_id(self._connection)

    def read(self, run_id: str, after: int, limit: int | None) -> list[Event]:
        """Return events of a run; see `EventStore.read`."""
        query = """
            SELECT seq, kind, at, tenant, user, data FROM lib_events
            WHERE run = (SELECT id FROM lib_runs WHERE run_id = ?) AND seq > ?
            ORDER BY seq LIMIT ?
        """
        found = self._all(query, run_id, after, -1 if limit is None else limit)
        return [rows.event_of(run_id, row) for row in found]

    def runs(self, query: RunQuery) -> list[RunInfo]:
        """Return runs; see `EventStore.runs`."""
        beyond, order = ("<", "DESC") if query.newest_first else (">", "ASC")
        conditions = {
            "tenant = ?": query.tenant,
            "user = ?": query.user,
            "algorithm = ?": query.algorithm,
            "outcome = ?": query.outcome,
            "root_id = ?": query.root_id,
            "parent_id = ?": query.parent_id,
            "created_at >= ?": None if query.since is None else encode_time(query.since),
            "updated_at < ?": None if query.idle_since is None else encode_time(query.idle_since),
            f"id {beyond} ?": None if query.after is None else self._number(query.after),
        }
        present = {text: value for text, value in conditions.items() if value is not None}
        where = ["1", *present]
        if query.roots:
            where.append("parent_id IS NULL")
        if query.status is not None:
            where.append(f"outcome IS {'' if query.status == 'open' else 'NOT '}NULL")
        select = f"{rows.SELECT_RUNS} WHERE {' AND '.join(where)} ORDER BY id {order} LIMIT ?"
        limit = -1 if query.limit is None else query.limit
        found = self._all(select, *present.values(), limit)
        return [rows.run_of(row) for row in found]

    def _number(self, run_id: str) -> int:
        for (number,) in self._all("SELECT id FROM lib_runs WHERE run_id = ?", run_id):
            return number
        raise RunNotFound(run_id)

    def run(self, run_id: str) -> RunInfo | None:
        """Return one run; see `EventStore.run`."""
        found = self._all(f"{rows.SELECT_RUNS} WHERE run_id = ?", run_id)
        return rows.run_of(found[0]) if found else None

    def feed(self, after: str, limit: int) -> FeedPage:
        """Return a page of the feed; see `EventStore.feed`."""
        if after == END:
            [[last]] = self._all("SELECT coalesce(max(pos), 0) FROM lib_events")
            return FeedPage([], str(last))
        query = """
            SELECT e.pos, r.run_id, e.seq, e.kind, e.at, e.tenant, e.user, e.data
            FROM lib_events e CROSS JOIN lib_runs r ON r.id = e.run
            WHERE e.pos > ? ORDER BY e.pos LIMIT ?
        """
        found = self._all(query, int(after or 0), limit)
        events = [rows.event_of(row[1], row[2:]) for row in found]
        return FeedPage(events, str(found[-1][0]) if found else after)

    def mark(self, name: str) -> str | None:
        """Return a mark; see `EventStore.mark`."""
        found = self._all("SELECT value FROM lib_marks WHERE name = ?", name)
        return found[0][0] if found else None

    def marks(self, prefix: str) -> dict[str, str]:
        """Return marks by their prefix; see `EventStore.marks`."""
        query, end = "SELECT name, value FROM lib_marks WHERE name >= ?", rows.above(prefix)
        if end is None:
            return dict(self._all(f"{query} ORDER BY name", prefix))
        return dict(self._all(f"{query} AND name < ? ORDER BY name", prefix, end))

    def tombstone(self, run_id: str) -> Tombstone | None:
        """Return the tombstone of an erased run; see `EventStore.tombstone`."""
        query = "SELECT name, events, erased_at FROM lib_tombstones WHERE name = ?"
        found = self._all(query, tombstone_name(run_id))
        return rows.tombstone_of(found[0]) if found else None

    def erasures(self) -> int:
        """Return the number of erasures; see `CountsErasures`."""
        found = self._all("SELECT value FROM lib_meta WHERE key = ?", ERASED)
        return int(found[0][0]) if found else 0

    def integrity_faults(self) -> list[str]:
        """Return the faults that SQLite finds in the file; see `ChecksIntegrity`."""
        try:
            found = self._all("PRAGMA integrity_check")
        except StoreCorrupt as error:
            return [str(error)]
        return [message for (message,) in found if message != "ok"]

    def blob_users(self, digest: str, limit: int) -> list[str]:
        """Return runs that refer to a blob; see `EventStore.blob_users`."""
        query = """
            SELECT r.run_id FROM lib_blob_uses u CROSS JOIN lib_runs r ON r.id = u.run
            WHERE u.digest = ? ORDER BY u.run LIMIT ?
        """
        return [run_id for (run_id,) in self._all(query, digest, limit)]

    def _all(self, query: str, *values: Any) -> list[Any]:
        """Return the rows of a query, with a new connection if this one is outdated."""
        with typed_errors(self._store):
            for _ in range(_TRIES):
                try:
                    found = self._connection.execute(query, values).fetchall()
                except sqlite3.DatabaseError:
                    if not outdated(self._connection):
                        self._file.check()
                        raise
                else:
                    if not outdated(self._connection):
                        self._file.check()
                        return found
                self._file.check()
                old, self._connection = self._connection, self._connect(self._path)
                self._file = OpenFile.of(self._connection, self._path, self._store)
                self._version = None
                old.close()
        raise StoreError(f"{self._store} changes faster than it is read: let this process lock it")
