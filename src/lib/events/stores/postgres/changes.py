"""What is written beside appends: leases, marks, and the erasing of runs."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from lib._util.postgres import Connections, Cursor, cursor, run, texts, transaction
from lib.events.codec import encode_time
from lib.events.runs import Lease
from lib.events.store import run_mark
from lib.events.stores.postgres.errors import typed_errors
from lib.events.stores.postgres.place import Place
from lib.events.stores.postgres.rows import check_name, maybe_text, run_name, text, untext

_CLAIM: Final = """
    WITH free AS MATERIALIZED (
        SELECT id, owner IS NOT NULL AS takeover FROM {lib_runs}
        WHERE outcome IS NULL AND (lease_until IS NULL OR lease_until <= %(now)s::bigint)
            AND $which
        ORDER BY id LIMIT %(limit)s::bigint FOR UPDATE $locked
    )
    UPDATE {lib_runs} r
    SET owner = %(owner)s::text, lease_until = %(until)s::bigint, epoch = r.epoch + 1
    FROM free WHERE r.id = free.id
    RETURNING r.id, r.run_id, r.epoch, free.takeover
"""
_READY: Final = "ready"
_THIS_ONE: Final = "name = %(name)s::bytea"
_OF_THESE: Final = " AND algorithm = ANY(%(algorithms)s::text[])"
_RENEW: Final = """
    UPDATE {lib_runs} SET lease_until = %(until)s::bigint
    WHERE name = %(name)s::bytea AND owner = %(owner)s::text AND epoch = %(epoch)s::bigint
"""
_RELEASE: Final = """
    UPDATE {lib_runs} SET owner = NULL, lease_until = NULL,
        ready = ready AND head IS DISTINCT FROM %(idle_at)s::bigint
    WHERE name = %(name)s::bytea AND owner = %(owner)s::text AND epoch = %(epoch)s::bigint
"""
_SET: Final = """
    INSERT INTO {lib_marks} (name, value) VALUES (%(name)s::text, %(value)s::text)
    ON CONFLICT (name) DO UPDATE SET value = excluded.value
"""
_SWAP: Final = {
    # whether something was there, whether something is to be there
    (False, False): """
        SELECT 1 WHERE NOT EXISTS (SELECT FROM {lib_marks} WHERE name = %(name)s::text)
    """,
    (False, True): """
        INSERT INTO {lib_marks} (name, value) VALUES (%(name)s::text, %(value)s::text)
        ON CONFLICT (name) DO NOTHING
    """,
    (True, False): """
        DELETE FROM {lib_marks} WHERE name = %(name)s::text AND value = %(expected)s::text
    """,
    (True, True): """
        UPDATE {lib_marks} SET value = %(value)s::text
        WHERE name = %(name)s::text AND value = %(expected)s::text
    """,
}
_ERASE_MARKS: Final = """
    DELETE FROM {lib_marks} WHERE name >= %(first)s::text AND name < %(last)s::text
"""
_AFTER_SLASH: Final = chr(ord("/") + 1)
_BURY: Final = """
    UPDATE {lib_runs} SET run_id = NULL, root_id = '', parent_id = NULL, algorithm = '',
        tenant = NULL, "user" = NULL, created_at = 0, updated_at = %(at)s::bigint, outcome = '',
        ready = false, owner = NULL, lease_until = NULL
    WHERE name = %(name)s::bytea AND run_id IS NOT NULL RETURNING id
"""
_ERASE_EVENTS: Final = "DELETE FROM {lib_events} WHERE run = %(run)s::bigint"
_ERASE_USES: Final = "DELETE FROM {lib_blob_uses} WHERE run = %(run)s::bigint"


class Changes:
    """Writes to one store, a call at a time."""

    def __init__(self, place: Place, connections: Connections) -> None:
        """Take connections to a store that has the newest layout."""
        self._place, self._connections = place, connections

    async def claim(
        self,
        owner: str,
        *,
        now: datetime,
        until: datetime,
        run_id: str | None,
        limit: int,
        algorithms: Collection[str] | None,
    ) -> list[Lease]:
        """Take leases; see `EventStore.claim`.

        Among many, a run is passed over that somebody is writing to or claiming just now.
        """
        values: dict[str, Any] = {"owner": text(owner), "limit": limit}
        values |= {"now": encode_time(now), "until": encode_time(until)}
        which, locked = (_READY, "SKIP LOCKED") if run_id is None else (_THIS_ONE, "")
        if run_id is not None:
            values["name"] = run_name(run_id)
        if algorithms is not None:
            which += _OF_THESE
            values["algorithms"] = texts([text(name) for name in algorithms])
        statement = _CLAIM.replace("$which", which).replace("$locked", locked)
        async with self._connected() as using:
            rows = await (await run(using, self._place.put(statement), values)).fetchall()
        return [
            Lease(run_id=untext(name), owner=owner, epoch=epoch, until=until, takeover=takeover)
            for _, name, epoch, takeover in sorted(rows)
        ]

    async def renew(self, lease: Lease, until: datetime) -> Lease | None:
        """Move the end of a lease; see `EventStore.renew`."""
        held = await self._count(_RENEW, {**_holder(lease), "until": encode_time(until)})
        return replace(lease, until=until) if held else None

    async def release(self, lease: Lease, idle_at: int | None) -> None:
        """Give a lease back; see `EventStore.release`."""
        await self._count(_RELEASE, {**_holder(lease), "idle_at": idle_at})

    async def set_mark(self, name: str, value: str) -> None:
        """Keep a small value; see `EventStore.set_mark`."""
        check_name(name)
        await self._count(_SET, {"name": text(name), "value": text(value)})

    async def swap_mark(self, name: str, expected: str | None, value: str | None) -> bool:
        """Change a small value; see `EventStore.swap_mark`."""
        check_name(name)
        statement = _SWAP[expected is not None, value is not None]
        values = {"expected": maybe_text(expected), "value": maybe_text(value)}
        return bool(await self._count(statement, {"name": text(name), **values}))

    async def erase(self, run_id: str, at: datetime) -> bool:
        """Delete a run; see `EventStore.erase`.

        Whoever appends to it meanwhile waits for its row, and then finds the tombstone.
        """
        first = text(run_mark(run_id))
        marks = {"first": first, "last": first[:-1] + _AFTER_SLASH}
        grave = {"name": run_name(run_id), "at": encode_time(at)}
        with typed_errors(self._place.name):
            async with self._connections.one() as connection, transaction(connection) as using:
                row = await (await run(using, self._place.put(_BURY), grave)).fetchone()
                await run(using, self._place.put(_ERASE_MARKS), marks)
                if row is None:
                    return False
                for statement in (_ERASE_EVENTS, _ERASE_USES):
                    await run(using, self._place.put(statement), {"run": row[0]})
        return True

    async def _count(self, statement: str, values: Mapping[str, Any]) -> int:
        async with self._connected() as using:
            return (await run(using, self._place.put(statement), values)).rowcount

    @asynccontextmanager
    async def _connected(self) -> AsyncGenerator[Cursor]:
        with typed_errors(self._place.name):
            async with (
                self._connections.one() as connection,
                self._connections.answered(),
                cursor(connection) as using,
            ):
                yield using


def _holder(lease: Lease) -> dict[str, Any]:
    return {"name": run_name(lease.run_id), "owner": text(lease.owner), "epoch": lease.epoch}
