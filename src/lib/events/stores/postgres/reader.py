"""Reads of a store: one statement each, so that each result is of one moment."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final, TypeVar

from lib._util.postgres import Connections, Cursor, cursor, run, transaction
from lib.errors import RunNotFound
from lib.events.codec import decode_time, encode_time
from lib.events.event import Event
from lib.events.runs import RunInfo, RunQuery, check_partition
from lib.events.store import END, FeedPage, Tombstone, tombstone_name
from lib.events.stores.postgres import layout
from lib.events.stores.postgres.marks import ERASED
from lib.events.stores.postgres.rows import (
    Row,
    event_of,
    events_of,
    maybe_text,
    run_name,
    run_of,
    text,
    untext,
)
from lib.events.stores.postgres.schema import Place, typed_errors

_MANY: Final = 500
"""More events than that are decoded in a thread."""
_LAST: Final = 2**63 - 1

# The numbers of a run's events have no gaps, so a page is a range of the index. With a LIMIT in its
# place PostgreSQL may read and sort all later events, once for every page.
_READ: Final = """
    WITH run AS MATERIALIZED (
        SELECT id, tenant FROM {lib_runs} WHERE name = %(name)s::bytea AND run_id IS NOT NULL
    )
    SELECT (SELECT tenant FROM run), seq, kind, at, "user", data FROM {lib_events}
    WHERE run = (SELECT id FROM run) AND seq > %(after)s::bigint AND seq <= %(upto)s::bigint
    ORDER BY seq
"""
_RUN: Final = """
    SELECT {run_columns} FROM {lib_runs} WHERE name = %(name)s::bytea AND run_id IS NOT NULL
"""
_RUNS: Final = """
    SELECT {run_columns} FROM {lib_runs} WHERE $where ORDER BY id $order LIMIT %(limit)s::bigint
"""
_RUN_NUMBER: Final = """
    SELECT id FROM {lib_runs} WHERE name = %(name)s::bytea AND run_id IS NOT NULL
"""
_FEED: Final = """
    SELECT r.run_id, r.tenant, e.seq, e.kind, e.at, e."user", e.data, e.pos
    FROM {lib_events} e JOIN {lib_runs} r ON r.id = e.run
    WHERE e.part = %(part)s::smallint AND e.pos > %(after)s::bigint
    ORDER BY e.pos LIMIT %(limit)s::bigint
"""
_HEAD: Final = "SELECT head FROM {lib_partitions} WHERE id = %(part)s::smallint"
_HEADS: Final = "SELECT id, head FROM {lib_partitions}"
_APPENDED: Final = """
    SELECT r.run_id, e.seq FROM {lib_events} e JOIN {lib_runs} r ON r.id = e.run
    WHERE e.part = %(part)s::smallint AND e.pos > %(after)s::bigint AND e.pos <= %(upto)s::bigint
    LIMIT %(limit)s::bigint
"""
_TOMBSTONE: Final = """
    SELECT head, updated_at FROM {lib_runs} WHERE name = %(name)s::bytea AND run_id IS NULL
"""
_ERASURES: Final = "SELECT value::bigint FROM {lib_meta} WHERE key = %(key)s"
_BLOB_USERS: Final = """
    SELECT r.run_id FROM {lib_blob_uses} u JOIN {lib_runs} r ON r.id = u.run
    WHERE u.digest = %(digest)s::text AND r.run_id IS NOT NULL
    ORDER BY r.id LIMIT %(limit)s::bigint
"""
_MARK: Final = "SELECT value FROM {lib_marks} WHERE name = %(name)s::text"
_MARKS: Final = """
    SELECT name, value FROM {lib_marks}
    WHERE name >= %(prefix)s::text AND starts_with(name, %(prefix)s::text) ORDER BY name
