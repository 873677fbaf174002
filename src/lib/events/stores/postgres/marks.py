"""Writes beside appends and leases: marks, and the erasure of runs."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from lib._util.postgres import Connections, run, transaction
from lib.events.codec import encode_time
from lib.events.store import run_mark
from lib.events.stores.postgres.rows import check_name, maybe_text, run_name, text
from lib.events.stores.postgres.schema import Place, typed_errors

_SET: Final = """
    INSERT INTO {lib_marks} (name, value) VALUES (%(name)s::text, %(value)s::text)
    ON CONFLICT (name) DO UPDATE SET value = excluded.value
"""
_COMPARE_AND_SET: Final = {
    # (a mark is expected, a mark is to be stored)
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
_MAKE_TOMBSTONE: Final = """
    UPDATE {lib_runs} SET run_id = NULL, root_id = '', parent_id = NULL, algorithm = '',
        tenant = NULL, "user" = NULL, created_at = 0, updated_at = %(at)s::bigint, outcome = '',
        ready = false, owner = NULL, lease_until = NULL
    WHERE name = %(name)s::bytea AND run_id IS NOT NULL RETURNING id
"""
_ERASE_EVENTS: Final = "DELETE FROM {lib_events} WHERE run = %(run)s::bigint"
_ERASE_USES: Final = "DELETE FROM {lib_blob_uses} WHERE run = %(run)s::bigint"

ERASED: Final = "events.erased"
"""The key under which `lib_meta` counts the erased runs."""
# Erasures wait here for each other, so it is the last thing that a transaction does.
_COUNT: Final = """
    INSERT INTO {lib_meta} AS meta (key, value) VALUES (%(key)s::text, '1')
    ON CONFLICT (key) DO UPDATE SET value = (meta.value::bigint + 1)::text
"""


class Changes:
    """Writes to one store, a call at a time."""

    def __init__(self, place: Place, connections: Connections) -> None:
        """Take connections to a store that has the newest layout."""
        self._place, self._connections = place, connections

    async def set_mark(self, name: str, value: str) -> None:
        """Keep a small value; see `EventStore.set_mark`."""
        check_name(name)
        await self._count(_SET, {"name": text(name), "value": text(value)})

    async def compare_and_set_mark(
        self, name: str, expected: str | None, value: str | None
    ) -> bool:
        """Change a small value; see `EventStore.compare_and_set_mark`."""
        check_name(name)
        statement = _COMPARE_AND_SET[expected is not None, value is not None]
        values = {"expected": maybe_text(expected), "value": maybe_text(value)}
        return bool(await self._count(statement, {"name": text(name), **values}))

    async def erase(self, run_id: str, at: datetime) -> bool:
        """Delete a run; see `EventStore.erase`.

        A concurrent append to it waits for its row, and then finds the tombstone.
        """
        first = text(run_mark(run_id))
        marks = {"first": first, "last": first[:-1] + _AFTER_SLASH}
        tombstone = {"name": run_name(run_id), "at": encode_time(at)}
        with typed_errors(self._place.name):
            async with self._connections.one() as connection, transaction(connection) as using:
                row = await (
                    await run(using, self._place.put(_MAKE_TOMBSTONE), tombstone)
                ).fetchone()
                await run(using, self._place.put(_ERASE_MARKS), marks)
                if row is None:
                    return False
                for statement in (_ERASE_EVENTS, _ERASE_USES):
                    await run(using, self._place.put(statement), {"run": row[0]})
                await run(using, self._place.put(_COUNT), {"key": ERASED})
        return True

    async def _count(self, statement: str, values: Mapping[str, Any]) -> int:
        with typed_errors(self._place.name):
            async with self._connections.asking() as using:
                return (await run(using, self._place.put(statement), values)).rowcount
