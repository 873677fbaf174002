"""The connection of `SQLiteVectorStore`: used in one thread, except for what never blocks.

The methods of a backend are coroutines that never wait: the store runs them in its thread.

Vectors are searched in memory: a namespace is read with one of its first queries, then follows this
connection's own writes, and those of others by the log of changes. Each transaction asks SQLite
whether others have written, and so does the event loop, by a connection of its own
(`ForeignWrites`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from heapq import nsmallest
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lib._util import sqlite
from lib._util.json import compact
from lib.errors import HybridUnavailable, StoreError
from lib.vector.composed import merged
from lib.vector.exact.partition import Snapshot
from lib.vector.exact.search import Selection, nearest
from lib.vector.filter import Filter
from lib.vector.records import Match, Record
from lib.vector.stores.sqlite import lexical
from lib.vector.stores.sqlite.cache import (
    CachedNamespace,
    Listing,
    NamespaceReader,
    Namespaces,
    Near,
    QueryPlan,
    RowIds,
    selected,
)
from lib.vector.stores.sqlite.changes import Changes
from lib.vector.stores.sqlite.codes import Learning, StoredCodes
from lib.vector.stores.sqlite.columns import ColumnReader
from lib.vector.stores.sqlite.file_search import FileSearch
from lib.vector.stores.sqlite.foreign import ForeignWrites
from lib.vector.stores.sqlite.loader import RIDS, Loader
from lib.vector.stores.sqlite.matches import Matches
from lib.vector.stores.sqlite.rows import TableRows
from lib.vector.stores.sqlite.schema import NAME, Table, open_table, typed_errors
from lib.vector.text.analysis import query_words
from lib.vector.text.coherence import coherence_for
from lib.vector.text.fusion import Fusion, depth, fused_rows
from lib.vector.validate import Batch

if TYPE_CHECKING:  # loaded with the first `scratch_dir`
    from lib.vector.exact.scratch import Scratch

_UPSERT = """
    INSERT INTO [table] (namespace, id, meta, text, vector) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT (namespace, id)
    DO UPDATE SET meta = excluded.meta, text = excluded.text, vector = excluded.vector
