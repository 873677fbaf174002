"""Records on their way into the table: encoded in pieces, in the order of their ids."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from lib.vector.stores.postgres.driver import sql, vectors
from lib.vector.stores.postgres.filter import comparable, written
from lib.vector.validate import Batch

UPSERT: Final = sql.SQL("""
    INSERT INTO {table} (namespace, id, v, text, meta, meta_raw)
    SELECT %(namespace)s::text, r.id, r.v, r.text, r.meta::jsonb, r.meta_raw
    FROM unnest(%(ids)s::text[], %(vectors)s::{ext}.vector[], %(texts)s::text[],
        %(metas)s::text[], %(raws)s::text[]) AS r (id, v, text, meta, meta_raw)
    ON CONFLICT (namespace, id) DO UPDATE
    SET v = excluded.v, text = excluded.text, meta = excluded.meta, meta_raw = excluded.meta_raw
""")
# Who does not own the table gets a warning, and no statistics.
ANALYZE: Final = sql.SQL("ANALYZE (SKIP_LOCKED) {table} (namespace, id, meta)")
_PIECE_ROWS: Final = 1_000
_PIECE_BYTES: Final = 1 << 24


def pieces(batch: Batch, vector_type: int) -> list[dict[str, Any]]:
    """Return the parameters of one statement after the other.

    Rows are sorted, so that two batches of the same ids wait for each other in turn and never in
    a circle.

    Args:
        batch: what is to be stored.
        vector_type: the number of the type `vector` in this database.
    """
    raws = [written(meta) for meta in batch.metas]
    order = sorted(range(len(batch.ids)), key=batch.ids.__getitem__)
    vector_bytes = batch.vectors.shape[1] * 4
    sizes = [vector_bytes + len(batch.texts[row]) + 2 * len(raws[row]) for row in order]
    return [
        {
            "ids": [batch.ids[row] for row in rows],
            "vectors": vectors(batch.vectors[rows], vector_type),
            "texts": [batch.texts[row] for row in rows],
            "metas": [comparable(raws[row], batch.metas[row]) for row in rows],
            "raws": [raws[row] for row in rows],
        }
        for rows in _cut(order, sizes)
    ]


def _cut(order: list[int], sizes: list[int]) -> Iterator[list[int]]:
    start = size = 0
    for place, one in enumerate(sizes):
        if place > start and (size + one > _PIECE_BYTES or place - start == _PIECE_ROWS):
            yield order[start:place]
            start, size = place, 0
        size += one
    yield order[start:]
