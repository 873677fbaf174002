"""Ranking by words: the sum over the query's terms of inverse document frequency times rank.

`ts_rank` alone weighs a common word like a rare one. Any term may match; a repeated one counts as
often. The query is put together of lexemes, quoted, so no text can be read as an operator.
Frequencies are those of the namespace, before the filter, so no other namespace has any influence.

Source: https://www.postgresql.org/docs/18/textsearch-controls.html, "Ranking Search Results"; the
weight is that of S. Robertson and H. Zaragoza, The Probabilistic Relevance Framework, 2009.
"""

from __future__ import annotations

from typing import Any, Final

from lib.vector.stores.postgres.driver import Cursor, run, sql
from lib.vector.stores.postgres.schema import Layout

_MAX_TERMS: Final = 500  # each is a look into the index, and as many rows as have it

# OFFSET 0 keeps each term's search apart: one look into the index for each.
_RANKED: Final = sql.SQL(r"""
    WITH terms AS MATERIALIZED (
        SELECT row_number() OVER () AS term, coalesce(array_length(positions, 1), 1) AS weight,
            ('''' || replace(replace(lexeme, '\', '\\'), '''', '''''') || '''')::tsquery AS query
        FROM unnest({terms})
        ORDER BY weight DESC, positions[1], lexeme LIMIT %(most)s::bigint
    ), hits AS MATERIALIZED (
        SELECT term, found.id, weight * ts_rank(found.ts, terms.query, 1) AS rank, passes
        FROM terms CROSS JOIN LATERAL (
            SELECT r.id, r.ts, {where} AS passes FROM {table} AS r
            WHERE r.namespace = %(namespace)s::text AND r.ts @@ terms.query OFFSET 0
        ) AS found
    ), total AS MATERIALIZED (
        SELECT count(*)::float8 AS n FROM {table} WHERE namespace = %(namespace)s::text
    ), weights AS MATERIALIZED (
        SELECT term, ln(1 + (n - df + 0.5::float8) / (df + 0.5::float8)) AS weight
        FROM (SELECT term, count(*)::float8 AS df FROM hits GROUP BY term) AS counted, total
    )
    SELECT id FROM hits JOIN weights USING (term) WHERE passes
    GROUP BY id ORDER BY sum(rank * weight)::real DESC, id COLLATE "C" LIMIT %(limit)s::bigint
""")


async def ranked(
    cursor: Cursor,
    layout: Layout,
    text: str,
    limit: int,
    *,
    where: sql.Composable,
    parameters: dict[str, Any],
) -> list[str]:
    """Return the ids whose texts are most relevant to the words of a text, best first.

    Args:
        cursor: to run it.
        layout: of the table.
        text: any string; what PostgreSQL cannot read in it separates words. Of more than 500
            terms those count that stand in it most often, of equals the first.
        limit: how many at most.
        where: which records may be found, true or false for each.
        parameters: of `where`, and the namespace.
    """
    plain = text.replace("\0", " ").encode(errors="replace").decode()
    statement = layout.put(_RANKED, terms=layout.terms(sql.SQL("%(text)s::text")), where=where)
    given = {**parameters, "text": plain, "limit": limit, "most": _MAX_TERMS}
    return [name for (name,) in await (await run(cursor, statement, given)).fetchall()]
