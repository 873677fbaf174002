"""The statements of `PostgresVectorStore`, run over its connections; the input has been checked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from lib._util import postgres
from lib._util.json import parse
from lib.errors import InvalidMeta
from lib.vector import records
from lib.vector.filter import Filter
from lib.vector.offload import offload
from lib.vector.records import Match, Record
from lib.vector.stores.postgres import setup
from lib.vector.stores.postgres.config import MAX_KEY_BYTES, NAME, Table
from lib.vector.stores.postgres.driver import (
    Connection,
    cursor,
    psycopg,
    run,
    sql,
    transaction,
    typed_errors,
    vector,
    vectors,
)
from lib.vector.stores.postgres.filter import comparable, condition, written
from lib.vector.stores.postgres.schema import Layout
from lib.vector.stores.postgres.search import Planner, Search, content, ranked
from lib.vector.text.coherence import COHERENT_AMONG, coherence
from lib.vector.text.fusion import Fusion, depth, fused
from lib.vector.validate import Batch

_INSERT: Final = sql.SQL("""
    INSERT INTO {table} (namespace, id, v, text, meta, meta_raw)
    SELECT %(namespace)s::text, r.id, r.v, r.text, r.meta::jsonb, r.meta_raw
    FROM unnest(%(ids)s::text[], %(vectors)s::{ext}.vector[], %(texts)s::text[],
        %(metas)s::text[], %(raws)s::text[]) AS r (id, v, text, meta, meta_raw)
    ON CONFLICT (namespace, id) DO {action}
""")
_REPLACE: Final = sql.SQL("""
    UPDATE
    SET v = excluded.v, text = excluded.text, meta = excluded.meta, meta_raw = excluded.meta_raw
""")
_KEEP: Final = sql.SQL("NOTHING")
_CHOSEN: Final = sql.SQL("""
    SELECT r.id, coalesce(r.meta_raw, r.meta::text) FROM {table} AS r WHERE {where}
    ORDER BY r.id COLLATE "C" FOR UPDATE
""")
_UPDATE_META: Final = sql.SQL("""
    UPDATE {table} AS r SET meta = n.meta::jsonb, meta_raw = n.raw
    FROM unnest(%(ids)s::text[], %(metas)s::text[], %(raws)s::text[]) AS n (id, meta, raw)
    WHERE r.namespace = %(namespace)s::text AND r.id = n.id
""")
# A role that does not own the table gets a warning, and no statistics.
_ANALYZE: Final = sql.SQL("ANALYZE (SKIP_LOCKED) {table} (namespace, id, meta)")
_PIECE_ROWS: Final = 1_000
_PIECE_BYTES: Final = 1 << 24
_CHARACTER_EFFORT: Final = 50  # of reading one of metadata, in floats read
# So many records, and such a share of those there are, make statistics stale: what the server does
# for itself within a minute is too late for a table that was filled just now.
_WRITTEN: Final = 1_000
_WRITTEN_SHARE: Final = 0.2

_RECORDS: Final = sql.SQL("SELECT r.id{content} FROM {table} AS r WHERE {where}")
_FOLLOWING: Final = sql.SQL("""
    SELECT r.id{content} FROM {table} AS r
    WHERE {where} AND r.id COLLATE "C" > %(after)s::text
    ORDER BY r.id COLLATE "C" LIMIT %(limit)s
""")
_META: Final = sql.SQL(", coalesce(r.meta_raw, r.meta::text)")
_DELETE: Final = sql.SQL("DELETE FROM {table} AS r WHERE {where}")
_COUNT: Final = sql.SQL("SELECT count(*) FROM {table} AS r WHERE {where}")
# One look into the primary key for each namespace, however many records there are.
_NAMESPACES: Final = sql.SQL("""
    WITH RECURSIVE found (name) AS (
        (SELECT namespace FROM {table} WHERE namespace COLLATE "C" >= %(prefix)s::text
            ORDER BY namespace COLLATE "C" LIMIT 1)
        UNION ALL
        SELECT (SELECT namespace FROM {table} WHERE namespace COLLATE "C" > found.name
            ORDER BY namespace COLLATE "C" LIMIT 1)
        FROM found WHERE starts_with(found.name, %(prefix)s::text)
    )
    SELECT name FROM found WHERE starts_with(name, %(prefix)s::text)