"""
_DELETE = "DELETE FROM [table] WHERE rid IN (SELECT value FROM json_each(?))"
_BY_SQL = 4  # filters that SQL decides for the time of reading the rows
_COUNTED = 1_000  # namespaces in which filters are counted
_LOOKED_AT = 8  # rows in the time that SQL takes for one
_SHARE = 16  # what was found, and columns of metadata, may take one byte for so many of vectors
_MERGE = "INSERT INTO [table_fts]([table_fts]) VALUES ('optimize')"
_NAMESPACES = "SELECT DISTINCT namespace FROM [table]"


class Database:
    """One table of one file, opened."""

    def __init__(self, table: Table, *, cache_bytes: int, scratch: Scratch | None = None) -> None:
        """Open the table, made if need be.

        Raises:
            StoreError, DimensionMismatch, MetricMismatch: as `open_table` says.
            StoreError: no scratch file can be made.
        """
        if scratch is not None:
            scratch.check()
        opened = open_table(table)
        self._table = table
        self._connection = opened.connection
        self._changes = Changes(opened.connection, table, is_kept=opened.has_changes)
        self._no_hybrid = opened.no_hybrid
        self._stop_terms = frozenset[str]()
        if self._no_hybrid is None:
            self._stop_terms = lexical.stop_terms(self._connection)
        self._cache = Namespaces(cache_bytes)
        self._most_rows = cache_bytes // (4 * table.dimension)
        self._by_sql = Counter[str]()  # filters that SQL has decided, by namespace
        self._rows = TableRows(opened.connection, table)
        self._codes = StoredCodes(self._rows, is_there=opened.has_codes)
        self._loader = Loader(self._rows, self._changes, cache_bytes // _SHARE, scratch)
        self._matches = Matches(self._rows, cache_bytes // _SHARE)
        self._version: int | None = None
        self._schema: int | None = None
        self._state = object()  # another one once the file was restored from a copy
        self._round = 0  # counts how often others were found to have written
        self._foreign = ForeignWrites(table.path) if opened.writable else None
        self._seen: int | None = None
        self._learns = opened.writable and opened.has_codes

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
        self._write(namespace, lambda _: batch)

    async def insert(self, namespace: str, batch: Batch) -> int:
        """Insert the records whose ids are not there; return their number."""
        return self._write(
            namespace,
            lambda _: batch.without(dict(self._rows.select(RIDS, namespace, compact(batch.ids)))),
        )

    async def update_meta(
        self, namespace: str, ids: list[str] | None, filter: Filter | None, changes: dict[str, Any]
    ) -> int:
        """Merge changes into the metadata of records, in one step; return their number."""

        def batch_of(cached: CachedNamespace | None) -> Batch | None:
            rids = [rid for rid, _ in self._chosen(namespace, ids, filter, cached)]
            return merged(self._rows.records_in(rids), changes)

        if ids is None:
            self._prepare(namespace, filter)
        return self._write(namespace, batch_of, same_vectors=True)

    def _write(
        self,
        namespace: str,
        batch_of: Callable[[CachedNamespace | None], Batch | None],
        *,
        same_vectors: bool = False,
    ) -> int:
        """Insert or replace the records of a batch that is made inside the transaction."""
        with self._transaction(write=True):
            batch = batch_of(self._followed(namespace))
            if batch is None or not batch.ids:
                return 0
            metas = map(compact, batch.metas)
            blobs = (row.tobytes() for row in batch.vectors.astype("<f4", copy=False))
            columns = zip(batch.ids, metas, batch.texts, blobs, strict=True)
            cached = self._taken(namespace)
            self._connection.executemany(
                self._table.named(_UPSERT), ((namespace, *values) for values in columns)
            )
            codes = not same_vectors and self._codes.wants(len(batch.ids))
            rids = self._loader.rids(namespace, batch.ids) if cached or codes else []
            if codes:
                rows = np.array(rids, np.int64)
                self._codes.write(namespace, rows, batch.vectors, batch.lengths)
            self._note(cached)
        if cached:
            items = list(zip(rids, batch.metas, strict=True))
            with suppress(StoreError):  # no room beside the file: the next query says so
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
        return self._matches.cached(near, include_vectors=plan.include_vectors)

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
            return self._matches.read(near, include_vectors=plan.include_vectors)

    async def look_up(
        self, namespace: str, reader: NamespaceReader | None
    ) -> Snapshot[RowIds] | NamespaceReader:
        """Return what the file holds of a namespace, or what reads on, after some of its rows.

        Args:
            namespace: to read.
            reader: what the last call returned; None for the first one.
        """
        with self._transaction():
            return self._look_up(namespace, reader)

    async def look_up_or_list(
        self, namespace: str, least_rows: int
    ) -> Snapshot[RowIds] | NamespaceReader | Listing:
        """Do what `look_up` does, or list the rows of a namespace that has so many at least."""
        with self._transaction():
            if self._followed(namespace) is not None:
                return self._look_up(namespace, None)
            listing = self._loader.listing(namespace, self._state)
            if len(listing.rids) >= max(1, least_rows):
                return listing
            return self._look_up(namespace, self._loader.reader(listing, self._loader.empty()))

    def _look_up(
        self, namespace: str, reader: NamespaceReader | None
    ) -> Snapshot[RowIds] | NamespaceReader:
        cached = self._followed(namespace)
        if cached is None:
            if reader is None or reader.listing.state is not self._state:
                listing = self._loader.listing(namespace, self._state)
                reader = self._loader.reader(listing, self._loader.empty())
            if self._loader.read(reader):
                return reader
            cached = reader.cached
            self._loader.follow(namespace, cached)
            cached.round = self._round
            self._cache.put(namespace, cached)
        return cached.snapshot

    def has(self, namespace: str) -> bool:
        """Return True if memory holds a namespace, be it as it was before; never blocks."""
        return namespace in self._cache

    async def search_file(self, plan: QueryPlan, search: Listing | FileSearch) -> FileSearch | None:
        """Look at some rows of a namespace; return what looks on, or has found the nearest records.

        None if something was written to the namespace meanwhile, or may have been.

        Args:
            plan: the query.
            search: what the last call returned; for the first one, the rows.
        """
        with self._transaction():
            if isinstance(search, Listing):
                search = FileSearch(plan, search, self._rows, self._codes)
            if not self._is_current(search.listing):
                return None
            search.go_on()
            return search

    async def learn(self, namespace: str, learning: Learning | None) -> Learning | None:
        """Keep codes of some rows in the file; return what goes on, None at the end.

        Ends without the other rows if something is written to the namespace meanwhile, or if
        another connection is writing now.

        Args:
            namespace: of the rows.
            learning: what the last call returned; None for the first one.

        Raises:
            StoreError: the file cannot be written now.
        """
        if not self._learns:
            return None
        self._connection.execute("PRAGMA busy_timeout = 0")  # calls wait behind this one
        try:
            with self._transaction(write=True):
                if learning is None:
                    listing = self._loader.listing(namespace, self._state)
                    learning = Learning(listing, self._codes)
                more = self._is_current(learning.listing) and learning.go_on()
        finally:
            self._connection.execute(f"PRAGMA busy_timeout = {round(1_000 * self._table.busy_s)}")
        self._look()
        return learning if more else None

    def _is_current(self, listing: Listing) -> bool:
        """Return True if nothing was written to a namespace since its rows were listed."""
        changed = self._changes.since(listing.change, listing.namespace)
        return listing.state is self._state and changed == []

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
            return self._matches.read(Near(cached.snapshot, found))

    async def query_keywords(
        self, namespace: str, text: str, k: int, filter: Filter | None
    ) -> list[Match]:
        """Return the best texts, best first."""
        self._check_words()
        with self._transaction():
            cached = self._namespace(namespace)
            among = self._selected(namespace, cached, filter)
            found = self._worded(cached, text, among, k)
            return self._matches.read(Near(cached.snapshot, found))

    async def get(self, namespace: str, ids: list[str]) -> list[Record]:
        """Return the records of these ids, in their order."""
        with self._transaction():
            return self._rows.records(namespace, ids)

    async def scan(
        self, namespace: str, after: str, limit: int, filter: Filter | None
    ) -> list[Record]:
        """Return the first records whose ids follow; SQLite orders UTF-8, so by code point."""
        with self._transaction():
            names = self._following(namespace, after, limit, filter)
            if names is not None:
                return self._rows.records(namespace, names)
            return self._rows.page(namespace, after, limit, filter)

    async def metas(
        self, namespace: str, after: str, limit: int, filter: Filter | None
    ) -> list[tuple[str, dict[str, Any]]]:
        """Return ids and metadata of the first records that pass and whose ids follow."""
        with self._transaction():
            return self._rows.metas(namespace, after, limit, filter)

    async def delete(self, namespace: str, ids: list[str] | None, filter: Filter | None) -> int:
        """Delete the records that have one of the ids, and pass the filter; return their number."""
        if ids is None:
            self._prepare(namespace, filter)
        with self._transaction(write=True):
            cached = self._taken(namespace)
            gone = self._chosen(namespace, ids, filter, cached)
            self._rows.select(_DELETE, compact([rid for rid, _ in gone]))
            self._note(cached)
        if cached and len(gone) < cached.snapshot.count:
            with suppress(StoreError):  # the same
                cached.delete([name for _, name in gone])
                self._cache.put(namespace, cached)
        self._look()
        return len(gone)

    async def count(self, namespace: str, filter: Filter | None) -> int:
        """Return how many records pass the filter."""
        self._prepare(namespace, filter)
        with self._transaction():
            cached = self._followed(namespace)
            if cached is not None:
                return self._selected(namespace, cached, filter).count
            return self._rows.count(namespace, filter)

    async def namespaces(self, prefix: str) -> list[str]:
        """Return the namespaces that hold records, sorted."""
        with self._transaction():
            names = [name for (name,) in self._rows.select(_NAMESPACES)]
        return sorted(name for name in names if name.startswith(prefix))

    async def purge(self) -> None:
        """Write the file anew without what has been deleted, its full-text index and log included.

        An FTS5 index keeps the terms of deleted texts until it is merged into one piece; pages
        that were split keep copies of what has moved, whatever `secure_delete` says.
        Source: https://www.sqlite.org/fts5.html, section 6.9; https://www.sqlite.org/wal.html.
        """
        self._cache.clear()
        self._matches.clear()
        with typed_errors(self._table.label):
            with sqlite.transaction(self._connection):
                self._changes.forget()
                if self._no_hybrid is None:
                    self._rows.select(_MERGE)
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
        self._loader.read_lengths(cached.snapshot.contents)
        terms = lexical.terms(self._connection, query_words(text))
        kept = {term: count for term, count in terms.items() if term not in self._stop_terms}
        return lexical.ranked(self._connection, cached, kept, among, limit)

    def _look(self) -> None:
        """Follow the file once more, after a write: its own commit is no news to the next query."""
        with self._transaction():
            pass

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
        reader = self._loader.read_columns(cached, filter, reader)
        if reader is None and namespace in self._cache:
            self._cache.put(namespace, cached)  # which has grown
        return reader

    def _prepare(self, namespace: str, filter: Filter | None) -> None:
        """Read a namespace in which SQL has decided some filters: that has cost as much by now."""
        if filter is None or namespace in self._cache:
            return
        self._by_sql[namespace] += 1
        if self._by_sql[namespace] > _BY_SQL:
            del self._by_sql[namespace]
            with self._transaction():
                if self._rows.count(namespace, None) <= self._most_rows:
                    with suppress(StoreError):  # then SQL goes on
                        self._namespace(namespace)
        elif len(self._by_sql) > _COUNTED:
            self._by_sql.clear()

    def _following(
        self, namespace: str, after: str, limit: int, filter: Filter | None
    ) -> list[str] | None:
        """Return the first ids that follow and pass the filter; None if SQL finds them sooner.

        SQL looks at rows in the order of their ids until enough have passed; here all that pass
        are looked at, some in the time that SQL takes for one.
        """
        cached = None if filter is None else self._followed(namespace)
        if cached is None:
            return None
        snapshot, among = cached.snapshot, self._selected(namespace, cached, filter)
        if among.mask is None or among.count**2 > _LOOKED_AT * limit * snapshot.count:
            return None
        ids = [snapshot.rows.ids[row] for row in np.flatnonzero(among.mask).tolist()]
        return nsmallest(limit, (name for name in ids if name > after))

    def _chosen(
        self,
        namespace: str,
        ids: list[str] | None,
        filter: Filter | None,
        cached: CachedNamespace | None,
    ) -> list[tuple[int, str]]:
        """Return row and id of the records that have one of the ids, and pass the filter."""
        if cached is None or filter is None or ids is not None:
            return self._rows.chosen(namespace, filter, ids)
        rows, rids = cached.snapshot.rows, cached.snapshot.contents.rids
        mask = self._selected(namespace, cached, filter).mask
        passing = range(len(rids)) if mask is None else np.flatnonzero(mask).tolist()
        return [(rids[row], rows.ids[row]) for row in passing]

    def _namespace(self, namespace: str) -> CachedNamespace:
        """Return a namespace from memory, or from the file."""
        cached = self._followed(namespace)
        if cached is None:
            cached = self._loader.empty()
            self._loader.read_all(namespace, cached)
            cached.round = self._round
            self._cache.put(namespace, cached)
        return cached

    def _followed(self, namespace: str) -> CachedNamespace | None:
        """Return a namespace if memory holds it, with what others have written to it.

        One that cannot follow, as where scratch files have no room, is let go: a query reads it
        anew and says what is wrong, and writes need it no more than deleting and counting do.
        """
        cached = self._cache.get(namespace)
        if cached is not None and cached.round != self._round:
            self._cache.drop(namespace)
            try:
                self._loader.follow(namespace, cached)
            except StoreError:
                return None
            cached.round = self._round
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
