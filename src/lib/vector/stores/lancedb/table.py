"""The calls of `LanceDBVectorStore` to LanceDB: one table, opened.

Every write commits a version of the table, so it is there as a whole or not at all, and a reader
sees one version. LanceDB searches without an index, hence exactly. Its distances are 32-bit floats
(and under `dot` lose small products beside the 1 that they are taken from), so they say only which
records can be among the best; these are scored again as in memory.

Only the namespace is left to SQL: what SQL makes of missing fields and of types is not what filters
mean. Source: https://docs.lancedb.com/, and the engine itself, by experiment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from random import random
from typing import Any, Final, TypeVar, cast

import lancedb
import numpy as np
from numpy.typing import NDArray

from lib._util.clock import SYSTEM_CLOCK
from lib._util.json import compact, parse
from lib._util.tasks import whole
from lib.errors import StoreUnavailable
from lib.resilience.retry import RetryPolicy, retry
from lib.vector.exact import search as exact
from lib.vector.filter import Filter, matches
from lib.vector.offload import offload
from lib.vector.ordering import ListedBackend, contenders
from lib.vector.records import Layout, Match, Metric, Record
from lib.vector.stores.lancedb import schema
from lib.vector.stores.lancedb.config import TableConfig
from lib.vector.validate import Batch

T = TypeVar("T")

_TYPES: Final[dict[Metric, str]] = {"cosine": "cosine", "dot": "dot", "euclidean": "l2"}
_GROWTH: Final = 4
_ROW_EFFORT: Final = 20_000  # of reading a row and judging its metadata, in floats read
_CONFLICTS: Final = ("conflict", "concurrent", "contention")
_RETRIES: Final = RetryPolicy(attempts=8, base_s=0.05, cap_s=1.0, deadline_s=30.0)
_WRITES_A_COMPACTION: Final = 32
_ROWS_A_WRITE: Final = 1000
_KEPT: Final = timedelta(minutes=10)
_AT_ONCE: Final = timedelta(milliseconds=1)  # shorter than any write; LanceDB warns of none at all
_MOST: Final = 2**31 - 1
_COLUMNS: Final = ["id", "vector", "text", "meta"]


@dataclass(frozen=True, slots=True)
class Row:
    """A record as it is stored, and how far it is from the query."""

    id: str
    vector: NDArray[np.float32]
    text: str
    meta: str
    distance: float = 0.0


class Table(ListedBackend):
    """One table of one folder or object store."""

    def __init__(self, connection: Any, table: Any, config: TableConfig, fragments: int) -> None:
        """Take what `opened` has opened."""
        super().__init__()
        self._writing = asyncio.Lock()
        self._connection, self._table, self._config = connection, table, config
        self._uncompacted = fragments

    def close(self) -> None:
        """Let the files go."""
        self._table.close()
        self._connection.close()

    async def reopen(self) -> None:
        """Open the table again, made if it is missing by now; calls that run keep the old one.

        Raises:
            StoreUnavailable, StoreCorrupt, SchemaTooNew, DimensionMismatch, MetricMismatch: as
                `opened` says.
        """
        async with self._writing:
            self._table, self._uncompacted = await _checked(self._connection, self._config)

    async def upsert(self, namespace: str, batch: Batch) -> None:
        """Insert or replace the records of a batch, all of them or none."""
        await self._merge(namespace, batch, lambda merge: merge.when_matched_update_all())

    async def insert(self, namespace: str, batch: Batch) -> int:
        """Insert the records whose ids are not there, in one step; return their number."""
        done = await self._merge(namespace, batch, lambda merge: merge)
        return done.num_inserted_rows

    async def _merge(self, namespace: str, batch: Batch, how: Callable[[Any], Any]) -> Any:
        def columns() -> Any:
            metas = [compact(meta) for meta in batch.metas]
            return schema.rows(namespace, batch, metas, self._config)

        rows = await offload(_ROW_EFFORT * len(batch.ids), columns)

        def merge() -> Awaitable[Any]:
            builder = how(self._table.merge_insert(["ns", "id"]))
            return builder.when_not_matched_insert_all().execute(rows)

        async with self._writing:
            return await self._write(merge)

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

        async def fetch(size: int) -> Sequence[Row]:
            """Return the nearest that pass; always from the start, since ties have no order."""
            limit = size if filter is None else max(size, self._config.initial_batch)
            while True:
                limit = min(limit, _MOST)
                search = self._search(namespace, query).limit(limit)
                found, total = await self._passing(search.select([*_COLUMNS, "_distance"]), filter)
                if total < limit or len(found) >= size:
                    return found
                limit *= _GROWTH

        found = await contenders(fetch, k, distance=lambda row: row.distance)
        return self._ranked(found, query, k, include_vectors=include_vectors)

    async def get(self, namespace: str, ids: list[str]) -> list[Record]:
        """Return the records of these ids, in their order."""
        if not ids:
            return []
        where = _where(namespace, ids)
        found, _ = await self._passing(self._table.query().where(where).select(_COLUMNS), None)
        records = {
            row.id: Record(row.id, row.vector.tolist(), row.text, parse(row.meta)) for row in found
        }
        return [records[name] for name in ids if name in records]

    async def ids(self, namespace: str, filter: Filter | None) -> list[str]:
        """Return the ids of the records that pass the filter, in any order."""
        if filter is not None:
            return await self._ids(namespace, None, filter)
        query = self._table.query().where(_where(namespace, None)).select(["id"])
        with typed_errors(self._config):
            return (await query.to_arrow()).column("id").to_pylist()

    async def delete(self, namespace: str, ids: list[str] | None, filter: Filter | None) -> int:
        """Delete the records that have one of the ids, and pass the filter; return their number."""
        async with self._writing:
            if filter is not None and ids != []:
                ids = await self._ids(namespace, ids, filter)
            if ids == []:
                return 0
            where = _where(namespace, ids)
            gone = await self._count(where)
            if gone:
                await self._write(lambda: self._table.delete(where))
            return gone

    async def count(self, namespace: str, filter: Filter | None) -> int:
        """Return how many records pass the filter."""
        if filter is not None:
            return len(await self._ids(namespace, None, filter))
        return await self._count(_where(namespace, None))

    async def namespaces(self, prefix: str) -> list[str]:
        """Return the namespaces that hold records, sorted."""
        read = await self._read(self._table.query().select(["ns"]))
        names: list[str] = read.column("ns").unique().to_pylist()
        return sorted(name for name in names if name.startswith(prefix))

    async def _count(self, where: str) -> int:
        with typed_errors(self._config):
            return await self._table.count_rows(where)

    def _search(self, namespace: str, query: NDArray[np.float32]) -> Any:
        search = self._table.query().nearest_to(query).column("vector")
        search = search.distance_type(_TYPES[self._config.metric])
        return search.bypass_vector_index().where(_where(namespace, None))

    async def _read(self, query: Any) -> Any:
        with typed_errors(self._config):
            return await query.to_arrow()

    async def _passing(self, query: Any, filter: Filter | None) -> tuple[list[Row], int]:
        """Return the rows that pass the filter, and how many were read."""
        read = await self._read(query)
        total, dimension = read.num_rows, self._config.dimension
        found = await offload(_ROW_EFFORT * total, lambda: _rows(read, filter, dimension))
        return found, total

    async def _ids(self, namespace: str, ids: list[str] | None, filter: Filter) -> list[str]:
        """Return the ids of the records that pass the filter."""
        query = self._table.query().where(_where(namespace, ids)).select(["id", "meta"])
        read = await self._read(query)

        def passing() -> list[str]:
            columns = (read.column(name).to_pylist() for name in ("id", "meta"))
            pairs = zip(*columns, strict=True)
            return [name for name, meta in pairs if matches(filter, parse(meta))]

        return await offload(_ROW_EFFORT * read.num_rows, passing)

    def _ranked(
        self, found: Sequence[Row], query: NDArray[np.float32], k: int, *, include_vectors: bool
    ) -> list[Match]:
        if not found:
            return []
        vectors, metric = np.stack([row.vector for row in found]), self._config.metric
        rows = exact.Rows(
            ids=[row.id for row in found],
            vectors=vectors,
            scales=exact.scales(exact.row_lengths(vectors), metric),
        )
        among = exact.Selection(mask=None, count=len(found))
        best = exact.nearest(rows, query, k, metric=metric, among=among)
        return [
            Match(
                found[row].id,
                score,
                found[row].text,
                parse(found[row].meta),
                found[row].vector.tolist() if include_vectors else None,
            )
            for row, score in best
        ]

    async def _write(self, work: Callable[[], Awaitable[T]]) -> T:
        """Commit a version; what another writer has committed first is waited for."""

        async def attempt() -> T:
            with typed_errors(self._config):
                # LanceDB commits even if the caller is cancelled: the next write must come later.
                return await whole(work())

        done = await retry(attempt, policy=_RETRIES, clock=SYSTEM_CLOCK, random=random)
        self._uncompacted += 1
        if self._uncompacted >= _WRITES_A_COMPACTION:
            await self._compact()
        return done

    async def purge(self) -> None:
        """Write every row anew, and remove all files of older versions.

        Merging files would leave those of which little has been deleted as they are.
        """

        async def all_anew() -> None:
            if await self._table.count_rows():
                await self._table.update(updates_sql={"text": "text"})
            await self._table.optimize(cleanup_older_than=_AT_ONCE)

        async with self._writing:
            await self._write(all_anew)
            self._uncompacted = 0

    async def _compact(self) -> None:
        """Make few large files of many small ones; each slows down every read.

        It rewrites the table, so it waits for the more writes the more rows there are. If another
        writer comes between, what was to be compacted stays for the next time.
        """
        try:
            with typed_errors(self._config):
                rows = await self._table.count_rows()
                if self._uncompacted * _ROWS_A_WRITE >= rows:
                    self._uncompacted = 0
                    await self._table.optimize(cleanup_older_than=_KEPT)
        except StoreUnavailable as error:
            if not error.retryable:
                raise


async def opened(config: TableConfig) -> Table:
    """Open the table, made if it is missing.

    Raises:
        StoreUnavailable: the place cannot be reached or written.
        StoreCorrupt, SchemaTooNew, DimensionMismatch, MetricMismatch: as `schema.check` says.
    """
    with typed_errors(config):
        connection = await _connected(config)
    table, fragments = await _checked(connection, config)
    return Table(connection, table, config, fragments)


async def existing(config: TableConfig) -> Layout | None:
    """Return how the table was made; None if there is none.

    Raises:
        StoreUnavailable: the place cannot be reached.
        StoreCorrupt, SchemaTooNew: as `schema.made` says.
    """
    with typed_errors(config):
        connection = await _connected(config)
        try:
            table = await connection.open_table(config.table)
        except ValueError:  # there is none
            return None
        finally:
            connection.close()
        return schema.made(await table.schema(), config)


@contextmanager
def typed_errors(config: TableConfig) -> Generator[None]:
    """Raise what LanceDB raises as `StoreUnavailable`; its words are the cause."""
    try:
        yield
    except (RuntimeError, ValueError, OSError) as error:
        message = str(error).lower()
        retryable = any(word in message for word in _CONFLICTS)
        way_out = "others write to it all the time" if retryable else "the cause holds its words"
        raise StoreUnavailable(
            f"{config.label} failed: {type(error).__name__}, {way_out}", retryable=retryable
        ) from error


async def _connected(config: TableConfig) -> Any:
    return await cast(Any, lancedb).connect_async(
        config.uri,
        storage_options=config.storage_options,
        read_consistency_interval=timedelta(0),  # see at once what others write
    )


async def _checked(connection: Any, config: TableConfig) -> tuple[Any, int]:
    """Return the table, made if it is missing, and how many small files it has."""
    with typed_errors(config):
        table = await _ensured(connection, config)
        found = await table.schema()
        fragments: int = (await table.stats())["fragment_stats"]["num_small_fragments"]
    schema.check(found, config)
    return table, fragments


async def _ensured(connection: Any, config: TableConfig) -> Any:
    try:
        return await connection.open_table(config.table)
    except ValueError:  # there is none
        try:
            return await connection.create_table(config.table, schema=schema.schema(config))
        except (RuntimeError, ValueError):  # there is one now: another process was faster
            return await connection.open_table(config.table)


def _rows(read: Any, filter: Filter | None, dimension: int) -> list[Row]:
    """Return the rows that pass the filter."""
    if filter is not None:
        metas = enumerate(read.column("meta").to_pylist())
        passing = [row for row, meta in metas if matches(filter, parse(meta))]
        read = read.take(np.array(passing, np.int64))
    ids, texts, metas = (read.column(name).to_pylist() for name in ("id", "text", "meta"))
    vectors = read.column("vector").combine_chunks().flatten().to_numpy().reshape(-1, dimension)
    found = "_distance" in read.column_names
    distances = read.column("_distance").to_pylist() if found else [0.0] * read.num_rows
    return list(map(Row, ids, vectors, texts, metas, distances))


def _where(namespace: str, ids: list[str] | None) -> str:
    """Return the condition for a namespace, or for some of its ids."""
    wall = f"ns = {_quoted(namespace)}"
    return wall if ids is None else f"{wall} AND id IN ({', '.join(map(_quoted, ids))})"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