""")
_ONE_STATE: Final = sql.SQL("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")


class Database:
    """One table of one database, made ready."""

    def __init__(self, connections: postgres.Connections, layout: Layout) -> None:
        """Take over connections to a table that is ready."""
        self._connections, self._layout = connections, layout
        self._planner = Planner(layout)
        self._written = 0  # records since the last ANALYZE

    async def setup(self) -> None:
        """Check the table again, and create what has been dropped since."""
        async with self._connection() as connection:
            await setup.opened(connection, self._layout.table)

    async def upsert(self, namespace: str, batch: Batch) -> None:
        """Insert or replace the records of a batch, all of them or none."""
        await self._put(_REPLACE, namespace, batch)

    async def insert(self, namespace: str, batch: Batch) -> int:
        """Insert the records whose ids are not there; return their number."""
        return await self._put(_KEEP, namespace, batch)

    async def update_meta(
        self, namespace: str, ids: list[str] | None, filter: Filter | None, changes: dict[str, Any]
    ) -> int:
        """Merge changes into the metadata of records, in one transaction; return their number."""
        where, parameters = _where(namespace, filter, ids)
        chosen = self._layout.put(_CHOSEN, where=where)
        statement = self._layout.put(_UPDATE_META)
        async with self._connection() as connection, transaction(connection) as writer:
            rows = await (await run(writer, chosen, parameters)).fetchall()
            metas = [{**meta, **changes} for meta in await _read(meta for _, meta in rows)]
            names = [name for name, _ in rows]
            for piece in await asyncio.to_thread(_meta_pieces, names, metas):
                await run(writer, statement, {"namespace": namespace, **piece})
        return len(rows)

    async def _put(self, action: sql.SQL, namespace: str, batch: Batch) -> int:
        """Insert a batch, and do this to the rows that are there; return how many were written."""
        # The size of the metadata is unknown before it is encoded.
        pieces = await asyncio.to_thread(_pieces, batch, self._layout.vector_type)
        statement, count = self._layout.put(_INSERT, action=action), 0
        async with self._connection() as connection, transaction(connection) as writer:
            for piece in pieces:
                with _fitting(namespace, batch.ids):
                    wrote = await run(writer, statement, {"namespace": namespace, **piece})
                    count += wrote.rowcount
            self._written += len(batch.ids)
            if self._written > _WRITTEN + _WRITTEN_SHARE * self._planner.rows:
                self._written = 0
                await run(writer, self._layout.put(_ANALYZE))
                await self._planner.learn(writer)
        return count

    async def query(
        self,
        namespace: str,
        query: NDArray[np.float32],
        k: int,
        filter: Filter | None,
        *,
        include_vectors: bool,
    ) -> list[Match]:
        """Return the nearest records, best first."""
        async with self._connection() as connection:
            return await self._nearest(
                connection, namespace, query, k, filter, include_vectors=include_vectors
            )

    async def query_many(
        self,
        namespace: str,
        queries: list[NDArray[np.float32]],
        k: int,
        filter: Filter | None,
        *,
        include_vectors: bool,
    ) -> list[list[Match]]:
        """Return what `query` does for each of them, one after the other on one connection."""
        async with self._connection() as connection:
            return [
                await self._nearest(
                    connection, namespace, query, k, filter, include_vectors=include_vectors
                )
                for query in queries
            ]

    async def _nearest(
        self,
        connection: Connection,
        namespace: str,
        query: NDArray[np.float32],
        k: int,
        filter: Filter | None,
        *,
        include_vectors: bool,
    ) -> list[Match]:
        where, parameters = _where(namespace, filter)
        search = Search(
            where=where,
            parameters={**parameters, "query": vector(query)},
            k=k,
            key=hash((namespace, repr(filter))),
            vectors=include_vectors,
        )
        found = await self._planner.nearest(connection, search)
        metas = await _read(row[3] for row in found)
        return [
            Match(name, score, text, meta, *rest)
            for (name, score, text, _, *rest), meta in zip(found, metas, strict=True)
        ]

    async def query_hybrid(
        self,
        namespace: str,
        query: NDArray[np.float32],
        text: str,
        k: int,
        filter: Filter | None,
        *,
        fusion: Fusion,
    ) -> list[Match]:
        """Return the best of two lists, fused."""
        where, parameters = _where(namespace, filter)
        limit, higher = depth(k), self._layout.table.metric != "euclidean"
        search = Search(
            where=where,
            parameters={**parameters, "query": vector(query)},
            k=limit,
            key=hash((namespace, repr(filter))),
            content=False,
        )
        async with self._connection() as connection, connection.transaction():
            async with cursor(connection) as reading:
                await run(reading, _ONE_STATE)
                worded = await ranked(
                    reading, self._layout, text, limit, where=where, parameters=parameters
                )
            near = await self._planner.nearest(connection, search, in_transaction=True)
            nearest = [(name, score) for name, score in near]
            coherent = 0.0
            if fusion.method == "adaptive":
                closest = [name for name, _ in nearest[:COHERENT_AMONG]]
                stored = await self._stored(connection, namespace, closest, vectors=True)
                rows = np.array([stored[name][2] for name in closest], np.float32)
                coherent = coherence(query, rows.reshape(-1, len(query)))
            scored = fused(nearest, worded, k, fusion, higher_is_better=higher, coherence=coherent)
            stored = await self._stored(connection, namespace, [name for name, _ in scored])
        return [Match(name, score, *stored[name]) for name, score in scored]

    async def query_keywords(
        self, namespace: str, text: str, k: int, filter: Filter | None
    ) -> list[Match]:
        """Return the best texts, best first."""
        where, parameters = _where(namespace, filter)
        async with self._connection() as connection, connection.transaction():
            async with cursor(connection) as reading:
                await run(reading, _ONE_STATE)
                scored = await ranked(
                    reading, self._layout, text, k, where=where, parameters=parameters
                )
            stored = await self._stored(connection, namespace, [name for name, _ in scored])
        return [Match(name, score, *stored[name]) for name, score in scored]

    async def get(self, namespace: str, ids: list[str]) -> list[Record]:
        """Return the records of these ids, in their order."""
        async with self._connection() as connection:
            stored = await self._stored(connection, namespace, ids, vectors=True)
        return [
            Record(name, vector, text, meta)
            for name in ids
            if name in stored
            for text, meta, vector in [stored[name]]
        ]

    async def scan(
        self, namespace: str, after: str, limit: int, filter: Filter | None
    ) -> list[Record]:
        """Return the first records whose ids follow, by code point."""
        wanted = content(vectors=True)
        rows = await self._following(namespace, after, limit, filter, wanted)
        metas = await _read(row[2] for row in rows)
        return [
            Record(name, vector, text, meta)
            for (name, text, _, vector), meta in zip(rows, metas, strict=True)
        ]

    async def metas(
        self, namespace: str, after: str, limit: int, filter: Filter | None
    ) -> list[tuple[str, dict[str, Any]]]:
        """Return ids and metadata of the first records that pass and whose ids follow."""
        rows = await self._following(namespace, after, limit, filter, _META)
        metas = await _read(meta for _, meta in rows)
        return [(name, meta) for (name, _), meta in zip(rows, metas, strict=True)]

    async def delete(self, namespace: str, ids: list[str] | None, filter: Filter | None) -> int:
        """Delete the records that have one of the ids, and pass the filter; return their number."""
        where, parameters = _where(namespace, filter, ids)
        statement = self._layout.put(_DELETE, where=where)
        async with self._connection() as connection, transaction(connection) as writer:
            return (await run(writer, statement, parameters)).rowcount

    async def count(self, namespace: str, filter: Filter | None) -> int:
        """Return how many records pass the filter."""
        where, parameters = _where(namespace, filter)
        ((count,),) = await self._all(_COUNT, where, parameters)
        return count

    async def namespaces(self, prefix: str) -> list[str]:
        """Return the namespaces that hold records and start so, sorted."""
        found = await self._all(_NAMESPACES, sql.SQL(""), {"prefix": prefix})
        return [name for (name,) in found]

    async def close(self) -> None:
        """Close the pool, if it is ours."""
        await self._connections.close()

    @asynccontextmanager
    async def _connection(self) -> AsyncGenerator[Connection]:
        with typed_errors(self._layout.table.place):
            async with self._connections.one() as connection:
                yield connection

    async def _following(
        self,
        namespace: str,
        after: str,
        limit: int,
        filter: Filter | None,
        columns: sql.Composable,
    ) -> Sequence[tuple[Any, ...]]:
        where, parameters = _where(namespace, filter)
        parameters |= {"after": after, "limit": limit}
        return await self._all(_FOLLOWING, where, parameters, content=columns)

    async def _all(
        self,
        shape: sql.SQL,
        where: sql.Composable,
        parameters: dict[str, Any],
        **parts: sql.Composable,
    ) -> Sequence[tuple[Any, ...]]:
        statement = self._layout.put(shape, where=where, **parts)
        async with self._connection() as connection, cursor(connection) as using:
            await run(using, statement, parameters)
            return await using.fetchall()

    async def _stored(
        self, connection: Connection, namespace: str, ids: list[str], *, vectors: bool = False
    ) -> dict[str, tuple[Any, ...]]:
        """Return texts, metadata, and vectors if wanted, by id."""
        where, parameters = _where(namespace, None, ids)
        statement = self._layout.put(_RECORDS, where=where, content=content(vectors=vectors))
        async with cursor(connection) as reading:
            rows = await (await run(reading, statement, parameters)).fetchall()
        metas = await _read(row[2] for row in rows)
        return {
            name: (text, meta, *rest)
            for (name, text, _, *rest), meta in zip(rows, metas, strict=True)
        }


async def opened(dsn: str | None, pool: Any, table: Table) -> Database:
    """Make the table ready, and open the pool.

    Raises:
        ValueError: the dsn cannot be read.
        StoreUnavailable: the server cannot be reached, or refuses.
        VectorError, StoreError: as `setup.opened` says.
    """
    connections = _connections(dsn, pool)
    with typed_errors(table.place):
        async with connections.first() as connection:
            layout = await setup.opened(connection, table)
        await connections.open()
    return Database(connections, layout)


async def existing(dsn: str | None, pool: Any, table: Table) -> records.Layout | None:
    """Return how the table was made; None if there is none.

    Raises:
        ValueError: the dsn cannot be read.
        StoreUnavailable: the server cannot be reached, or refuses.
        StoreCorrupt, SchemaTooNew: as `setup.existing` says.
    """
    with typed_errors(table.place):
        async with _connections(dsn, pool).first() as connection:
            return await setup.existing(connection, table)


def _connections(dsn: str | None, pool: Any) -> postgres.Connections:
    """Return connections of a pool of our own, or of the caller's, which stays open."""
    return postgres.Connections(dsn, pool, name=NAME, configure=_configure)


