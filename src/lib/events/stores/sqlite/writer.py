"""The connection that writes: a batch of operations per transaction.

Everything here blocks, and runs in one thread.

1. A batch is one transaction: it is committed as a whole, or nothing of it is stored.
2. An operation that is refused (a conflict, a broken rule) is refused before it has changed
   anything, and the others of its batch are committed.
3. The cache of runs is valid as long as no other connection has committed. That can only change
   between transactions, and each begins with a check.
4. Once another process has written, a checkpoint (which moves the write-ahead log into the file) is
   made under the write lock. Else SQLite before 3.51.3 has a race in which the other process
   restarts the log meanwhile, and commits are lost.
   Source: https://www.sqlite.org/wal.html#walresetbug
5. Each confirmed batch is in the file that has the store's name: that is checked before a batch is
   written, and again before it is confirmed.
"""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

from lib._util.sqlite import BUSY_S, MEMORY, connect, transaction, use_write_ahead_log
from lib.errors import RunErased, StoreError
from lib.events.blobs import BLOB_MARKER, blob_digests
from lib.events.codec import encode_time, with_copies
from lib.events.event import Event, NewEvent
from lib.events.kinds import is_signal
from lib.events.runs import FARTHEST_LEASE, Lease, RunInfo, advance
from lib.events.store import tombstone_name
from lib.events.stores.sqlite import rows
from lib.events.stores.sqlite.erasure import erase_marks, erase_run, scrub, truncate_log
from lib.events.stores.sqlite.file import OpenFile, leave_log, typed_errors
from lib.events.stores.sqlite.layout import USE_BLOB, migrate, refuse_newer

_log = logging.getLogger(__name__)


_FREE: Final = """
    SELECT id, run_id, epoch + 1, owner IS NOT NULL FROM lib_runs
    WHERE outcome IS NULL AND (lease_until IS NULL OR lease_until NOT BETWEEN ? AND ?)
"""
_READY: Final = "ready"
_OF_THESE: Final = "algorithm IN"
_NONE_OF_THESE: Final = "hex(run_id) NOT IN (SELECT value FROM json_each(?))"
"""In hexadecimal, since `json_each` of older libraries (3.40) cuts texts at a NUL."""
_THIS_ONE: Final = "run_id = ?"
_TAKE: Final = "UPDATE lib_runs SET owner = ?, lease_until = ?, epoch = epoch + 1 WHERE id = ?"
_RENEW: Final = """
    UPDATE lib_runs SET lease_until = ? WHERE run_id = ? AND owner = ? AND epoch = ?
"""
_ERASED: Final = "SELECT 1 FROM lib_tombstones WHERE name = ?"
_RELEASE: Final = """
    UPDATE lib_runs SET owner = NULL, lease_until = NULL, ready = ready AND head IS NOT ?
    WHERE run_id = ? AND owner = ? AND epoch = ?
"""


Operation = Callable[["Writer"], Any]
"""A method of the writer, bound to its arguments."""


@dataclass(slots=True)
class Commit:
    """The result of a batch.

    Attributes:
        outcomes: for each operation its result, or the error that refused it.
        appended: the runs appended to, and whether by a signal.
        foreign: whether another connection has committed since the batch before.
    """

    outcomes: list[Any]
    appended: dict[str, bool] = field(default_factory=dict[str, bool])
    foreign: bool = False


