"""The statement that writes a batch: one round trip, one transaction.

1. It takes the rows of its partitions first, in their order, and holds them until the commit. So
   one transaction at a time writes to a partition, positions become visible in their order, and no
   reader skips one.
2. A run goes on only if its head is still what the batch rests on, and begins only if there was
   never one of its id; events are stored of those runs only. What others have written meanwhile is
   seen although the statement began before: rows that a statement changes are looked at anew.
3. It returns the position of each partition before the batch, and the names of the runs that were
   written; nothing at all if a newer release has changed the layout.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from lib._util.postgres import Fixed
from lib.events.layout import LAYOUT_VERSION
from lib.events.stores.postgres.batch import Batch
from lib.events.stores.postgres.place import Place

_HEADS: Final = """
    WITH held AS MATERIALIZED (
        SELECT id FROM {lib_partitions}
        WHERE id = ANY(%(parts)s::bigint[]) AND layout = %(layout)s::smallint
        ORDER BY id FOR UPDATE
    ), h AS (
        UPDATE {lib_partitions} p SET head = p.head + k.size
        FROM held, unnest(%(parts)s::bigint[], %(sizes)s::bigint[]) AS k(id, size)
        WHERE p.id = held.id AND k.id = held.id
        RETURNING p.id, p.head - k.size AS base
    )
"""
_STARTED: Final = """
    , started AS (
        INSERT INTO {lib_runs} (name, part, run_id, root_id, parent_id, algorithm, tenant, "user",
            created_at, updated_at, head, outcome, ready)
        SELECT k.name, h.id, k.run_id, k.root_id, k.parent_id, k.algorithm, k.tenant,
            k."user", k.created_at, k.updated_at, k.head, k.outcome, k.outcome IS NULL
        FROM h, unnest(%(s_part)s::bigint[], %(s_name)s::bytea[], %(s_run_id)s::text[],
            %(s_root_id)s::text[], %(s_parent_id)s::text[], %(s_algorithm)s::text[],
            %(s_tenant)s::text[], %(s_user)s::text[], %(s_created_at)s::bigint[],
            %(s_updated_at)s::bigint[], %(s_head)s::bigint[], %(s_outcome)s::text[])
            WITH ORDINALITY AS k(part, name, run_id, root_id, parent_id, algorithm, tenant, "user",
                created_at, updated_at, head, outcome, place)
        WHERE h.id = k.part ORDER BY k.place
        ON CONFLICT (name) DO NOTHING RETURNING id, name, part
    )
"""
_CHANGED: Final = """
    , changed AS (
        UPDATE {lib_runs} r SET head = k.head, updated_at = k.updated_at, outcome = k.outcome,
            ready = k.outcome IS NULL
        FROM h, unnest(%(c_part)s::bigint[], %(c_name)s::bytea[], %(c_old)s::bigint[],
            %(c_head)s::bigint[], %(c_updated_at)s::bigint[], %(c_outcome)s::text[])
            AS k(part, name, old, head, updated_at, outcome)
        WHERE h.id = k.part AND r.name = k.name AND r.head = k.old AND r.run_id IS NOT NULL
        RETURNING r.id, r.name, r.part
    )
"""
_LOGGED: Final = """
    , logged AS (
        INSERT INTO {lib_events} (part, pos, run, seq, kind, at, "user", data)
        SELECT h.id, h.base + e.place, t.id, e.seq, e.kind, e.at, e."user", e.data
        FROM unnest(%(e_part)s::bigint[], %(e_place)s::bigint[], %(e_name)s::bytea[],
            %(e_seq)s::bigint[], %(e_kind)s::text[], %(e_at)s::bigint[], %(e_user)s::text[],
            %(e_data)s::text[]) AS e(part, place, name, seq, kind, at, "user", data)
        JOIN h ON h.id = e.part JOIN touched t ON t.name = e.name
    )
"""
_USED: Final = """
    , used AS (
        INSERT INTO {lib_blob_uses} (digest, run)
        SELECT u.digest, t.id FROM unnest(%(u_digest)s::text[], %(u_name)s::bytea[])
            AS u(digest, name) JOIN touched t ON t.name = u.name
        ON CONFLICT DO NOTHING
    )
"""
_RESULT: Final = " SELECT h.id, h.base, t.name FROM h LEFT JOIN touched t ON t.part = h.id"


@lru_cache(8)
def _text(*, started: bool, changed: bool, used: bool) -> str:
    touched = ["SELECT id, name, part FROM started"] * started + [
        "SELECT id, name, part FROM changed"
    ] * changed
    parts = [
        _HEADS,
        _STARTED if started else "",
        _CHANGED if changed else "",
        f", touched AS ({' UNION ALL '.join(touched)})",
        _LOGGED,
        _USED if used else "",
        _RESULT,
    ]
    return " ".join(" ".join(parts).split())


def write(place: Place, batch: Batch) -> tuple[Fixed, dict[str, Any]]:
    """Return the statement for a batch that has events, and its parameters."""
    started, changed, uses = batch.started, batch.changed, batch.uses
    statement = _text(started=bool(started), changed=bool(changed), used=bool(uses))
    parameters = batch.logged | started | changed | uses | {"layout": LAYOUT_VERSION}
    return place.fixed(statement), parameters