"""
_CONDITIONS: Final = {
    "tenant": "tenant = %(tenant)s::text",
    "user": '"user" = %(user)s::text',
    "algorithm": "algorithm = %(algorithm)s::text",
    "outcome": "outcome = %(outcome)s::text",
    "root_id": "root_id = %(root_id)s::text",
    "parent_id": "parent_id = %(parent_id)s::text",
    "since": "created_at >= %(since)s::bigint",
    "idle_since": "updated_at < %(idle_since)s::bigint",
    "after": "id > %(after)s::bigint",
    "before": "id < %(before)s::bigint",
}

T = TypeVar("T")


class Reader:
    """Reads one store; every method sees all that has been committed before its call."""

    def __init__(
        self, place: Place, connections: Connections, partitions: int, *, read_only: bool
    ) -> None:
        """Take connections to a store that has the newest layout."""
        self._place, self._connections = place, connections
        self._partitions, self._read_only = partitions, read_only

    async def schema_version(self) -> int:
        """Return the layout version; see `EventStore.schema_version`."""
        async with self._cursor() as using:
            return await layout.version_of(using, self._place)

    async def read(self, run_id: str, after: int, limit: int | None) -> list[Event]:
        """Return events of a run; see `EventStore.read`."""
        upto = _LAST if limit is None else min(after + limit, _LAST)
        wanted = {"name": run_name(run_id), "after": after, "upto": upto}
        rows = await self._all(_READ, wanted, fixed=True)
        return await _decoded(rows, partial(events_of, run_id))

    async def runs(self, query: RunQuery) -> list[RunInfo]:
        """Return runs; see `EventStore.runs`."""
        values: dict[str, Any] = {
            "tenant": maybe_text(query.tenant),
            "user": maybe_text(query.user),
            "algorithm": maybe_text(query.algorithm),
            "outcome": query.outcome,
            "root_id": maybe_text(query.root_id),
            "parent_id": maybe_text(query.parent_id),
            "since": None if query.since is None else encode_time(query.since),
            "idle_since": None if query.idle_since is None else encode_time(query.idle_since),
            "before" if query.newest_first else "after": (
                None if query.after is None else await self._number(query.after)
            ),
        }
        where = ["run_id IS NOT NULL"]
        where += [_CONDITIONS[name] for name, value in values.items() if value is not None]
        if query.roots:
            where.append("parent_id IS NULL")
        if query.status is not None:
            where.append(f"outcome IS {'' if query.status == 'open' else 'NOT '}NULL")
        statement = _RUNS.replace("$where", " AND ".join(where))
        statement = statement.replace("$order", "DESC" if query.newest_first else "ASC")
        found = await self._all(statement, values | {"limit": query.limit})
        return await _decoded(found, _runs)

    async def _number(self, run_id: str) -> int:
        for (number,) in await self._all(_RUN_NUMBER, {"name": run_name(run_id)}):
            return number
        raise RunNotFound(run_id)

    async def run(self, run_id: str) -> RunInfo | None:
        """Return one run; see `EventStore.run`."""
        found = await self._all(_RUN, {"name": run_name(run_id)}, fixed=True)
        return run_of(found[0]) if found else None

    async def feed(self, after: str, limit: int, partition: int) -> FeedPage:
        """Return a page of the feed; see `EventStore.feed`."""
        check_partition(partition, self._partitions)
        if after == END:
            [[head]] = await self._all(_HEAD, {"part": partition})
            return FeedPage([], str(head))
        wanted = {"part": partition, "after": int(after or 0), "limit": limit}
        found = await self._all(_FEED, wanted)
        events = await _decoded([row[:7] for row in found], _events)
        return FeedPage(events, str(found[-1][7]) if found else after)

    async def heads(self) -> dict[int, int]:
        """Return the last position of each partition."""
        return dict(await self._all(_HEADS, {}))

    async def appended(self, partition: int, after: int, upto: int, limit: int) -> list[Row]:
        """Return run ids and sequence numbers of events between two positions, in no order."""
        wanted = {"part": partition, "after": after, "upto": upto, "limit": limit}
        rows = await self._all(_APPENDED, wanted)
        return [(untext(run_id), seq) for run_id, seq in rows]

    async def tombstone(self, run_id: str) -> Tombstone | None:
        """Return what is left of an erased run; see `EventStore.tombstone`."""
        for events, erased_at in await self._all(_TOMBSTONE, {"name": run_name(run_id)}):
            return Tombstone(tombstone_name(run_id), events, decode_time(erased_at))
        return None

    async def erasures(self) -> int:
        """Return how many runs have been erased; see `CountsErasures`."""
        found = await self._all(_ERASURES, {"key": ERASED})
        return found[0][0] if found else 0

    async def blob_users(self, digest: str, limit: int) -> list[str]:
        """Return runs that refer to a blob; see `EventStore.blob_users`."""
        found = await self._all(_BLOB_USERS, {"digest": text(digest), "limit": limit})
        return [untext(run_id) for (run_id,) in found]

    async def mark(self, name: str) -> str | None:
        """Return a small value; see `EventStore.mark`."""
        found = await self._all(_MARK, {"name": text(name)})
        return untext(found[0][0]) if found else None

    async def marks(self, prefix: str) -> dict[str, str]:
        """Return small values; see `EventStore.marks`."""
        found = await self._all(_MARKS, {"prefix": text(prefix)})
        return {untext(name): untext(value) for name, value in found}

    async def _all(
        self, statement: str, parameters: Mapping[str, Any], *, fixed: bool = False
    ) -> list[Row]:
        """Return the rows of a statement; `fixed` for one whose best plan is always the same."""
        query = self._place.fixed(statement) if fixed else self._place.put(statement)
        async with self._cursor() as using:
            return await (await run(using, query, parameters)).fetchall()

    @asynccontextmanager
    async def _cursor(self) -> AsyncGenerator[Cursor]:
        """Open a cursor; that of a read-only store is in a read-only transaction."""
        with typed_errors(self._place.name, writes=False):
            async with self._connections.one() as connection, self._connections.answered():
                if self._read_only:
                    async with transaction(connection, read_only=True) as using:
                        yield using
                else:
                    async with cursor(connection) as using:
                        yield using


def _events(rows: Sequence[Row]) -> list[Event]:
    return [event_of(row) for row in rows]


def _runs(rows: Sequence[Row]) -> list[RunInfo]:
    return [run_of(row) for row in rows]


async def _decoded(rows: Sequence[Row], decode: Callable[[Sequence[Row]], list[T]]) -> list[T]:
    """Decode rows, in a thread if they are many."""
    return decode(rows) if len(rows) <= _MANY else await asyncio.to_thread(decode, rows)
