"""The tables of an event store, and how an older layout becomes a newer one.

    lib_meta        the layout version, under a key of its own, so that other parts can keep theirs;
                    the id of the store, unless it was made before stores had one; and how many
                    runs have been erased since this was first counted
    lib_partitions  the last position of each partition; an append holds its row until the
                    commit, so that positions become visible in their order
    lib_runs        one row per run: its name, and the projection of its events; since layout 2
                    also one per erased run, without a `run_id`, which is its tombstone
    lib_events      the log
    lib_blob_uses   which runs refer to which blobs, since layout 2
    lib_marks       small durable values

Times are microseconds since 1970 in UTC. A run is found by `name`, a SHA-256 (`tombstone_name`):
it is short whatever the id is, and an id whose run was erased cannot be used again, even by a
transaction that began before. Texts are as `rows.text` writes them.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, cast

from lib._util.postgres import (
    Connection,
    Cursor,
    cursor,
    run,
    sql,
    texts,
    transaction,
)
from lib.errors import MigrationNeeded, SchemaTooNew, StoreCorrupt, StoreError, StoreReadOnly
from lib.events.blobs import blob_digests
from lib.events.codec import decode_data
from lib.events.store import LAYOUT_VERSION, new_store_id
from lib.events.stores.postgres.schema import Place

_KEY: Final = "events.layout"
_ID_KEY: Final = "events.id"
_MAKE_META: Final = "CREATE TABLE IF NOT EXISTS {lib_meta} (key text PRIMARY KEY, value text)"
_MAKE_ID: Final = """
    INSERT INTO {lib_meta} (key, value)
    SELECT %(key)s::text, %(value)s::text WHERE NOT EXISTS (SELECT 1 FROM {lib_runs})
    ON CONFLICT (key) DO NOTHING
"""
_FIND_RECORD: Final = "SELECT value FROM {lib_meta} WHERE key = %(key)s"
DEFAULT_PARTITIONS: Final = 8

_VERSION_1: Final = (
    # A page of its own for the few rows: each is written at every append, and stays in it.
    """
    CREATE TABLE {lib_partitions} (
        id smallint PRIMARY KEY,
        head bigint NOT NULL DEFAULT 0,
        layout smallint NOT NULL
    ) WITH (fillfactor = 10)
    """,
    """
    CREATE TABLE {lib_runs} (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        name bytea NOT NULL UNIQUE,
        part smallint NOT NULL,
        run_id text COLLATE "C" NOT NULL,
        root_id text COLLATE "C" NOT NULL,
        parent_id text COLLATE "C",
        algorithm text COLLATE "C" NOT NULL,
        tenant text COLLATE "C",
        "user" text COLLATE "C",
        created_at bigint NOT NULL,
        updated_at bigint NOT NULL,
        head bigint NOT NULL,
        outcome text COLLATE "C",
        ready boolean NOT NULL,
        owner text COLLATE "C",
        lease_until bigint,
        epoch integer NOT NULL DEFAULT 0
    ) WITH (fillfactor = 70)
    """,
    "CREATE INDEX lib_runs_root ON {lib_runs} (root_id)",
    "CREATE INDEX lib_runs_tenant ON {lib_runs} (tenant, id)",
    "CREATE INDEX lib_runs_open ON {lib_runs} (id) WHERE outcome IS NULL",
    "CREATE INDEX lib_runs_ready ON {lib_runs} (id) WHERE outcome IS NULL AND ready",
    """
    CREATE TABLE {lib_events} (
        part smallint NOT NULL,
        pos bigint NOT NULL,
        run bigint NOT NULL,
        seq bigint NOT NULL,
        kind text COLLATE "C" NOT NULL,
        at bigint NOT NULL,
        "user" text COLLATE "C",
        data text COLLATE "C" NOT NULL,
        PRIMARY KEY (part, pos),
        UNIQUE (run, seq)
    )
    """,
    """
    CREATE TABLE {lib_marks} (
        name text COLLATE "C" PRIMARY KEY,
        value text COLLATE "C" NOT NULL
    )
    """,
)
_VERSION_2: Final = (
    "ALTER TABLE {lib_runs} ALTER run_id DROP NOT NULL",
    # Without it a listing of runs scans the tombstones, which are the oldest.
    "CREATE INDEX lib_runs_kept ON {lib_runs} (id) WHERE run_id IS NOT NULL",
    "CREATE INDEX lib_runs_parent ON {lib_runs} (parent_id) WHERE parent_id IS NOT NULL",
    """
    CREATE TABLE {lib_blob_uses} (
        digest text COLLATE "C" NOT NULL,
        run bigint NOT NULL,
        PRIMARY KEY (digest, run)
    )
    """,
    "CREATE INDEX lib_blob_uses_run ON {lib_blob_uses} (run)",
    "UPDATE {lib_partitions} SET layout = 2",
)
_MAYBE_BLOBS: Final = """
    SELECT part, pos, run, kind, data FROM {lib_events}
    WHERE (part, pos) > (%(part)s::smallint, %(pos)s::bigint) AND position('$blob' IN data) > 0
    ORDER BY part, pos LIMIT %(limit)s::bigint
