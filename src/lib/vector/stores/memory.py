"""`InMemoryVectorStore`: exact, and the reference that the other stores are compared with."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from functools import partial
from threading import Lock
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from lib._util.contexts import AsyncStore
from lib._util.turns import turn
from lib.errors import StoreClosed
from lib.vector.contract import Capability, FilterLike
from lib.vector.exact.partition import Partition, Snapshot
from lib.vector.exact.search import Rows, Selection, effort, nearest
from lib.vector.filter import Filter, fold
from lib.vector.filter.columns import Columns, Mask
from lib.vector.filter.refusals import Refusal
from lib.vector.offload import copying, offload, offload_whole
from lib.vector.records import Match, Metric, Record, Vector
from lib.vector.text import fusion
from lib.vector.text.analysis import analyze
from lib.vector.text.bm25 import BM25
from lib.vector.validate import (
    checked_batch,
    checked_deletion,
    checked_dimension,
    checked_ids,
    checked_k,
    checked_metric,
    checked_namespace,
    checked_query,
    checked_scan,
    checked_words,
)
from lib.vector.values import copied

# What things cost beside reading one float: checking a record, reading a field, deciding on a row.
_RECORD_EFFORT, _FIELD_EFFORT, _ROW_EFFORT = 50_000, 2_000, 4
_ORDER_EFFORT = 500  # an id's share of sorting them all
_DEATH_EFFORT = 1_000
_UNKNOWN = 1 << 62  # texts and their index may be of any size, and the index may be in use
_NOTHING = Selection(mask=None, count=0)


class InMemoryVectorStore(AsyncStore):
    """Keeps everything in this process; gone with it.

    Writes take turns, a reader sees what the last finished write left. Long work runs in threads.
    """

    capabilities: ClassVar[frozenset[Capability]] = frozenset({"scan", "hybrid"})
    refusals: ClassVar[frozenset[Refusal]] = frozenset()

    def __init__(self, dimension: int | None = None, metric: Metric = "cosine") -> None:
        """Start empty.

        Args:
            dimension: of every vector; None takes that of the first one.
            metric: how nearness is measured.

        Raises:
            ValueError: the dimension is not positive, or the metric unknown.
        """
        self._dimension = None if dimension is None else checked_dimension(dimension)
        self._metric: Metric = checked_metric(metric)
        self._partitions: dict[str, Partition[_Contents]] = {}
        self._writing = asyncio.Lock()
        self._closed = False

    @property
    def metric(self) -> Metric:
        """How nearness is measured."""
        return self._metric

    @property
    def dimension(self) -> int | None:
        """The length of every vector; None until the first upsert has settled it."""
        return self._dimension

    @property
    def higher_is_better(self) -> bool:
        """Whether a higher score is a better one."""
        return self._metric != "euclidean"

    async def setup(self) -> None:
        """Do nothing: there is nothing to set up."""
        await turn()
        self._check_open()

    async def close(self) -> None:
        """Forget everything; safe to repeat. Any other call then raises StoreClosed."""
        self._closed = True
        async with self._writing:
            self._partitions = {}

    async def upsert(self, records: Sequence[Record], *, namespace: str | None = None) -> None:
        """Insert the records, each replacing as a whole what its id held; all of them or none."""
        await turn()
        self._check_open()
        name, batch = checked_namespace(namespace), list(records)
        async with self._writing:
            cost = len(batch) * _RECORD_EFFORT
            if name in self._partitions:
                cost += _moving(self._partitions[name], len(batch))
            await offload_whole(cost, partial(self._upsert, batch, name))

    async def query(
        self,
        vector: Vector,
        k: int = 5,
        *,
        filter: FilterLike = None,
        namespace: str | None = None,
        include_vectors: bool = False,
    ) -> list[Match]:
        """Return the k records nearest to `vector`, best first, ties in the order of their ids."""
        await turn()
        k = checked_k(k)
        query = self._checked_query(vector, k)
        snapshot, among = await self._selected(filter, namespace)
        if snapshot is None:
            return []
        copies = copying(min(k, among.count), len(query) if include_vectors else 0)
        scan = partial(nearest, snapshot.rows, query, k, metric=self._metric, among=among)
        return await offload(
            effort(snapshot.rows, among) + copies,
            lambda: [_match(snapshot, *one, include_vectors=include_vectors) for one in scan()],
        )

    async def query_hybrid(
        self,
        vector: Vector,
        text: str,
        k: int = 5,
        *,
        filter: FilterLike = None,
        namespace: str | None = None,
    ) -> list[Match]:
        """Return the k best by reciprocal rank in two lists: nearest vectors, best BM25 texts."""
        await turn()
        k = checked_k(k)
        query, words = self._checked_query(vector, k), checked_words(text)
        snapshot, among = await self._selected(filter, namespace)
        if snapshot is None:
            return []
        return await asyncio.to_thread(
            _fused, snapshot, query, words, k, metric=self._metric, among=among
        )

    async def get(self, ids: Sequence[str], *, namespace: str | None = None) -> list[Record]:
        """Return the records of these ids in the order asked; unknown ids are left out."""
        await turn()
        self._check_open()
        wanted, name = checked_ids(ids), checked_namespace(namespace)
        async with self._writing:
            partition = self._partitions.get(name)
            if partition is None:
                return []
            snapshot, rows = partition.snapshot, map(partition.row, wanted)
            cost = copying(len(wanted), snapshot.rows.vectors.shape[1])
            return await offload_whole(cost, partial(_records, snapshot, rows))

    async def scan(
        self, *, after: str | None = None, limit: int = 1000, namespace: str | None = None
    ) -> list[Record]:
        """Return the first `limit` records whose ids follow `after`, in the order of their ids."""
        await turn()
        self._check_open()
        (start, limit), name = checked_scan(after, limit), checked_namespace(namespace)
        async with self._writing:
            partition = self._partitions.get(name)
            if partition is None:
                return []
            snapshot, count = partition.snapshot, partition.snapshot.count
            copies = copying(min(limit, count), snapshot.rows.vectors.shape[1])
            cost = count * _ORDER_EFFORT + copies
            return await offload_whole(cost, partial(_following, snapshot, start, limit))

    async def delete(
        self,
        ids: Sequence[str] | None = None,
        *,
        filter: FilterLike = None,
        namespace: str | None = None,
    ) -> None:
        """Delete records by id, by filter, or those that meet both; unknown ids are ignored."""
        await turn()
        self._check_open()
        wanted, plan = checked_deletion(ids, filter)
        name = checked_namespace(namespace)
        async with self._writing:
            partition, mask, most = self._partitions.get(name), None, len(wanted or ())
            if plan is not None:  # ids alone are looked up without reading every row
                _, among = await self._selected(plan, name)
                mask, most = among.mask, among.count
            if partition is not None and most:
                cost = _moving(partition, most) + most * _DEATH_EFFORT
                await offload_whole(cost, partial(self._delete, name, wanted, mask))

    async def count(
        self,
        *,
        filter: FilterLike = None,
        namespace: str | None = None,
    ) -> int:
        """Return how many records of the namespace pass the filter."""
        await turn()
        self._check_open()
        _, among = await self._selected(filter, namespace)
        return among.count

    async def namespaces(self, prefix: str = "") -> list[str]:
        """Return the names of the namespaces that hold records and start so, sorted."""
        await turn()
        self._check_open()
        return sorted(name for name in self._partitions if name.startswith(prefix))

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosed("InMemoryVectorStore is closed")

    def _checked_query(self, vector: Vector, k: int) -> NDArray[np.float32]:
        self._check_open()
        return checked_query(vector, k, metric=self._metric, dimension=self._dimension)

    async def _selected(
        self, filter: FilterLike, namespace: str | None
    ) -> tuple[Snapshot[_Contents] | None, Selection]:
        """Return the namespace as it is now, and which of its rows pass the filter.

        No snapshot means that nothing passes.
        """
        plan, name = fold(Filter.parse(filter)), checked_namespace(namespace)
        partition = self._partitions.get(name)
        if partition is None or plan is False:
            return None, _NOTHING
        snapshot = partition.snapshot
        if plan is True:
            return snapshot, snapshot.living
        key = repr(plan)
        if key in snapshot.selections:
            return snapshot, snapshot.selections[key]
        contents, n = snapshot.contents, len(snapshot.rows.vectors)
        cost = contents.columns.pending(plan, n) * _FIELD_EFFORT + n * _ROW_EFFORT
        selecting = partial(contents.selected, plan, n, snapshot.living.mask)
        return snapshot, snapshot.remember(key, await offload(cost, selecting, contents.lock))

    def _upsert(self, records: list[Record], name: str) -> None:
        batch = checked_batch(records, metric=self._metric, dimension=self._dimension)
        if batch is None:
            return
        self._dimension = batch.vectors.shape[1]
        partition = self._partitions.get(name)
        if partition is None:
            partition = Partition(self._metric, self._dimension, _Contents([], []))
        items = list(zip(batch.texts, batch.metas, strict=True))
        partition.upsert(batch.ids, batch.vectors, batch.lengths, items)
        self._partitions[name] = partition

    def _delete(self, name: str, wanted: list[str] | None, mask: Mask | None) -> None:
        partition = self._partitions[name]
        if wanted is None:
            size = len(partition.snapshot.rows.vectors)
            rows = range(size) if mask is None else np.flatnonzero(mask).tolist()
        else:
            known = {row for row in map(partition.row, wanted) if row is not None}
            rows = [row for row in known if mask is None or mask[row]]
        partition.delete(rows)
        if not partition.snapshot.count:
            del self._partitions[name]


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

    def ranked(self, text: str, rows: Rows, among: Selection, limit: int) -> list[int]:
        """Return the rows whose texts are most relevant to the words of `text`, best first."""
        size = len(rows.vectors)
        with self.lock:
            self._catch_up(size)
            allowed = among.mask
            if len(self._index) > size:  # rows that came after this snapshot
                allowed = np.zeros(len(self._index), np.bool_)
                allowed[:size] = True if among.mask is None else among.mask
            found = self._index.ranked(analyze(text), limit, rows.ids, allowed=allowed)
        return [row for row, _ in found]

    def _catch_up(self, size: int) -> None:
        """Index the texts up to this row, and leave out those that have died among them."""
        for row in range(len(self._index), size):
            self._index.add(analyze(self.texts[row]))
        while self._removed < len(self._dead) and self._dead[self._removed] < len(self._index):
            self._index.remove(self._dead[self._removed])
            self._removed += 1


def _moving(partition: Partition[_Contents], rows: int) -> int:
    """Return what it costs that a write of so many rows may move others."""
    return _UNKNOWN if partition.compacting(rows) else partition.moving(rows)


def _records(snapshot: Snapshot[_Contents], rows: Iterable[int | None]) -> list[Record]:
    return [_record(snapshot, row) for row in rows if row is not None]


def _following(snapshot: Snapshot[_Contents], start: str, limit: int) -> list[Record]:
    ids, order = snapshot.rows.ids, snapshot.contents.order(snapshot)
    first = bisect_right(order, start, key=ids.__getitem__)
    return [_record(snapshot, row) for row in order[first : first + limit]]


def _fused(
    snapshot: Snapshot[_Contents],
    query: NDArray[np.float32],
    text: str,
    k: int,
    *,
    metric: Metric,
    among: Selection,
) -> list[Match]:
    rows, limit = snapshot.rows, fusion.depth(k)
    dense = [row for row, _ in nearest(rows, query, limit, metric=metric, among=among)]
    lexical = snapshot.contents.ranked(text, rows, among, limit)
    found = fusion.fused_rows([dense, lexical], k, rows.ids)
    return [_match(snapshot, *scored) for scored in found]


def _match(
    snapshot: Snapshot[_Contents], row: int, score: float, *, include_vectors: bool = False
) -> Match:
    contents = snapshot.contents
    return Match(
        id=snapshot.rows.ids[row],
        score=score,
        text=contents.texts[row],
        meta=copied(contents.metas[row]),
        vector=snapshot.rows.vectors[row].tolist() if include_vectors else None,
    )


def _record(snapshot: Snapshot[_Contents], row: int) -> Record:
    rows, contents = snapshot.rows, snapshot.contents
    meta = copied(contents.metas[row])
    return Record(rows.ids[row], rows.vectors[row].tolist(), contents.texts[row], meta)
