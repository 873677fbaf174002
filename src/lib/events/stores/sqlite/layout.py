"""The tables of an event store, and the migrations from one version to the next.

    lib_meta        the layout version, under a key of its own, so that other parts can keep theirs;
                    the id of the store, unless it was made before stores had one; the number of
                    erasures, and their number at the last rewrite of the file
    lib_runs        one row per run: its name, and the projection of its events
    lib_events      the log; `pos` is the order of commits, as one connection at a time can write
    lib_marks       small durable values
    lib_tombstones  the records of erased runs
    lib_blob_uses   which runs refer to which blob

Times are microseconds since 1970 in UTC. Inside the file a run has a number, assigned at its
start: names are random, and an index over them would touch a page of its own for every append.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import Final

from lib._util.sqlite import transaction
from lib.errors import MigrationNeeded, SchemaTooNew, StoreCorrupt, StoreReadOnly
from lib.events.blobs import BLOB_MARKER, blob_digests
from lib.events.codec import decode_data
from lib.events.store import LAYOUT_VERSION, new_store_id

_KEY: Final = "events.layout"
_ID_KEY: Final = "events.id"
_MAKE_META: Final = "CREATE TABLE IF NOT EXISTS lib_meta (key TEXT PRIMARY KEY, value TEXT)"

_VERSION_1: Final = (
    """
    CREATE TABLE IF NOT EXISTS lib_runs (
        id INTEGER PRIMARY KEY,
        run_id TEXT NOT NULL UNIQUE,
        root_id TEXT NOT NULL,
        parent_id TEXT,
        algorithm TEXT NOT NULL,
        tenant TEXT,
        user TEXT,
        created_at INTEGER NOT NULL,
        updated_at INTEGER NOT NULL,
        head INTEGER NOT NULL,
        outcome TEXT,
        ready INTEGER NOT NULL,
        owner TEXT,
        lease_until INTEGER,
        epoch INTEGER NOT NULL DEFAULT 0
    )
    """,
    "CREATE INDEX IF NOT EXISTS lib_runs_root ON lib_runs (root_id)",
    "CREATE INDEX IF NOT EXISTS lib_runs_tenant ON lib_runs (tenant)",
    "CREATE INDEX IF NOT EXISTS lib_runs_open ON lib_runs (id) WHERE outcome IS NULL",
    "CREATE INDEX IF NOT EXISTS lib_runs_ready ON lib_runs (id) WHERE outcome IS NULL AND ready",
    """
    CREATE TABLE IF NOT EXISTS lib_events (
        pos INTEGER PRIMARY KEY AUTOINCREMENT,
        run INTEGER NOT NULL REFERENCES lib_runs (id),
        seq INTEGER NOT NULL,
        kind TEXT NOT NULL,
        at INTEGER NOT NULL,
        tenant TEXT,
        user TEXT,
        data TEXT NOT NULL,
        UNIQUE (run, seq)
    )
    """,
    """
    CREATE TABLE IF NOT EXISTS lib_marks (
        name TEXT PRIMARY KEY,
        value TEXT NOT NULL
    ) WITHOUT ROWID
    """,
)

_VERSION_2: Final = (
    "CREATE INDEX lib_runs_parent ON lib_runs (parent_id) WHERE parent_id IS NOT NULL",
    """
    CREATE TABLE lib_tombstones (
        name TEXT PRIMARY KEY,
        events INTEGER NOT NULL,
        erased_at INTEGER NOT NULL
    ) WITHOUT ROWID
    """,
    """
    CREATE TABLE lib_blob_uses (
        digest TEXT NOT NULL,
        run INTEGER NOT NULL REFERENCES lib_runs (id),
        PRIMARY KEY (digest, run)
    ) WITHOUT ROWID
    """,
    "CREATE INDEX lib_blob_uses_run ON lib_blob_uses (run)",
)
USE_BLOB: Final = "INSERT OR IGNORE INTO lib_blob_uses (digest, run) VALUES (?, ?)"


def _create(connection: sqlite3.Connection) -> None:
    """Create the first layout, or the tables that a store of release 0.1 or 0.2 lacks."""
    is_new = not _has_table(connection, "lib_runs")
    for statement in _VERSION_1:
        connection.execute(statement)
    if is_new:  # the run ids of an older store do not contain a store id
        connection.execute(_MAKE_META)
        keep = "INSERT OR REPLACE INTO lib_meta (key, value) VALUES (?, ?)"
        connection.execute(keep, (_ID_KEY, new_store_id()))


def store_id(connection: sqlite3.Connection) -> str:
    """Return the id of the store, empty for one that has none."""
    if not _has_table(connection, "lib_meta"):
        return ""
    row = connection.execute("SELECT value FROM lib_meta WHERE key = ?", (_ID_KEY,)).fetchone()
    return row[0] if row else ""


def _add_tombstones_and_blob_uses(connection: sqlite3.Connection) -> None:
    """Create the tables of layout 2, and find which runs refer to which blob."""
    for statement in _VERSION_2:
        connection.execute(statement)
    query = "SELECT run, kind, CAST(data AS BLOB) FROM lib_events WHERE instr(data, ?)"
    for run, kind, data in connection.execute(query, (BLOB_MARKER,)):
        connection.executemany(USE_BLOB, [(digest, run) for digest in _digests(kind, data)])


def _digests(kind: str, data: bytes) -> set[str]:
    try:
        return blob_digests(kind, decode_data(data))
    except (TypeError, ValueError):  # damage stays: reading and verifying report it
        return set()


Migration = tuple[int, Callable[[sqlite3.Connection], None]]

MIGRATIONS: Final[Sequence[Migration]] = ((1, _create), (2, _add_tombstones_and_blob_uses))
"""The step to each version from the one before."""


def _stored_version(connection: sqlite3.Connection, store: str) -> int:
    """Return the recorded version, 0 for none.

    Raises:
        StoreCorrupt: the record is not a number.
    """
    if not _has_table(connection, "lib_meta"):
        return 0
    row = connection.execute("SELECT value FROM lib_meta WHERE key = ?", (_KEY,)).fetchone()
    if row is None:
        return 0
    try:
        return int(row[0])
    except (TypeError, ValueError) as error:
        raise StoreCorrupt(f"{store} has the layout version {row[0]!r}") from error


def _has_table(connection: sqlite3.Connection, name: str) -> bool:
    query = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
    return connection.execute(query, (name,)).fetchone() is not None


def migrate(
    connection: sqlite3.Connection, store: str, migrations: Sequence[Migration] = MIGRATIONS
) -> None:
    """Migrate the file to the newest version; safe to race, each step is a transaction.

    Raises:
        SchemaTooNew: a newer release has written it; nothing was changed.
    """
    newest = migrations[-1][0]
    for version, apply in migrations:
        if refuse_newer(connection, store, newest) >= version:
            continue
        with transaction(connection):  # its write lock is the setup lock
            if refuse_newer(connection, store, newest) < version:
                apply(connection)
                _record(connection, version)


def _record(connection: sqlite3.Connection, version: int) -> None:
    connection.execute(_MAKE_META)
    record = "INSERT OR REPLACE INTO lib_meta (key, value) VALUES (?, ?)"
    connection.execute(record, (_KEY, str(version)))


def refuse_newer(
    connection: sqlite3.Connection, store: str, supported: int = LAYOUT_VERSION
) -> int:
    """Return the recorded version, 0 for none.

    Raises:
        SchemaTooNew: a newer release has written the file.
    """
    found = _stored_version(connection, store)
    if found > supported:
        raise SchemaTooNew(store, found=found, supported=supported)
    return found


def check_readable(
    connection: sqlite3.Connection, store: str, supported: int = LAYOUT_VERSION
) -> int:
    """Return the version of a file that is only read; an unrecorded store counts as version 1.

    Raises:
        StoreReadOnly: it holds no event store, and none may be created.
        SchemaTooNew: a newer release has written it.
        MigrationNeeded: it is older than this release reads.
    """
    found = refuse_newer(connection, store, supported)
    if not found:
        if not _has_table(connection, "lib_events"):
            message = f"{store} holds no event store"
            raise StoreReadOnly(f"{message}: check the name, or open it once for writing")
        found = 1
    if found < supported:
        raise MigrationNeeded(store, found=found, supported=supported)
    return found