async def _configure(connection: Connection) -> None:
    # PostgreSQL takes a search for so costly that it compiles it, which takes longer than the run.
    await connection.execute("SET jit = off")


@contextmanager
def _fitting(namespace: str, ids: list[str]) -> Generator[None]:
    """Refuse names that the index of the key has no room for; it compresses some of them."""
    try:
        yield
    except psycopg.errors.ProgramLimitExceeded as error:
        took = len(namespace.encode()) + max(len(name.encode()) for name in ids)
        if took <= MAX_KEY_BYTES:
            raise
        raise InvalidMeta(
            f"PostgreSQL has room for a namespace and an id of {MAX_KEY_BYTES} bytes together, "
            f"more where it can compress them, got {took}"
        ) from error


async def _read(metas: Iterable[str]) -> list[dict[str, Any]]:
    """Return metadata as the caller passed it, decoded in a thread if it is much."""
    written = list(metas)
    effort = _CHARACTER_EFFORT * sum(map(len, written))
    return await offload(effort, lambda: [parse(meta) for meta in written])


def _where(
    namespace: str, filter: Filter | None, ids: list[str] | None = None
) -> tuple[sql.Composable, dict[str, Any]]:
    parameters: dict[str, Any] = {"namespace": namespace}
    parts: list[sql.Composable] = [sql.SQL("r.namespace = %(namespace)s::text")]
    if ids is not None:
        parameters["ids"] = ids
        parts.append(sql.SQL("r.id = ANY(%(ids)s::text[])"))
    if filter is not None:
        parts.append(condition(filter, parameters))
    return sql.SQL(" AND ").join(parts), parameters


def _pieces(batch: Batch, vector_type: int) -> list[dict[str, Any]]:
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


def _meta_pieces(ids: list[str], metas: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the parameters of one statement after the other that changes metadata."""
    raws = list(map(written, metas))
    every, sizes = list(range(len(ids))), [2 * len(raw) for raw in raws]
    return [
        {
            "ids": [ids[row] for row in rows],
            "metas": [comparable(raws[row], metas[row]) for row in rows],
            "raws": [raws[row] for row in rows],
        }
        for rows in _cut(every, sizes)
    ]


def _cut(order: list[int], sizes: list[int]) -> Iterator[list[int]]:
    """Yield rows, as many at a time as one statement may carry; no rows make no statement."""
    start = size = 0
    for place, one in enumerate(sizes):
        if place > start and (size + one > _PIECE_BYTES or place - start == _PIECE_ROWS):
            yield order[start:place]
            start, size = place, 0
        size += one
    if order:
        yield order[start:]
