"""The connection of `SQLiteVectorStore`: used in one thread, except for what never blocks.

The methods of a backend are coroutines that never wait: the store runs them in its thread.

Vectors are searched in memory: a namespace is read with its first query, then follows this
connection's own writes, and those of others by the log of changes. Each transaction asks SQLite
whether others have written, and so does the event loop, by a connection of its own
(`ForeignWrites`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
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
    NamespaceReader,
    Namespaces,
    Near,
    QueryPlan,
    RowIds,
    Stored,
    selected,
)
from lib.vector.stores.sqlite.changes import Changes
from lib.vector.stores.sqlite.columns import ColumnReader
from lib.vector.stores.sqlite.filter import Condition, condition
from lib.vector.stores.sqlite.foreign import ForeignWrites
from lib.vector.stores.sqlite.schema import NAME, Table, open_table, typed_errors
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
_ALL = "SELECT json_group_array(rid) FROM [table] WHERE namespace = ?"  # from its index alone
_ROWS = """
    SELECT rid, id, vector FROM [table]
    WHERE +namespace = ? AND rid IN (SELECT value FROM json_each(?))
"""  # the plus keeps SQLite from reading the index of the namespace
_SIZES = "SELECT id, sz FROM [table_fts_docsize] WHERE id IN (SELECT value FROM json_each(?))"
_RIDS = """
    SELECT id, rid FROM [table] WHERE namespace = ? AND id IN (SELECT value FROM json_each(?))
"""
_RECORDS = """
    SELECT id, vector, text, meta FROM [table]
    WHERE namespace = ? AND id IN (SELECT value FROM json_each(?))
"""
_CHANGED = """
    SELECT rid, id, vector, meta FROM [table]
    WHERE namespace = ? AND id IN (SELECT value FROM json_each(?))
"""
_CHOSEN = _FOLLOWING = "SELECT id, vector, text, meta FROM [table] WHERE "
_METAS_IN_ORDER = "SELECT id, meta FROM [table] WHERE "
_IN_ORDER = " AND id > ? ORDER BY id LIMIT ?"
_FOUND = "SELECT rid, text, meta FROM [table] WHERE rid IN (SELECT value FROM json_each(?))"
_DELETE = "DELETE FROM [table] WHERE rid IN (SELECT value FROM json_each(?))"
_GONE = "SELECT rid, id FROM [table] WHERE "
_METAS = """
    SELECT json_group_array(rid), '[' || group_concat(meta) || ']' FROM [table]
    WHERE rid IN (SELECT value FROM json_each(?))
