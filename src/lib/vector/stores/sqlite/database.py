"""The connection of `SQLiteVectorStore`: used in one thread, except for what never blocks.

The methods of a backend are coroutines that never wait: the store runs them in its thread.

Vectors are searched in memory: a namespace is read with its first query, then follows this
connection's own writes, and is dropped when another connection has written. Each
transaction asks SQLite for that; the file's WAL index says so, too, where it can be read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from contextlib import contextmanager
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lib._util import sqlite
from lib.errors import HybridUnavailable, StoreCorrupt, StoreError
from lib.vector.composed import merged
from lib.vector.exact.partition import Snapshot
from lib.vector.exact.search import Selection, nearest, row_lengths
from lib.vector.filter import Filter
from lib.vector.records import Match, Record
from lib.vector.stores.sqlite import lexical
from lib.vector.stores.sqlite.cache import (
    CachedNamespace,
    FoundRows,
    Near,
    QueryPlan,
    RowIds,
    Stored,
    remembered,
)
from lib.vector.stores.sqlite.filter import Condition, condition
from lib.vector.stores.sqlite.schema import NAME, Table, open_table, typed_errors
from lib.vector.stores.sqlite.walindex import file_header, let_go
from lib.vector.text.analysis import query_words
from lib.vector.text.coherence import coherence_for
from lib.vector.text.fusion import Fusion, depth, fused_rows
from lib.vector.validate import Batch

_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode

_UPSERT = """
    INSERT INTO [table] (namespace, id, meta, text, vector) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT (namespace, id)
    DO UPDATE SET meta = excluded.meta, text = excluded.text, vector = excluded.vector
"""
_ALL = "SELECT rid, id, vector FROM [table] WHERE namespace = ? ORDER BY rid"
_SIZES = "SELECT id, sz FROM [table_fts_docsize] WHERE id IN (SELECT value FROM json_each(?))"
_RIDS = """
    SELECT id, rid FROM [table] WHERE namespace = ? AND id IN (SELECT value FROM json_each(?))
"""
_RECORDS = """
    SELECT id, vector, text, meta FROM [table]
    WHERE namespace = ? AND id IN (SELECT value FROM json_each(?))
