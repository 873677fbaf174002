"""Searches: the nearest records, exactly or through the HNSW index, and the best by words.

An HNSW index knows nothing of namespaces and filters: it yields neighbours, and those that do not
pass are thrown away. Where few pass, hardly any of the true neighbours is left, however many rows
come back. So the rows that pass are counted, as far as it matters, and ranked as they are counted:

1. `few`: at most so many rows pass as are faster ranked than found. One statement counts and
   ranks them; the planner takes the primary key, the GIN index or the whole table.
2. `approximate`: more pass. The index is scanned until enough are found (iterative scan).
3. `exact`: there is no index, or it yielded too few, or the last rows of its answer are ties.

That many rows pass is remembered for a while, so that such queries begin with the second.

Texts are ranked by the sum over the query's terms of inverse document frequency times `ts_rank`,
which alone weighs a common word like a rare one. Any term may match; a repeated one counts as
often. The query is built of quoted lexemes, so no text can be read as an operator. Frequencies are
those of the namespace, before the filter, so no other namespace has any influence.

Source: https://www.postgresql.org/docs/18/textsearch-controls.html, "Ranking Search Results"; the
weight is that of S. Robertson and H. Zaragoza, The Probabilistic Relevance Framework, 2009.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Final

from lib.vector.stores.postgres.config import MAX_EF_SEARCH
from lib.vector.stores.postgres.driver import Connection, Cursor, cursor, run, sql
from lib.vector.stores.postgres.schema import Layout, quoted

# So many rows are ranked as fast as ten are found among them through the index: a row costs about
# 1 us here and 20 us there, where 1 in (rows of the table / rows that pass) of those seen passes.
_FEW: Final = 5_000
_FEW_OF_MANY: Final = 20.0
_SPARE: Final = 8  # rows beyond the k-th, to see where its score ends
_REMEMBERED: Final = 1_024
_USES: Final = 100

_ROWS: Final = sql.SQL(
    "SELECT greatest(reltuples, 0)::float8 FROM pg_class WHERE oid = %(name)s::regclass"
)
_FEW_RANKED: Final = sql.SQL("""
    WITH passing AS MATERIALIZED (
        SELECT id, {score} AS score FROM {table} AS r WHERE {where} LIMIT %(few)s::bigint + 1
    ), best AS (
        SELECT id, score FROM passing ORDER BY score {direction}, id COLLATE "C" LIMIT %(k)s::bigint
    ), facts AS (
        SELECT (SELECT count(*) FROM passing) AS passing, (
            SELECT greatest(reltuples, 0)::float8 FROM pg_class WHERE oid = %(name)s::regclass
        ) AS rows
    )
    SELECT facts.passing, facts.rows, r.id, best.score{content}
    FROM facts LEFT JOIN best ON facts.passing <= %(few)s::bigint
    LEFT JOIN {table} AS r ON r.namespace = %(namespace)s::text AND r.id = best.id
""")
_EXACT: Final = sql.SQL("""
    SELECT r.id, best.score{content} FROM (
        SELECT id, {score} AS score FROM {table} AS r WHERE {where}
        ORDER BY score {direction}, id COLLATE "C" LIMIT %(k)s::bigint
    ) AS best JOIN {table} AS r ON r.namespace = %(namespace)s::text AND r.id = best.id
""")
_APPROXIMATE: Final = sql.SQL("""
    SELECT r.id, {score}{content} FROM {table} AS r WHERE {where}
    ORDER BY {order} LIMIT %(limit)s::bigint
""")
# Without sorting, the ordered scan of the index is all that is left; whether it is worth it has
# been decided, and statistics that are missing or old shall not decide otherwise. An IVFFlat index
# that others have made is left out, or read to its end: with the default it finds too little.
_SETTINGS: Final = sql.SQL("""
    SELECT set_config('hnsw.ef_search', %(ef)s::text, true),
        set_config('hnsw.iterative_scan', 'relaxed_order', true),
        set_config('ivfflat.probes', '32768', true),
        set_config('enable_sort', 'off', true), set_config('jit', 'off', true)
""")
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
    SELECT id, sum(rank * weight)::real AS score FROM hits JOIN weights USING (term) WHERE passes
    GROUP BY id ORDER BY score DESC, id COLLATE "C" LIMIT %(limit)s::bigint
""")


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """The query of a search.

    Attributes:
        where: which records may be found.
        parameters: of `where`, and `query` and `namespace`.
        k: how many are wanted.
        key: the same for searches among the same records.
        content: whether texts and metadata are wanted.
        vectors: whether vectors are wanted, too.
    """

    where: sql.Composable
    parameters: dict[str, Any]
    k: int
    key: int
    content: bool = True
    vectors: bool = False