"""
_USES: Final = """
    INSERT INTO {lib_blob_uses} (digest, run)
    SELECT digest, %(run)s::bigint FROM unnest(%(digests)s::text[]) AS digest
    ON CONFLICT DO NOTHING
"""
_PARTITIONS: Final = """
    INSERT INTO {lib_partitions} (id, layout)
    SELECT id, 1 FROM generate_series(0, %(count)s::int - 1) AS id
"""
_RECORD: Final = """
    INSERT INTO {lib_meta} (key, value) VALUES (%(key)s, %(value)s)
    ON CONFLICT (key) DO UPDATE SET value = excluded.value
"""


async def _create(using: Cursor, place: Place, partitions: int) -> None:
    """Make the first layout."""
    for statement in _VERSION_1:
        await run(using, place.put(statement))
    await run(using, place.put(_PARTITIONS), {"count": partitions})


async def index_blobs(using: Cursor, place: Place, _: int, *, limit: int = 1_000) -> None:
    """Make room for tombstones, and note which runs refer to which blobs, by so many events."""
    for statement in _VERSION_2:
        await run(using, place.put(statement))
    part, pos = -1, 0
    while True:
        page = {"part": part, "pos": pos, "limit": limit}
        rows = await (await run(using, place.put(_MAYBE_BLOBS), page)).fetchall()
        for part, pos, number, kind, data in rows:  # noqa: B007 - the next page begins after the last one
            digests = sorted(blob_digests(kind, decode_data(data)))
            if digests:
                await run(using, place.put(_USES), {"run": number, "digests": texts(digests)})
        if len(rows) < limit:
            return


Migration = tuple[int, Callable[[Cursor, Place, int], Awaitable[None]]]

MIGRATIONS: Final[Sequence[Migration]] = ((1, _create), (2, index_blobs))
"""How a store gets to each version from the one before."""


async def opened(
    connection: Connection,
    place: Place,
    partitions: int | None,
    migrations: Sequence[Migration] = MIGRATIONS,
    *,
    check: Callable[[int], object] = lambda _: None,
) -> int:
    """Bring the store to the newest layout, and return how many partitions it has.

    Safe to race: each step is a transaction under one lock. A store that has the newest layout is
    only looked at, which needs no right to change it.

    Args:
        connection: to its database.
        place: where it is.
        partitions: how many it is to have; None takes what it has, or the usual number.
        migrations: the steps to the newest layout.
        check: refuses a number of partitions, before anything is changed.

    Raises:
        SchemaTooNew: a newer release has written it; nothing was changed.
        StoreError: the database does not keep Unicode text.
        StoreReadOnly: the database cannot be written.
        ValueError: it has another number of partitions.
    """
    newest = migrations[-1][0]
    async with cursor(connection) as using:
        [encoding] = await _one(using, sql.SQL("SELECT current_setting('server_encoding')"))
        if encoding != "UTF8":
            raise StoreError(
                f"{place.name} needs a database with the encoding UTF8, not {encoding}"
            )
        has_layout = await _version(using, place, newest) > 0
        check(
            await _checked_partitions(using, place, partitions)
            if has_layout
            else partitions or DEFAULT_PARTITIONS
        )
        for version, migrate in migrations:
            if await _version(using, place, newest) < version:
                async with locked(connection, place) as writing:
                    if await _version(writing, place, newest) < version:
                        await migrate(writing, place, partitions or DEFAULT_PARTITIONS)
                        await _record(writing, place, version)
        # A database that cannot be written is refused here, and not at the first append.
        await run(using, place.put("UPDATE {lib_meta} SET value = value WHERE FALSE"))
        return await _checked_partitions(using, place, partitions)


async def readable(
    connection: Connection,
    place: Place,
    partitions: int | None,
    supported: int = LAYOUT_VERSION,
) -> int:
    """Return the number of partitions of a store that is opened read-only.

    Raises:
        StoreReadOnly: there is none, and none may be made.
        SchemaTooNew: a newer release has written it.
        MigrationNeeded: it is older than this release reads.
        ValueError: it has another number of partitions.
    """
    async with cursor(connection) as using:
        found = await _version(using, place, supported)
        if not found:
            raise StoreReadOnly(
                f"{place.name} holds no event store: check the name, or open it once for writing"
            )
        if found < supported:
            raise MigrationNeeded(place.name, found=found, supported=supported)
        return await _checked_partitions(using, place, partitions)


@asynccontextmanager
async def locked(connection: Connection, place: Place) -> AsyncGenerator[Cursor]:
    """Begin a transaction in which no other process changes the layout of this store."""
    key = hashlib.sha256(f"lib.events/{place.schema}".encode()).digest()[:8]
    lock = sql.SQL("SELECT pg_advisory_xact_lock(%(key)s::bigint)")
    async with transaction(connection) as using:
        await run(using, lock, {"key": int.from_bytes(key, signed=True)})
        await run(using, place.schema_made())
        yield using


async def _record(using: Cursor, place: Place, version: int) -> None:
    await run(using, place.put(_MAKE_META))
    await run(using, place.put(_RECORD), {"key": _KEY, "value": str(version)})


async def store_id(connection: Connection, place: Place, *, make: bool) -> str:
    """Return the id of a store that has the newest layout, empty for one that has none.

    Args:
        connection: to its database.
        place: where it is.
        make: store a new id, unless it has one or holds runs, whose ids were made without one.
    """
    async with cursor(connection) as using:
        found = await _recorded_id(using, place)
        if found or not make:
            return found
        [holds_runs] = await _one(using, place.put("SELECT EXISTS (SELECT 1 FROM {lib_runs})"))
        if holds_runs:
            return ""
        await run(using, place.put(_MAKE_ID), {"key": _ID_KEY, "value": new_store_id()})
        return await _recorded_id(using, place)


async def _recorded_id(using: Cursor, place: Place) -> str:
    row = await (await run(using, place.put(_FIND_RECORD), {"key": _ID_KEY})).fetchone()
    return row[0] if row else ""


async def version_of(using: Cursor, place: Place) -> int:
    """Return the layout version that is recorded, 1 for a store without a record, 0 for none.

    Raises:
        StoreCorrupt: the record is no version.
        SchemaTooNew: a newer release has written it.
    """
    return await _version(using, place, LAYOUT_VERSION)


async def _version(using: Cursor, place: Place, supported: int) -> int:
    tables = {"meta": f"{place.quoted}.lib_meta", "events": f"{place.quoted}.lib_events"}
    find = sql.SQL(
        "SELECT to_regclass(%(meta)s::text) IS NOT NULL, to_regclass(%(events)s::text) IS NOT NULL"
    )
    has_meta, has_events = await _one(using, find, tables)
    found = int(has_events)
    if has_meta:
        row = await (await run(using, place.put(_FIND_RECORD), {"key": _KEY})).fetchone()
        found = found if row is None else _parsed(place, row[0])
    if found > supported:
        raise SchemaTooNew(place.name, found=found, supported=supported)
    return found


def _parsed(place: Place, value: Any) -> int:
    try:
        return int(value)
    except (TypeError, ValueError) as error:
        raise StoreCorrupt(f"{place.name} has the layout version {value!r}") from error


async def _checked_partitions(using: Cursor, place: Place, wanted: int | None) -> int:
    [found] = await _one(using, place.put("SELECT count(*) FROM {lib_partitions}"))
    if wanted not in (None, found):
        raise ValueError(
            f"{place.name} was made with {found} partitions, which never change, not {wanted}"
        )
    return int(found)


async def _one(
    using: Cursor, statement: sql.Composable, parameters: dict[str, Any] | None = None
) -> tuple[Any, ...]:
    row = await (await run(using, statement, parameters)).fetchone()
    return cast("tuple[Any, ...]", row)  # none of these statements can be without one