"""
_CHOSEN = _FOLLOWING = "SELECT id, vector, text, meta FROM [table] WHERE "
_IN_ORDER = " AND id > ? ORDER BY id LIMIT ?"
_FOUND = "SELECT rid, text, meta FROM [table] WHERE rid IN (SELECT value FROM json_each(?))"
_DELETE = "DELETE FROM [table] WHERE rid IN (SELECT value FROM json_each(?))"
_GONE = "SELECT rid, id FROM [table] WHERE "
_PASSING = "SELECT rid FROM [table] WHERE "
_COUNT = "SELECT count(*) FROM [table] WHERE "
_READ_AT_ONCE = 2_000
_FOUND_SHARE = 16  # what was found may take one byte for so many of vectors
_MERGE = "INSERT INTO [table_fts]([table_fts]) VALUES ('optimize')"
_NAMESPACES = "SELECT DISTINCT namespace FROM [table]"


class Database:
    """One table of one file, opened."""

    def __init__(self, table: Table, *, cache_bytes: int) -> None:
        """Open the table, made if need be.

        Raises:
            StoreError, DimensionMismatch, MetricMismatch: as `open_table` says.
        """
        opened = open_table(table)
        self._table = table
        self._connection = opened.connection
        self._no_hybrid = opened.no_hybrid
        self._stop_terms = frozenset[str]()
        if self._no_hybrid is None:
            self._stop_terms = lexical.stop_terms(self._connection)
        self._cache_bytes = cache_bytes
        self._cache: dict[str, CachedNamespace] = {}
        self._uses = count(1)
        self._found = FoundRows(cache_bytes // _FOUND_SHARE)
        self._version: int | None = None
        self._header = file_header(table.path) if opened.writable else None
        self._seen: bytes | None = None

    def close(self) -> None:
        """Close the connection."""
        self._cache.clear()
        self._connection.close()
        let_go()

    def outdated(self) -> bool:
        """Return True if the file has changed and this connection will never see it."""
        return sqlite.outdated(self._connection)

    async def upsert(self, namespace: str, batch: Batch) -> None:
        """Insert or replace the records of a batch, all of them or none."""
        self._write(namespace, lambda: batch)

    async def insert(self, namespace: str, batch: Batch) -> int:
        """Insert the records whose ids are not there; return their number."""
        return self._write(
            namespace,
            lambda: batch.without(dict(self._select(_RIDS, namespace, _json(batch.ids)))),
        )

    async def update_meta(
        self, namespace: str, ids: list[str] | None, filter: Filter | None, changes: dict[str, Any]
    ) -> int:
        """Merge changes into the metadata of records, in one step; return their number."""
        where, parameters = _where(namespace, filter, ids)
        return self._write(
            namespace,
            lambda: merged(map(self._record, self._select(_CHOSEN + where, *parameters)), changes),
        )

    def _write(self, namespace: str, batch_of: Callable[[], Batch | None]) -> int:
        """Insert or replace the records of a batch that is made inside the transaction."""
        with self._transaction(write=True):
            batch = batch_of()
            if batch is None or not batch.ids:
                return 0
            metas = map(_json, batch.metas)
            blobs = (row.tobytes() for row in batch.vectors.astype("<f4", copy=False))
            columns = zip(batch.ids, metas, batch.texts, blobs, strict=True)
            self._connection.executemany(
                self._table.named(_UPSERT), ((namespace, *values) for values in columns)
            )
            cached = self._cache.pop(namespace, None)
            items = self._items(namespace, batch.ids) if cached else []
        if cached:
            cached.upsert(batch.ids, batch.vectors, batch.lengths, items)
            self._cache[namespace] = cached
        return len(batch.ids)

    def near(self, plan: QueryPlan) -> Near | None:
        """Return the nearest rows, or None if that takes long or needs the file.

        Never blocks: for the event loop, while no other call is under way.
        """
        if self._header is None or self._header() != self._seen:
            return None
        cached = self._cache.get(plan.namespace)
        if cached is None:
            return None
        snapshot = cached.snapshot
        among = remembered(snapshot, plan.filter)
        if among is None or not plan.is_small(snapshot, among):
            return None
        cached.used = next(self._uses)
        return self._near(snapshot, plan, among)

    def cached_matches(self, plan: QueryPlan, near: Near) -> list[Match] | None:
        """Return the records of rows, or None if one was not found before; never blocks."""
        contents = near.snapshot.contents
        beside: dict[int, Stored] = {}
        for row, _ in near.found:
            stored = self._found.get(contents, row)
            if stored is None:
                return None
            beside[row] = stored
        return self._made(near, beside, include_vectors=plan.include_vectors)

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
        plan = QueryPlan(
            namespace=namespace, vector=query, k=k, filter=filter, include_vectors=include_vectors
        )
        return await self.nearest(plan, None)

    async def query_many(
        self,
        namespace: str,
        queries: list[NDArray[np.float32]],
        k: int,
        filter: Filter | None,
        *,
        include_vectors: bool,
    ) -> list[list[Match]]:
        """Return what `query` does for each of them, in one go of the store's thread."""
        return [
            await self.query(namespace, query, k, filter, include_vectors=include_vectors)
            for query in queries
        ]

    async def nearest(self, plan: QueryPlan, near: Near | None) -> list[Match]:
        """Return the nearest records, best first.

        Args:
            plan: the query.
            near: what `near` returned for it: still right unless another connection has written.
        """
        with self._transaction():
            cached = self._namespace(plan.namespace)
            if near is None or near.snapshot is not cached.snapshot:
                among = self._selected(plan.namespace, cached, plan.filter)
                near = self._near(cached.snapshot, plan, among)
            return self._matches(near, include_vectors=plan.include_vectors)

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
        self._check_words()
        limit, metric = depth(k), self._table.metric
        higher = metric != "euclidean"
        with self._transaction():
            cached = self._namespace(namespace)
            rows, among = cached.snapshot.rows, self._selected(namespace, cached, filter)
            near = nearest(rows, query, limit, metric=metric, among=among)
            worded = self._worded(cached, text, among, limit)
            coherent = coherence_for(fusion, query, [row for row, _ in near], rows.vectors)
            found = fused_rows(
                near, worded, k, fusion, ids=rows.ids, higher_is_better=higher, coherence=coherent
            )
            return self._matches(Near(cached.snapshot, found))

    async def query_keywords(
        self, namespace: str, text: str, k: int, filter: Filter | None
    ) -> list[Match]:
        """Return the best texts, best first."""
        self._check_words()
        with self._transaction():
            cached = self._namespace(namespace)
            among = self._selected(namespace, cached, filter)
            found = self._worded(cached, text, among, k)
            return self._matches(Near(cached.snapshot, found))

    async def get(self, namespace: str, ids: list[str]) -> list[Record]:
        """Return the records of these ids, in their order."""
        with self._transaction():
            rows = self._select(_RECORDS, namespace, _json(ids))
        records = {record.id: record for record in map(self._record, rows)}
        return [records[name] for name in ids if name in records]

    async def scan(
        self, namespace: str, after: str, limit: int, filter: Filter | None
    ) -> list[Record]:
        """Return the first records whose ids follow; SQLite orders UTF-8, so by code point."""
        where, parameters = _where(namespace, filter, None)
        with self._transaction():
            rows = self._select(_FOLLOWING + where + _IN_ORDER, *parameters, after, limit)
        return [self._record(row) for row in rows]

    async def delete(self, namespace: str, ids: list[str] | None, filter: Filter | None) -> int:
        """Delete the records that have one of the ids, and pass the filter; return their number."""
        with self._transaction(write=True):
            where, parameters = _where(namespace, filter, ids)
            gone = self._select(_GONE + where, *parameters)
            self._select(_DELETE, _json([rid for rid, _ in gone]))
            cached = self._cache.pop(namespace, None)
        if cached and len(gone) < cached.snapshot.count:
            cached.delete([name for _, name in gone])
            self._cache[namespace] = cached
        return len(gone)

    async def count(self, namespace: str, filter: Filter | None) -> int:
        """Return how many records pass the filter."""
        where, parameters = _where(namespace, filter, None)
        with self._transaction():
            ((count,),) = self._select(_COUNT + where, *parameters)
        return count

    async def namespaces(self, prefix: str) -> list[str]:
        """Return the namespaces that hold records, sorted."""
        with self._transaction():
            names = [name for (name,) in self._select(_NAMESPACES)]
        return sorted(name for name in names if name.startswith(prefix))

    async def purge(self) -> None:
        """Write the file anew without what has been deleted, its full-text index and log included.

        An FTS5 index keeps the terms of deleted texts until it is merged into one piece; pages
        that were split keep copies of what has moved, whatever `secure_delete` says.
        Source: https://www.sqlite.org/fts5.html, section 6.9; https://www.sqlite.org/wal.html.
        """
        self._found.clear()
        with typed_errors(self._table.label):
            if self._no_hybrid is None:
                with sqlite.transaction(self._connection):
                    self._select(_MERGE)
            self._connection.execute("VACUUM")
            (busy, *_) = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if busy:
            raise StoreError(
                f"{self._table.label} has a reader that keeps its write-ahead log: purge it again"
            )

    @contextmanager
    def _transaction(self, *, write: bool = False) -> Generator[None]:
        """See one state of the file, the cache included."""
        before = self._header() if self._header else None
        with (
            typed_errors(self._table.label),
            sqlite.transaction(self._connection, write=write),
        ):
            (version,) = self._connection.execute("PRAGMA data_version").fetchone()
            if version != self._version:
                self._cache.clear()
                self._found.clear()
                self._version = version
            self._seen = before
            yield

    def _check_words(self) -> None:
        if self._no_hybrid is not None:
            raise HybridUnavailable(NAME, self._no_hybrid)

    def _worded(
        self, cached: CachedNamespace, text: str, among: Selection, limit: int
    ) -> list[tuple[int, float]]:
        """Return the rows whose texts are most relevant to the words of `text`, best first."""
        terms = lexical.terms(self._connection, query_words(text))
        kept = {term: count for term, count in terms.items() if term not in self._stop_terms}
        return lexical.ranked(self._connection, cached, kept, among, limit)

    def _select(self, sql: str, *parameters: object) -> list[Any]:
        return self._connection.execute(self._table.named(sql), parameters).fetchall()

    def _passing(self, namespace: str, filter: Filter | None) -> list[int]:
        """Return the row ids of the records that pass the filter."""
        where, parameters = _where(namespace, filter, None)
        return [rid for (rid,) in self._select(_PASSING + where, *parameters)]

    def _selected(
        self, namespace: str, cached: CachedNamespace, filter: Filter | None
    ) -> Selection:
        """Return which rows may be found."""
        return cached.selected(filter, lambda: self._passing(namespace, filter))

    def _namespace(self, namespace: str) -> CachedNamespace:
        """Return a namespace from memory, or from the file; the last used ones are kept."""
        cached = self._cache.pop(namespace, None) or self._read(namespace)
        cached.used = next(self._uses)
        used = cached.snapshot.rows.vectors.nbytes
        held = sum(other.snapshot.rows.vectors.nbytes for other in self._cache.values())
        while self._cache and held + used > self._cache_bytes:
            oldest = self._cache.pop(min(self._cache, key=lambda name: self._cache[name].used))
            held -= oldest.snapshot.rows.vectors.nbytes
        if cached.snapshot.count:
            self._cache[namespace] = cached
        return cached

    def _read(self, namespace: str) -> CachedNamespace:
        cached = CachedNamespace(self._table.metric, self._table.dimension)
        cursor = self._connection.execute(self._table.named(_ALL), (namespace,))
        while rows := cursor.fetchmany(_READ_AT_ONCE):
            matrix = self._matrix([blob for _, _, blob in rows])
            items = self._sized([rid for rid, _, _ in rows])
            cached.upsert([name for _, name, _ in rows], matrix, row_lengths(matrix), items)
        return cached

    def _items(self, namespace: str, ids: list[str]) -> list[tuple[int, int]]:
        rid_of = dict(self._select(_RIDS, namespace, _json(ids)))
        return self._sized([rid_of[name] for name in ids])

    def _sized(self, rids: list[int]) -> list[tuple[int, int]]:
        """Return the row ids, each with the number of terms that its text has."""
        if self._no_hybrid is not None:
            return [(rid, 0) for rid in rids]
        stored = dict(self._select(_SIZES, _json(rids)))
        return [(rid, lexical.size(stored.get(rid))) for rid in rids]

    def _near(self, snapshot: Snapshot[RowIds], plan: QueryPlan, among: Selection) -> Near:
        metric = self._table.metric
        found = nearest(snapshot.rows, plan.vector, plan.k, metric=metric, among=among)
        return Near(snapshot, found)

    def _matches(self, near: Near, *, include_vectors: bool = False) -> list[Match]:
        contents, beside, rest = near.snapshot.contents, dict[int, Stored](), dict[int, int]()
        for row, _ in near.found:
            stored = self._found.get(contents, row)
            if stored is None:
                rest[contents.rids[row]] = row
            else:
                beside[row] = stored
        if rest:
            for rid, text, meta in self._select(_FOUND, _json(list(rest))):
                beside[rest[rid]] = text, meta
                self._found.put(contents, rest[rid], (text, meta))
        return self._made(near, beside, include_vectors=include_vectors)

    def _made(self, near: Near, beside: dict[int, Stored], *, include_vectors: bool) -> list[Match]:
        rows, made = near.snapshot.rows, list[Match]()
        for row, score in near.found:
            text, meta = beside[row]
            vector = rows.vectors[row].tolist() if include_vectors else None
            made.append(Match(rows.ids[row], score, text, self._meta(meta), vector))
        return made

    def _record(self, row: Any) -> Record:
        name, blob, text, meta = row
        return Record(name, self._matrix([blob])[0].tolist(), text, self._meta(meta))

    def _matrix(self, blobs: list[bytes]) -> NDArray[np.float32]:
        if any(len(blob) != 4 * self._table.dimension for blob in blobs):
            raise StoreCorrupt(f"{self._table.label} is damaged: a vector has the wrong size")
        vectors = np.frombuffer(b"".join(blobs), "<f4").astype(np.float32, copy=False)
        return vectors.reshape(-1, self._table.dimension)

    def _meta(self, text: str) -> dict[str, Any]:
        try:
            return json.loads(text)
        except ValueError as error:
            raise StoreCorrupt(f"{self._table.label} is damaged: metadata is no JSON") from error


def _where(namespace: str, filter: Filter | None, ids: list[str] | None) -> Condition:
    tests, parameters = ["namespace = ?"], list[Any]([namespace])
    if ids is not None:
        tests.append("id IN (SELECT value FROM json_each(?))")
        parameters.append(_json(ids))
    if filter is not None:
        test, values = condition(filter)
        tests.append(test)
        parameters += values
    return " AND ".join(tests), parameters