class Planner:
    """Chooses how to search one table.

    Attributes:
        rows: about how many the table has; 0 if not counted yet.
    """

    def __init__(self, layout: Layout) -> None:
        """Remember nothing yet."""
        self._layout = layout
        self.rows: float = float(layout.rows)
        self._broad: OrderedDict[int, int] = OrderedDict()

    async def nearest(
        self, connection: Connection, search: Search, *, in_transaction: bool = False
    ) -> list[tuple[Any, ...]]:
        """Return id, score and what else is wanted of the nearest records, best first.

        Args:
            connection: to search with.
            search: what is looked for.
            in_transaction: whether one is open, whose settings may be changed to its end.
        """
        async with cursor(connection) as reading:
            if self._layout.index is None:
                return self._best(search, await self._exact(reading, search))
            found = None if self._is_broad(search.key) else await self._few(reading, search)
            if found is None and in_transaction:
                found = await self._many(connection, reading, search)
            elif found is None:
                async with connection.transaction():
                    found = await self._many(connection, reading, search)
            return self._best(search, found)[: search.k]

    async def learn(self, reading: Cursor) -> None:
        """Read how many rows there are, after the server has counted them."""
        named = {"name": quoted(self._layout.table)}
        ((self.rows,),) = await (await run(reading, _ROWS, named)).fetchall()

    def _is_broad(self, key: int) -> bool:
        """Return True if it is known that many rows pass; now and then they are counted anew."""
        uses = self._broad.pop(key, 0)
        if uses:
            self._broad[key] = uses - 1
        return uses > 0

    def _remember(self, key: int) -> None:
        self._broad[key] = _USES
        if len(self._broad) > _REMEMBERED:
            self._broad.popitem(last=False)

    async def _few(self, reading: Cursor, search: Search) -> list[tuple[Any, ...]] | None:
        """Return the nearest if only few rows pass."""
        few = max(_FEW, search.k, int(_FEW_OF_MANY * math.sqrt(self.rows)))
        bound = {**search.parameters, "k": search.k, "few": few, "name": quoted(self._layout.table)}
        statement = self._statement(_FEW_RANKED, search)
        rows = await (await run(reading, statement, bound)).fetchall()
        passing: int = rows[0][0]
        self.rows = rows[0][1]
        if passing > few:
            self._remember(search.key)
            return None
        return [row[2:] for row in rows if row[2] is not None]

    async def _many(
        self, connection: Connection, reading: Cursor, search: Search
    ) -> list[tuple[Any, ...]]:
        for limit in (search.k + _SPARE, 4 * (search.k + _SPARE)):
            if limit > MAX_EF_SEARCH:
                break
            found = self._best(search, await self._approximate(connection, reading, search, limit))
            if len(found) < limit:
                break
            if found[-1][1] != found[search.k - 1][1]:
                return found
        return await self._exact(reading, search)

    async def _approximate(
        self, connection: Connection, reading: Cursor, search: Search, limit: int
    ) -> list[tuple[Any, ...]]:
        """Return what the index yields, not quite in order."""
        ef = min(MAX_EF_SEARCH, max(self._layout.table.ef_search, limit))
        statement = self._statement(_APPROXIMATE, search, order=self._layout.order())
        async with connection.pipeline(), cursor(connection) as setting:
            await run(setting, _SETTINGS, {"ef": str(ef)})
            await run(reading, statement, {**search.parameters, "limit": limit})
            return await reading.fetchall()

    async def _exact(self, reading: Cursor, search: Search) -> list[tuple[Any, ...]]:
        bound = {**search.parameters, "k": search.k}
        return await (await run(reading, self._statement(_EXACT, search), bound)).fetchall()

    def _statement(self, shape: sql.SQL, search: Search, **parts: sql.Composable) -> sql.Composable:
        return self._layout.put(
            shape,
            score=self._layout.score(),
            where=search.where,
            direction=self._layout.direction(),
            content=content(vectors=search.vectors) if search.content else sql.SQL(""),
            **parts,
        )

    def _best(self, search: Search, found: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        sign = 1.0 if self._layout.table.metric == "euclidean" else -1.0
        return sorted(found, key=lambda row: (sign * row[1], row[0]))


def content(*, vectors: bool) -> sql.Composable:
    """Return the columns that hold what a record does, a comma before each."""
    vector = sql.SQL(", r.v::real[]") if vectors else sql.SQL("")
    return sql.SQL(", r.text, coalesce(r.meta_raw, r.meta::text){}").format(vector)


async def ranked(
    cursor: Cursor,
    layout: Layout,
    text: str,
    limit: int,
    *,
    where: sql.Composable,
    parameters: dict[str, Any],
) -> list[tuple[str, float]]:
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
    bound = {**parameters, "text": plain, "limit": limit, "most": _MAX_TERMS}
    return [(name, score) for name, score in await (await run(cursor, statement, bound)).fetchall()]
