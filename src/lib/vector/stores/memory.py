"""`InMemoryVectorStore`: exact, and the reference that the other stores are compared with."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import islice
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lib.vector.exact.partition import Partition, Snapshot
from lib.vector.exact.search import Selection, effort, nearest, row_lengths
from lib.vector.facets import Tally
from lib.vector.filter import Field, Filter
from lib.vector.filter.columns import Columns, Mask
from lib.vector.hybrid import HybridBackedStore
from lib.vector.offload import copying, offload, offload_whole
from lib.vector.records import Facet, Match, Metric, Record
from lib.vector.text.analysis import analyze, query_words
from lib.vector.text.bm25 import BM25
from lib.vector.text.coherence import coherence_for
from lib.vector.text.fusion import Fusion, depth, fused_rows
from lib.vector.validate import Batch
from lib.vector.values import copied

# What things cost beside reading one float: storing a record, reading a field, deciding on a row.
_UPSERT_EFFORT, _FIELD_EFFORT, _ROW_EFFORT = 10_000, 2_000, 4
_ORDER_EFFORT = 500  # an id's share of sorting them all
_DEATH_EFFORT = 1_000
_UNKNOWN = 1 << 62  # texts and their index may be of any size, and the index may be in use
_NOTHING = Selection(mask=None, count=0)


class InMemoryVectorStore(HybridBackedStore["_Namespaces"]):
    """Keeps everything in this process; gone with it.

    Writes run one at a time, a reader sees the state of the last finished write. Long work runs in
    threads.
    """

    def __init__(self, dimension: int | None = None, metric: Metric = "cosine") -> None:
        """Start empty.

        Args:
            dimension: of every vector; None takes that of the first one.
            metric: how nearness is measured.

        Raises:
            ValueError: the dimension is not positive, or the metric unknown.
        """
        super().__init__(dimension, metric)

    async def open_backend(self) -> _Namespaces:
        """Start without namespaces."""
        return _Namespaces(self._metric)

    async def close_backend(self, backend: _Namespaces) -> None:
        """Drop everything."""
        backend.clear()

    async def _query(
        self,
        namespace: str,
        query: NDArray[np.float32],
        k: int,
        filter: Filter | None,
        *,
        include_vectors: bool,
    ) -> list[Match]:
        # Without the detour of `_run`, which takes as long as a small search.
        with self._closing:
            backend = self._backend or await self._opened()
            return await backend.query(namespace, query, k, filter, include_vectors=include_vectors)

    async def _facet(
        self, namespace: str, field: Field, filter: Filter | None, limit: int
    ) -> Facet:
        return await self._run(lambda backend: backend.facet(namespace, field, filter, limit))


class _Namespaces:
    """The backend: a partition for each namespace that holds records."""

    def __init__(self, metric: Metric) -> None:
        self._metric: Metric = metric
        self._partitions: dict[str, Partition[_Contents]] = {}
        self._writing = asyncio.Lock()

    def clear(self) -> None:
        """Drop all records."""
        self._partitions = {}

    async def upsert(self, namespace: str, batch: Batch) -> None:
        """Insert or replace the records of a batch, all of them or none."""
        async with self._writing:
            await self._put(namespace, batch)

    async def insert(self, namespace: str, batch: Batch) -> int:
        """Insert the records whose ids are not there; return their number."""
        async with self._writing:
            partition = self._partitions.get(namespace)
            if partition is not None:
                batch = batch.without(
                    {name for name in batch.ids if partition.row(name) is not None}
                )
            await self._put(namespace, batch)
            return len(batch.ids)

    async def update_meta(
        self, namespace: str, ids: list[str] | None, filter: Filter | None, changes: dict[str, Any]
    ) -> int:
        """Merge changes into the metadata of records, in one step; return their number."""
        async with self._writing:
            partition, mask, most = await self._chosen(namespace, ids, filter)
            if partition is None or not most:
                return 0
            cost = copying(most, partition.snapshot.rows.vectors.shape[1])
            rows = _rows(partition, ids, mask)
            batch = await offload(cost, partial(_changed, partition.snapshot, rows, changes))
            await self._put(namespace, batch)
            return len(batch.ids)

    async def _put(self, namespace: str, batch: Batch) -> None:
        """Insert or replace, under the lock."""
        cost = batch.vectors.size + len(batch.ids) * _UPSERT_EFFORT
        if namespace in self._partitions:
            cost += _moving(self._partitions[namespace], len(batch.ids))
        if batch.ids:
            await offload_whole(cost, partial(self._upsert, namespace, batch))

    async def query(
        self,
        namespace: str,
        query: NDArray[np.float32],
        k: int,
        filter: Filter | None,
        *,
        include_vectors: bool,
    ) -> list[Match]:
        """Return the k records nearest to the query, best first, ties in the order of their ids."""
        snapshot, among = await self._selected(namespace, filter)
        if snapshot is None:
            return []
        copies = copying(min(k, among.count), len(query) if include_vectors else 0)
        scan = partial(nearest, snapshot.rows, query, k, metric=self._metric, among=among)
        return await offload(
            effort(snapshot.rows, among) + copies,
            lambda: _matches(snapshot, scan(), include_vectors=include_vectors),
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
        """Return what `query` does for each of them, all in one state of the namespace."""
        snapshot, among = await self._selected(namespace, filter)
        if snapshot is None:
            return [[] for _ in queries]

        def search(query: NDArray[np.float32]) -> list[Match]:
            found = nearest(snapshot.rows, query, k, metric=self._metric, among=among)
            return _matches(snapshot, found, include_vectors=include_vectors)

        floats = snapshot.rows.vectors.shape[1] if include_vectors else 0
        cost = effort(snapshot.rows, among) + copying(min(k, among.count), floats)
        return await offload(cost * len(queries), lambda: [search(query) for query in queries])

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
        """Return the k best of two lists: nearest vectors, best BM25 texts."""
        snapshot, among = await self._selected(namespace, filter)
        if snapshot is None:
            return []
        return await asyncio.to_thread(
            _fused, snapshot, query, text, k, fusion, metric=self._metric, among=among
        )

    async def query_keywords(
        self, namespace: str, text: str, k: int, filter: Filter | None
    ) -> list[Match]:
        """Return the k best BM25 texts, best first, ties in the order of their ids."""
        snapshot, among = await self._selected(namespace, filter)
        if snapshot is None:
            return []
        return await asyncio.to_thread(_worded, snapshot, text, k, among)

    async def get(self, namespace: str, ids: list[str]) -> list[Record]:
        """Return the records of these ids, in their order."""
        async with self._writing:
            partition = self._partitions.get(namespace)
            if partition is None:
                return []
            snapshot, rows = partition.snapshot, map(partition.row, ids)
            cost = copying(len(ids), snapshot.rows.vectors.shape[1])
            return await offload_whole(cost, partial(_records, snapshot, rows))

    async def scan(
        self, namespace: str, after: str, limit: int, filter: Filter | None
    ) -> list[Record]:
        """Return the first records that pass and whose ids follow `after`, in their order."""
        async with self._writing:
            snapshot, among = await self._selected(namespace, filter)
            if snapshot is None:
                return []
            count = snapshot.count
            copies = copying(min(limit, count), snapshot.rows.vectors.shape[1])
            cost = count * _ORDER_EFFORT + copies
            return await offload_whole(cost, partial(_following, snapshot, after, limit, among))

    async def delete(self, namespace: str, ids: list[str] | None, filter: Filter | None) -> int:
        """Delete the records that have one of the ids, and pass the filter; return their number."""
        async with self._writing:
            partition, mask, most = await self._chosen(namespace, ids, filter)
            if partition is None or not most:
                return 0
            cost = _moving(partition, most) + most * _DEATH_EFFORT
            return await offload_whole(cost, partial(self._delete, namespace, ids, mask))

    async def _chosen(
        self, namespace: str, ids: list[str] | None, filter: Filter | None
    ) -> tuple[Partition[_Contents] | None, Mask | None, int]:
        """Return the namespace, which rows pass, and how many may be meant at most."""
        partition = self._partitions.get(namespace)
        if filter is None and ids is not None:  # which are found without reading every row
            return partition, None, len(ids)
        _, among = await self._selected(namespace, filter)
        return partition, among.mask, among.count

    async def count(self, namespace: str, filter: Filter | None) -> int:
        """Return how many records of the namespace pass the filter."""
        _, among = await self._selected(namespace, filter)
        return among.count

    async def facet(self, namespace: str, field: Field, filter: Filter | None, limit: int) -> Facet:
        """Return the values of a field; reads metadata alone, and copies nothing."""
        tally = Tally(field)
        snapshot, among = await self._selected(namespace, filter)
        if snapshot is None:
            return tally.facet(limit)
        mask, metas = among.mask, snapshot.contents.metas
        rows = range(len(snapshot.rows.vectors)) if mask is None else np.flatnonzero(mask).tolist()

        def counted() -> Facet:
            tally.add(metas[row] for row in rows)
            return tally.facet(limit)

        return await offload(len(rows) * _FIELD_EFFORT, counted)

    async def namespaces(self, prefix: str) -> list[str]:
        """Return the names of the namespaces that hold records and start with it, sorted."""
        return sorted(name for name in list(self._partitions) if name.startswith(prefix))

    async def _selected(
        self, namespace: str, filter: Filter | None
    ) -> tuple[Snapshot[_Contents] | None, Selection]:
        """Return the namespace as it is now, and which of its rows pass the filter.

        The snapshot is None if there is no such namespace.
        """
        partition = self._partitions.get(namespace)
        if partition is None:
            return None, _NOTHING
        snapshot = partition.snapshot
        if filter is None:
            return snapshot, snapshot.living
        key = repr(filter)
        if key in snapshot.selections:
            return snapshot, snapshot.selections[key]
        contents, n = snapshot.contents, len(snapshot.rows.vectors)
        cost = contents.columns.pending(filter, n) * _FIELD_EFFORT + n * _ROW_EFFORT
        selecting = partial(contents.selected, filter, n, snapshot.living.mask)
        return snapshot, snapshot.remember(key, await offload(cost, selecting, contents.lock))

    def _upsert(self, namespace: str, batch: Batch) -> None:
        partition = self._partitions.get(namespace)
        if partition is None:
            partition = Partition(self._metric, batch.vectors.shape[1], _Contents([], []))
        items = list(zip(batch.texts, batch.metas, strict=True))
        partition.upsert(batch.ids, batch.vectors, batch.lengths, items)
        self._partitions[namespace] = partition

    def _delete(self, namespace: str, ids: list[str] | None, mask: Mask | None) -> int:
        partition = self._partitions[namespace]
        rows = _rows(partition, ids, mask)
        partition.delete(rows)
        if not partition.snapshot.count:
            del self._partitions[namespace]
        return len(rows)


class _Contents:
    """Texts and metadata of a namespace, with a BM25 index and filter columns made on demand.

    Attributes:
        lock: to be held while `columns` are read.
        columns: the metadata, by field.
    """

    def __init__(self, texts: list[str], metas: list[dict[str, Any]]) -> None:
        self.texts, self.metas = texts, metas
        self.columns = Columns(lambda start, end: metas[start:end])
        self.lock = Lock()
        self._index = BM25()
        self._order = (-1, list[int]())  # as of which version
        self._dead: list[int] = []
        self._removed = 0  # how many of the dead the index has left out

    def extend(self, items: Sequence[tuple[str, dict[str, Any]]]) -> None:
        """Append the texts and metadata of the rows that follow."""
        self.texts.extend(text for text, _ in items)
        self.metas.extend(meta for _, meta in items)

    def bury(self, rows: Sequence[int]) -> None:
        """Learn that rows are dead."""
        self._dead.extend(rows)

    def moved(self, kept: NDArray[np.intp]) -> _Contents:
        """Return the contents of these rows alone, in their order."""
        rows = kept.tolist()
        contents = _Contents([self.texts[row] for row in rows], [self.metas[row] for row in rows])
        with self.lock:
            contents._index = self._index.compacted(kept[kept < len(self._index)])
        return contents

    def order(self, snapshot: Snapshot[_Contents]) -> list[int]:
        """Return the living rows in the order of their ids; remembered for the next page."""
        version, rows = self._order
        if version != snapshot.version:
            mask, size = snapshot.living.mask, len(snapshot.rows.vectors)
            living = range(size) if mask is None else np.flatnonzero(mask).tolist()
            rows = sorted(living, key=snapshot.rows.ids.__getitem__)
            self._order = (snapshot.version, rows)
        return rows

    def selected(self, filter: Filter, n: int, living: Mask | None) -> Selection:
        """Return which of the first n rows are alive and pass the filter; under the lock."""
        passing = self.columns.mask(filter, n)
        return Selection.of(passing if living is None else passing & living)

    def ranked(
        self, text: str, snapshot: Snapshot[_Contents], among: Selection, limit: int
    ) -> list[tuple[int, float]]:
        """Return the rows whose texts are most relevant to the words of `text`, best first."""
        size = len(snapshot.rows.vectors)
        with self.lock:
            self._catch_up(snapshot)
            allowed = among.mask
            if len(self._index) > size:  # rows that came after this snapshot
                allowed = np.zeros(len(self._index), np.bool_)
                allowed[:size] = True if among.mask is None else among.mask
            terms = analyze(query_words(text))
            return self._index.ranked(terms, limit, snapshot.rows.ids, allowed=allowed)

    def _catch_up(self, snapshot: Snapshot[_Contents]) -> None:
        """Index the texts of a snapshot, and leave out those that have died before it."""
        size = len(snapshot.rows.vectors)
        for row in range(len(self._index), size):
            self._index.add(analyze(self.texts[row]))
        for row in self._dead[self._removed :]:
            if row >= size or snapshot.deaths[row] > snapshot.version:
                return  # it is alive there: a write has replaced it meanwhile
            self._index.remove(row)
            self._removed += 1


def _moving(partition: Partition[_Contents], rows: int) -> int:
    """Return what it costs that a write of so many rows may move others."""
    return _UNKNOWN if partition.compacting(rows) else partition.moving(rows)


def _rows(partition: Partition[_Contents], ids: list[str] | None, mask: Mask | None) -> list[int]:
    """Return the living rows that have one of the ids and pass."""
    if ids is None:
        size = len(partition.snapshot.rows.vectors)
        return list(range(size)) if mask is None else np.flatnonzero(mask).tolist()
    there = {row for row in map(partition.row, ids) if row is not None}
    return [row for row in there if mask is None or mask[row]]


def _changed(snapshot: Snapshot[_Contents], rows: list[int], changes: dict[str, Any]) -> Batch:
    """Return these rows with changes to their metadata."""
    vectors, contents = snapshot.rows.vectors[rows], snapshot.contents
    return Batch(
        ids=[snapshot.rows.ids[row] for row in rows],
        vectors=vectors,
        lengths=row_lengths(vectors),
        texts=[contents.texts[row] for row in rows],
        metas=[{**contents.metas[row], **copied(changes)} for row in rows],
    )


def _records(snapshot: Snapshot[_Contents], rows: Iterable[int | None]) -> list[Record]:
    return [_record(snapshot, row) for row in rows if row is not None]


def _following(
    snapshot: Snapshot[_Contents], start: str, limit: int, among: Selection
) -> list[Record]:
    ids, order = snapshot.rows.ids, snapshot.contents.order(snapshot)
    first = bisect_right(order, start, key=ids.__getitem__)
    if among.count == snapshot.count:
        return [_record(snapshot, row) for row in order[first : first + limit]]
    mask = among.mask
    passing = (row for row in order[first:] if mask is None or mask[row])
    return [_record(snapshot, row) for row in islice(passing, limit)]


def _fused(
    snapshot: Snapshot[_Contents],
    query: NDArray[np.float32],
    text: str,
    k: int,
    fusion: Fusion,
    *,
    metric: Metric,
    among: Selection,
) -> list[Match]:
    rows, limit, higher = snapshot.rows, depth(k), metric != "euclidean"
    near = nearest(rows, query, limit, metric=metric, among=among)
    worded = snapshot.contents.ranked(text, snapshot, among, limit)
    coherent = coherence_for(fusion, query, [row for row, _ in near], rows.vectors)
    found = fused_rows(
        near, worded, k, fusion, ids=rows.ids, higher_is_better=higher, coherence=coherent
    )
    return _matches(snapshot, found)


def _worded(snapshot: Snapshot[_Contents], text: str, k: int, among: Selection) -> list[Match]:
    return _matches(snapshot, snapshot.contents.ranked(text, snapshot, among, k))


def _matches(
    snapshot: Snapshot[_Contents],
    found: Iterable[tuple[int, float]],
    *,
    include_vectors: bool = False,
) -> list[Match]:
    """Return what was found, by row and score, with copies of the metadata."""
    vectors, ids = snapshot.rows.vectors, snapshot.rows.ids
    texts, metas = snapshot.contents.texts, snapshot.contents.metas
    return [
        Match(
            ids[row],
            score,
            texts[row],
            copied(metas[row]),
            vectors[row].tolist() if include_vectors else None,
        )
        for row, score in found
    ]


def _record(snapshot: Snapshot[_Contents], row: int) -> Record:
    rows, contents = snapshot.rows, snapshot.contents
    meta = copied(contents.metas[row])
    return Record(rows.ids[row], rows.vectors[row].tolist(), contents.texts[row], meta)