class Writer:
    """Writes one file."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        store: str,
        file: OpenFile | None = None,
        *,
        cached_runs: int = 10_000,
        commits_a_checkpoint: int = 100,
    ) -> None:
        """Take a connection to a file of the newest layout.

        Args:
            connection: has the file open.
            store: its name in messages.
            file: None for one in memory.
            cached_runs: how many runs to keep the states of.
            commits_a_checkpoint: commits from one checkpoint to the next, where others write, too.
        """
        self.connection = connection
        self._cached_runs, self._commits_a_checkpoint = cached_runs, commits_a_checkpoint
        self._store = store
        self._file = file or OpenFile(store)
        self._version: int | None = None
        self._layout_checked = False
        self._shared = False
        self._commits = 0
        self._log_holds_erased = False
        self._next_run: int | None = None
        self._runs: dict[str, tuple[int, RunInfo]] = {}
        self._changed: dict[str, tuple[int, RunInfo]] = {}
        self._events: list[rows.Row] = []
        self._blob_uses: list[tuple[str, int]] = []
        self._appended: dict[str, bool] = {}

    @classmethod
    def open(
        cls,
        path: str,
        store: str,
        synchronous: str,
        *,
        busy_s: float = BUSY_S,
        **limits: int,
    ) -> Writer:
        """Open the file; create and migrate it if need be.

        Args:
            path: of the file.
            store: its name in messages.
            synchronous: as SQLite's PRAGMA takes it.
            busy_s: how long to wait for another process that writes.
            limits: as for the class.

        Raises:
            StoreError: see `EventStore.setup`.
        """
        with typed_errors(store), ExitStack() as held:
            connection = held.enter_context(closing(connect(path, busy_s=busy_s)))
            refuse_newer(connection, store)
            connection.execute(f"PRAGMA synchronous={synchronous}")
            connection.execute("PRAGMA secure_delete=ON")  # erased data leaves the file
            use_write_ahead_log(connection)
            migrate(connection, store)
            # A file that cannot be written is refused here, and not at the first append.
            connection.execute("UPDATE lib_meta SET value = value WHERE FALSE")
            file = None if path == MEMORY else OpenFile.of(connection, path, store)
            writer = cls(connection, store, file, **limits)
            writer.look()
            held.pop_all()
            return writer

    def commit(self, operations: Sequence[Operation]) -> Commit:
        """Carry out the operations, in order, in one transaction.

        Raises:
            StoreError: nothing of it has been stored.
        """
        self._appended = {}
        try:
            self._file.check()
            with typed_errors(self._store), transaction(self.connection):
                foreign = self._refresh()
                outcomes = [self._outcome(operation) for operation in operations]
                self._flush()
            self._file.check()
        except BaseException:
            self._forget()
            raise
        self._checkpoint()
        return Commit(outcomes, self._appended, foreign)

    def look(self) -> bool:
        """Return True if another connection has committed since the last look.

        Raises:
            StoreError: the file cannot be read.
        """
        with typed_errors(self._store):
            [version] = self.connection.execute("PRAGMA data_version").fetchone()
            if version == self._version:
                return False
            if self._version is not None and not self._shared:
                self._shared = True
                self.connection.execute("PRAGMA wal_autocheckpoint=0")
        self._version = version
        self._layout_checked = False
        self._forget()
        return True

    def _checkpoint(self) -> None:
        """Remove erased data from the log; else checkpoint as SQLite does for a lone writer."""
        self._commits += 1
        with suppress(sqlite3.Error):  # the batch is stored, even if this fails
            if self._log_holds_erased:
                self._log_holds_erased = not truncate_log(self.connection)
            elif self._shared and self._commits % self._commits_a_checkpoint == 0:
                self.connection.execute("PRAGMA wal_checkpoint(FULL)").fetchall()

    def close(self) -> None:
        """Close the connection; the last one to close moves the log into the file."""
        try:
            if not self._file.is_there():
                leave_log(self.connection)
                return
            with typed_errors(self._store):
                if self._log_holds_erased:
                    truncate_log(self.connection)
                scrub(self.connection, self._store)
        except StoreError:
            _log.warning("%s: erased data may still be in the file", self._store, exc_info=True)
        finally:
            self.connection.close()

    def _refresh(self) -> bool:
        if len(self._runs) > self._cached_runs:
            self._forget()
        foreign = self.look()
        if not self._layout_checked:
            refuse_newer(self.connection, self._store)
            self._layout_checked = True
        return foreign

    def _outcome(self, operation: Operation) -> Any:
        try:
            return operation(self)
        except sqlite3.Error:  # of the transaction that the operations share
            raise
        except Exception as refusal:  # noqa: BLE001 - raised to its caller; the others go on
            return refusal

    def _forget(self) -> None:
        self._runs.clear()
        self._changed.clear()
        self._events.clear()
        self._blob_uses.clear()
        self._next_run = None

    def _flush(self) -> None:
        """Write the appends of the batch so far."""
        if self._events:
            changed = [rows.run_row(run, info) for run, info in self._changed.values()]
            rows.write_runs(self.connection, changed)
            rows.insert_events(self.connection, self._events)
            self._changed.clear()
            self._events.clear()
        if self._blob_uses:
            self.connection.executemany(USE_BLOB, self._blob_uses)
            self._blob_uses.clear()

    # -- operations ------------------------------------------------------------------------

    def append(
        self, run_id: str, events: Sequence[NewEvent], payloads: Sequence[str], expected: int | None
    ) -> list[Event]:
        """Append a batch whose payloads have been encoded; see `EventStore.append`."""
        run, info = self._runs.get(run_id) or self._load(run_id)
        if info is None and self.connection.execute(_ERASED, (tombstone_name(run_id),)).fetchone():
            raise RunErased(run_id)
        info, stored = advance(info, run_id, with_copies(events, payloads), expected)
        if run == 0:
            run = self._number()
        logged = list(zip(stored, payloads, strict=True))
        written = [rows.event_row(run, event, payload) for event, payload in logged]
        self._blob_uses += [
            (digest, run)
            for event, payload in logged
            if BLOB_MARKER in payload
            for digest in blob_digests(event.kind, event.data)
        ]
        self._events += written
        self._runs[run_id] = self._changed[run_id] = (run, info)
        self._appended[run_id] = self._appended.get(run_id, False) or is_signal(stored[-1].kind)
        return stored

    def _load(self, run_id: str) -> tuple[int, RunInfo | None]:
        query = f"{rows.SELECT_RUNS} WHERE run_id = ?"
        row = self.connection.execute(query, (run_id,)).fetchone()
        return (row[-1], rows.run_of(row)) if row else (0, None)

    def _number(self) -> int:
        if self._next_run is None:
            query = "SELECT coalesce(max(id), 0) + 1 FROM lib_runs"
            self._next_run = int(self.connection.execute(query).fetchone()[0])
        number = self._next_run
        self._next_run += 1
        return number

    def claim(
        self,
        owner: str,
        now: datetime,
        until: datetime,
        *,
        run_id: str | None,
        limit: int,
        algorithms: Collection[str] | None,
        skip: Collection[str],
    ) -> list[Lease]:
        """Take leases; see `EventStore.claim`."""
        self._flush()
        which, values = (_READY, []) if run_id is None else (_THIS_ONE, [run_id])
        if algorithms is not None:
            which = f"{which} AND {_OF_THESE} ({', '.join('?' * len(algorithms))})"
            values.extend(algorithms)
        if skip:
            which = f"{which} AND {_NONE_OF_THESE}"
            names = [name.encode("utf-8", "surrogatepass").hex().upper() for name in skip]
            values.append(json.dumps(names))
        query = f"{_FREE} AND {which} ORDER BY id LIMIT ?"
        held = (encode_time(now) + 1, encode_time(now + FARTHEST_LEASE))
        found = self.connection.execute(query, [*held, *values, limit]).fetchall()
        for run, *_ in found:
            self.connection.execute(_TAKE, (owner, encode_time(until), run))
        return [
            Lease(run_id=name, owner=owner, epoch=epoch, until=until, takeover=bool(takeover))
            for _, name, epoch, takeover in found
        ]

    def renew(self, lease: Lease, until: datetime) -> Lease | None:
        """Move the end of a lease; see `EventStore.renew`."""
        self._flush()
        values = (encode_time(until), lease.run_id, lease.owner, lease.epoch)
        held = self.connection.execute(_RENEW, values).rowcount
        return replace(lease, until=until) if held else None

    def release(self, lease: Lease, idle_at: int | None) -> None:
        """Give a lease back; see `EventStore.release`."""
        self._flush()
        self.connection.execute(_RELEASE, (idle_at, lease.run_id, lease.owner, lease.epoch))
        self._runs.pop(lease.run_id, None)  # `ready` may have changed

    def set_mark(self, name: str, value: str) -> None:
        """Set a mark; see `EventStore.set_mark`."""
        statement = "INSERT OR REPLACE INTO lib_marks (name, value) VALUES (?, ?)"
        self.connection.execute(statement, (name, value))

    def compare_and_set_mark(self, name: str, expected: str | None, value: str | None) -> bool:
        """Compare and set a mark; see `EventStore.compare_and_set_mark`."""
        find = "SELECT value FROM lib_marks WHERE name = ?"
        found = self.connection.execute(find, (name,)).fetchone()
        if (found[0] if found else None) != expected:
            return False
        if value is None:
            self.connection.execute("DELETE FROM lib_marks WHERE name = ?", (name,))
        else:
            self.set_mark(name, value)
        return True

    def erase(self, run_id: str, now: datetime) -> bool:
        """Delete a run; see `EventStore.erase`."""
        self._flush()
        run, info = self._load(run_id)
        self._runs.pop(run_id, None)
        if erase_marks(self.connection, run_id):
            self._log_holds_erased = True
        if info is None:
            return False
        erase_run(self.connection, run, run_id, info.head, now)
        self._log_holds_erased = True
        return True