"""  # one row, since each one more may wait for the interpreter
_COUNT = "SELECT count(*) FROM [table] WHERE "
_READ_AT_ONCE = 2_000
_METAS_AT_ONCE = 1_000
_UNREAD: Mapping[str, Any] = {}
_SHARE = 16  # what was found, and columns of metadata, may take one byte for so many of vectors
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
        self._changes = Changes(opened.connection, table, is_kept=opened.has_changes)
        self._no_hybrid = opened.no_hybrid
        self._stop_terms = frozenset[str]()
        if self._no_hybrid is None:
            self._stop_terms = lexical.stop_terms(self._connection)
        self._cache = Namespaces(cache_bytes)
        self._column_bytes = cache_bytes // _SHARE
        self._found = FoundRows(cache_bytes // _SHARE)
        self._version: int | None = None
        self._schema: int | None = None
        self._state = object()  # another one once the file was restored from a copy
        self._round = 0  # counts how often others were found to have written
        self._foreign = ForeignWrites(table.path) if opened.writable else None
        self._seen: int | None = None

    def close(self) -> None:
        """Close the connections."""
        self._cache.clear()
        if self._foreign is not None:
            self._foreign.close()
        self._connection.close()

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
            cached = self._taken(namespace)
            self._connection.executemany(
                self._table.named(_UPSERT), ((namespace, *values) for values in columns)
            )
            items = self._items(namespace, batch) if cached else []
            self._note(cached)
        if cached:
            cached.upsert(batch.ids, batch.vectors, batch.lengths, items)
            self._cache.put(namespace, cached)
        self._look()
        return len(batch.ids)

    def current(self, namespace: str) -> Snapshot[RowIds] | None:
        """Return what memory holds of a namespace, or None if the file may hold something else.

        Never blocks: for the event loop, while no write of this store is under way there.
        """
        if self._foreign is None or self._seen is None or self._foreign.version() != self._seen:
            return None
        cached = self._cache.get(namespace)
        return None if cached is None or cached.round != self._round else cached.snapshot

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
            near: what it has found a moment ago: right unless these rows have changed since.
        """
        with self._transaction():
            cached = self._namespace(plan.namespace)
            if near is None or not cached.still_has(near):
                among = self._selected(plan.namespace, cached, plan.filter)
                near = plan.search(cached.snapshot, among, self._table.metric)
            return self._matches(near, include_vectors=plan.include_vectors)

    async def look_up(
        self, namespace: str, reader: NamespaceReader | None
    ) -> Snapshot[RowIds] | NamespaceReader:
        """Return what the file holds of a namespace, or what reads on, after some of its rows.

        Args:
            namespace: to read.
            reader: what the last call returned; None for the first one.
        """
        with self._transaction():
            cached = self._followed(namespace)
            if cached is None:
                if reader is None or reader.state is not self._state:
                    reader = self._reader(namespace, self._empty())
                if self._read(reader):
                    return reader
                cached = reader.cached
                self._follow(namespace, cached)
                self._cache.put(namespace, cached)
            return cached.snapshot

    async def read_columns(
        self, plan: QueryPlan, reader: ColumnReader | None
    ) -> ColumnReader | None:
        """Read some rows of the columns that a query needs; return what reads on, None at the end.

        Args:
            plan: the query.
            reader: what the last call returned; None for the first one.
        """
        with self._transaction():
            cached = self._namespace(plan.namespace)
            return self._read_columns(plan.namespace, cached, plan.filter, reader)

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

    async def metas(
        self, namespace: str, after: str, limit: int, filter: Filter | None
    ) -> list[tuple[str, dict[str, Any]]]:
        """Return ids and metadata of the first records that pass and whose ids follow."""
        where, parameters = _where(namespace, filter, None)
        with self._transaction():
            rows = self._select(_METAS_IN_ORDER + where + _IN_ORDER, *parameters, after, limit)
        return [(name, self._json(meta)) for name, meta in rows]

    async def delete(self, namespace: str, ids: list[str] | None, filter: Filter | None) -> int:
        """Delete the records that have one of the ids, and pass the filter; return their number."""
        with self._transaction(write=True):
            cached = self._taken(namespace)
            gone = self._gone(namespace, ids, filter, cached)
            self._cache.drop(namespace)  # which may have read columns, and so put it back
            self._select(_DELETE, _json([rid for rid, _ in gone]))
            self._note(cached)
        if cached and len(gone) < cached.snapshot.count:
            cached.delete([name for _, name in gone])
            self._cache.put(namespace, cached)
        self._look()
        return len(gone)

    async def count(self, namespace: str, filter: Filter | None) -> int:
        """Return how many records pass the filter."""
        with self._transaction():
            cached = self._followed(namespace)
            if cached is not None:
                return self._selected(namespace, cached, filter).count
            where, parameters = _where(namespace, filter, None)
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
        self._cache.clear()
        self._found.clear()
        with typed_errors(self._table.label):
            with sqlite.transaction(self._connection):
                self._changes.forget()
                if self._no_hybrid is None:
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
        before = None if self._foreign is None else self._foreign.version()
        with (
            typed_errors(self._table.label),
            sqlite.transaction(self._connection, write=write),
        ):
            (version,) = self._connection.execute("PRAGMA data_version").fetchone()
            if version != self._version:
                self._version, self._round = version, self._round + 1
                self._forget_restored()
            self._seen = before
            yield

    def _forget_restored(self) -> None:
        """Forget what memory holds if the file was restored, which numbers changes once more.

        A backup or VACUUM, which writes a whole file, changes the version of its schema.
        Source: https://www.sqlite.org/pragma.html#pragma_schema_version.
        """
        (schema,) = self._connection.execute("PRAGMA schema_version").fetchone()
        if schema != self._schema:
            self._schema, self._state = schema, object()
            self._cache.clear()

    def _check_words(self) -> None:
        if self._no_hybrid is not None:
            raise HybridUnavailable(NAME, self._no_hybrid)

    def _worded(
        self, cached: CachedNamespace, text: str, among: Selection, limit: int
    ) -> list[tuple[int, float]]:
        """Return the rows whose texts are most relevant to the words of `text`, best first."""
        self._read_lengths(cached.snapshot.contents)
        terms = lexical.terms(self._connection, query_words(text))
        kept = {term: count for term, count in terms.items() if term not in self._stop_terms}
        return lexical.ranked(self._connection, cached, kept, among, limit)

    def _look(self) -> None:
        """Follow the file once more, after a write: its own commit is no news to the next query."""
        with self._transaction():
            pass

    def _select(self, sql: str, *parameters: object) -> list[Any]:
        return self._connection.execute(self._table.named(sql), parameters).fetchall()

    def _selected(
        self, namespace: str, cached: CachedNamespace, filter: Filter | None
    ) -> Selection:
        """Return which rows may be found."""
        reader = self._read_columns(namespace, cached, filter, None)
        while reader is not None:
            reader = self._read_columns(namespace, cached, filter, reader)
        among = selected(cached.snapshot, filter)
        if among is None:  # never an empty or a full selection: `delete` may ask
            raise StoreError(f"{self._table.label}: a column of the filter was not read")
        return among

    def _read_columns(
        self,
        namespace: str,
        cached: CachedNamespace,
        filter: Filter | None,
        reader: ColumnReader | None,
    ) -> ColumnReader | None:
        """Read some rows of the columns that a filter needs; see `read_columns`."""
        contents, version = cached.snapshot.contents, cached.snapshot.version
        if reader is None or reader.columns is not contents.columns:
            reader = contents.columns.reader(filter)
        if reader is None:
            return None
        reader.extend(self._metas(contents.rids[reader.row : reader.row + _METAS_AT_ONCE].tolist()))
        if reader.row < len(contents.rids):
            return reader
        reader.finish(version)
        self._cache.put(namespace, cached)
        return None

    def _metas(self, rids: list[int]) -> list[dict[str, Any]]:
        """Return the metadata of rows; of those that are no longer there, none."""
        ((found, metas),) = self._select(_METAS, _json(rids))
        there = dict(zip(json.loads(found), self._json(metas or "[]"), strict=True))
        return [there.get(rid, {}) for rid in rids]

    def _gone(
        self,
        namespace: str,
        ids: list[str] | None,
        filter: Filter | None,
        cached: CachedNamespace | None,
    ) -> list[tuple[int, str]]:
        """Return the row and the id of the records to be deleted."""
        if cached is None or filter is None:
            where, parameters = _where(namespace, filter, ids)
            return self._select(_GONE + where, *parameters)
        rows, rids = cached.snapshot.rows, cached.snapshot.contents.rids
        mask = self._selected(namespace, cached, filter).mask
        passing = range(len(rids)) if mask is None else np.flatnonzero(mask).tolist()
        wanted = None if ids is None else set(ids)
        return [
            (rids[row], rows.ids[row])
            for row in passing
            if wanted is None or rows.ids[row] in wanted
        ]

    def _namespace(self, namespace: str) -> CachedNamespace:
        """Return a namespace from memory, or from the file."""
        cached = self._followed(namespace)
        if cached is None:
            cached = self._empty()
            self._read_all(namespace, cached)
            self._cache.put(namespace, cached)
        return cached

    def _empty(self) -> CachedNamespace:
        return CachedNamespace(self._table.metric, self._table.dimension, self._column_bytes)

    def _followed(self, namespace: str) -> CachedNamespace | None:
        """Return a namespace if memory holds it, with what others have written to it."""
        cached = self._cache.get(namespace)
        if cached is not None and cached.round != self._round:
            self._cache.drop(namespace)
            self._follow(namespace, cached)
            self._cache.put(namespace, cached)
        return cached

    def _taken(self, namespace: str) -> CachedNamespace | None:
        """Return a namespace that will be written to; put it back once it was."""
        cached = self._followed(namespace)
        self._cache.drop(namespace)
        return cached

    def _note(self, cached: CachedNamespace | None) -> None:
        """Keep the log of changes short; a namespace in memory knows all of it."""
        if cached:
            cached.change = self._changes.last()
        self._changes.trim()

    def _follow(self, namespace: str, cached: CachedNamespace) -> None:
        """Do in memory what others have done in the file."""
        changed = self._changes.since(cached.change, namespace)
        if changed is None:
            cached.empty()
            self._read_all(namespace, cached)
            return
        rows = self._select(_CHANGED, namespace, _json(changed)) if changed else []
        there = {name for _, name, _, _ in rows}
        cached.delete([name for name in changed if name not in there])
        if rows:
            items = [(rid, self._json(meta)) for rid, _, _, meta in rows]
            matrix = self._matrix([blob for _, _, blob, _ in rows])
            cached.upsert([name for _, name, _, _ in rows], matrix, row_lengths(matrix), items)
        cached.change, cached.round = self._changes.last(), self._round

    def _read_all(self, namespace: str, cached: CachedNamespace) -> None:
        """Read all rows of a namespace that is empty in memory."""
        reader = self._reader(namespace, cached)
        while self._read(reader):
            pass
        cached.round = self._round

    def _reader(self, namespace: str, cached: CachedNamespace) -> NamespaceReader:
        """Return what reads the rows that there are now; changes from now on are to be followed."""
        cached.change = self._changes.last()
        ((listed,),) = self._select(_ALL, namespace)
        rids = sorted(json.loads(listed))  # the order in which the file has the rows
        cached.reserve(len(rids))
        return NamespaceReader(namespace, cached, rids, self._state)

    def _read(self, reader: NamespaceReader) -> bool:
        """Read some rows; return True if more follow."""
        some = reader.rids[reader.read : reader.read + _READ_AT_ONCE]
        rows = self._select(_ROWS, reader.namespace, _json(some))
        matrix = self._matrix([blob for _, _, blob in rows])
        items = [(rid, _UNREAD) for rid, _, _ in rows]
        reader.cached.upsert([name for _, name, _ in rows], matrix, row_lengths(matrix), items)
        reader.read += len(some)
        return reader.read < len(reader.rids)

    def _items(self, namespace: str, batch: Batch) -> list[tuple[int, Mapping[str, Any]]]:
        rid_of = dict(self._select(_RIDS, namespace, _json(batch.ids)))
        return [(rid_of[name], meta) for name, meta in zip(batch.ids, batch.metas, strict=True)]

    def _read_lengths(self, contents: RowIds) -> None:
        """Read how many terms the texts have, of rows that were not searched by words before."""
        rids, lengths = contents.rids, contents.lengths
        while len(lengths) < len(rids):
            some = rids[len(lengths) : len(lengths) + _READ_AT_ONCE].tolist()
            stored = dict(self._select(_SIZES, _json(some)))
            lengths.extend(lexical.size(stored.get(rid)) for rid in some)

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
            made.append(Match(rows.ids[row], score, text, self._json(meta), vector))
        return made

    def _record(self, row: Any) -> Record:
        name, blob, text, meta = row
        return Record(name, self._matrix([blob])[0].tolist(), text, self._json(meta))

    def _matrix(self, blobs: list[bytes]) -> NDArray[np.float32]:
        if any(len(blob) != 4 * self._table.dimension for blob in blobs):
            raise StoreCorrupt(f"{self._table.label} is damaged: a vector has the wrong size")
        vectors = np.frombuffer(b"".join(blobs), "<f4").astype(np.float32, copy=False)
        return vectors.reshape(-1, self._table.dimension)

    def _json(self, text: str) -> Any:
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
