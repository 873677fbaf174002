"""Namespaces of the file in memory, valid until the file changes, and queries over them."""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from sys import getsizeof
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lib.vector.exact.partition import Partition, Snapshot
from lib.vector.exact.search import Selection, effort, nearest, row_lengths
from lib.vector.filter import Filter
from lib.vector.offload import copying
from lib.vector.records import Metric
from lib.vector.stores.sqlite.columns import FieldColumns

if TYPE_CHECKING:  # loaded with the first `scratch_dir`
    from lib.vector.exact.scratch import Scratch


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryPlan:
    """A query.

    Attributes:
        namespace: where to search.
        vector: d floats.
        k: how many records at most.
        filter: what they have to pass, folded; None if all do.
        include_vectors: True returns them with their vectors.
    """

    namespace: str
    vector: NDArray[np.float32]
    k: int
    filter: Filter | None
    include_vectors: bool

    def effort(self, snapshot: Snapshot[RowIds], among: Selection) -> int:
        """Return what it costs to answer it from memory, see `lib.vector.offload`."""
        floats = len(self.vector) if self.include_vectors else 0
        return effort(snapshot.rows, among) + copying(min(self.k, among.count), floats)

    def search(self, snapshot: Snapshot[RowIds], among: Selection, metric: Metric) -> Near:
        """Return the nearest of the rows that may be found."""
        found = nearest(snapshot.rows, self.vector, self.k, metric=metric, among=among)
        return Near(snapshot, found)


@dataclass(frozen=True, slots=True)
class Near:
    """The nearest rows of a namespace with their scores, best first."""

    snapshot: Snapshot[RowIds]
    found: list[tuple[int, float]]


Stored: TypeAlias = tuple[str, str]
"""A text, and its metadata as JSON."""

_ENTRY_BYTES: Final = 320  # what Python keeps beside the two strings
_LONGEST_META: Final = 2_048  # characters, so that decoding some tens takes less than a millisecond
_COLLECTED_BYTES: Final = 1 << 26  # of vectors, before they go to a disk
_numbers: Final = count()


class RowIds:
    """The columns beside each vector: its row in the file, its count of terms, its metadata.

    Attributes:
        number: tells these rows from those of all others.
        lengths: the counts of terms, of the first rows; the others were not read yet.
        columns: the metadata by field, of those fields that filters have named.
    """

    def __init__(self, rids: array[int], lengths: array[int], columns: FieldColumns) -> None:
        """Keep the rows in the file, with the counts of the first of them, and all columns."""
        self.rids: array[int] = rids
        self.lengths: array[int] = lengths
        self.columns = columns
        self.number: int = next(_numbers)

    def extend(self, items: Sequence[tuple[int, Mapping[str, Any]]]) -> None:
        """Append the rows that follow: their places in the file, and their metadata."""
        self.rids.extend(rid for rid, _ in items)
        self.columns.extend([meta for _, meta in items])

    def bury(self, rows: Sequence[int]) -> None:
        """Do nothing: the snapshot tells which rows are alive."""

    def moved(self, kept: NDArray[np.intp]) -> RowIds:
        """Return what stands beside these rows alone."""
        counted = kept[: np.searchsorted(kept, len(self.lengths))]
        return RowIds(
            array("q", np.array(self.rids)[kept].tobytes()),
            array("q", np.array(self.lengths, np.int64)[counted].tobytes()),
            self.columns.moved(kept),
        )


class FoundRows:
    """Texts and metadata of found rows; those found first are dropped first.

    A row never changes: what replaces it in its namespace is another one. One thread puts rows in;
    others may look meanwhile.
    """

    def __init__(self, most_bytes: int) -> None:
        """Start empty, and keep about so many bytes at most."""
        self._most_bytes, self._bytes = most_bytes, 0
        # A plain dict looks past all that was taken out of it, each time the first key is read.
        self._rows: OrderedDict[tuple[int, int], Stored] = OrderedDict()

    def get(self, namespace: RowIds, row: int) -> Stored | None:
        """Return what stands beside a row, if it is cached."""
        return self._rows.get((namespace.number, row))

    def put(self, namespace: RowIds, row: int, stored: Stored) -> None:
        """Keep what stands beside a row that is not cached, unless it is too large."""
        size = _size(stored)
        if len(stored[1]) > _LONGEST_META or size > self._most_bytes:
            return
        while self._bytes + size > self._most_bytes:
            self._bytes -= _size(self._rows.popitem(last=False)[1])
        self._rows[namespace.number, row] = stored
        self._bytes += size

    def clear(self) -> None:
        """Forget all."""
        self._rows.clear()
        self._bytes = 0


def _size(stored: Stored) -> int:
    return _ENTRY_BYTES + getsizeof(stored[0]) + getsizeof(stored[1])


class CachedNamespace:
    """Vectors and row ids of one namespace.

    Attributes:
        used: higher than that of those that were used before.
        change: the number of the last change in the file that it shows.
        round: when it was last found to show all, see `Database`.
    """

    used = change = round = 0

    def __init__(
        self,
        metric: Metric,
        dimension: int,
        most_column_bytes: int,
        scratch: Scratch | None = None,
    ) -> None:
        """Start empty."""
        contents = RowIds(array("q"), array("q"), FieldColumns(most_column_bytes))
        self._partition = Partition(metric, dimension, contents, scratch=scratch)
        self._places: tuple[NDArray[np.int64], NDArray[np.intp]] | None = None

    @property
    def snapshot(self) -> Snapshot[RowIds]:
        """The content of the namespace."""
        return self._partition.snapshot

    @property
    def nbytes(self) -> int:
        """Bytes of its vectors and columns in memory."""
        return self._partition.nbytes + self.snapshot.contents.columns.nbytes

    def still_has(self, near: Near) -> bool:
        """Return True if no row that was found has been replaced or deleted since."""
        now = self.snapshot
        if near.snapshot.contents is not now.contents:
            return False  # the rows have moved
        return bool((now.deaths[[row for row, _ in near.found]] > now.version).all())

    def upsert(
        self,
        ids: Sequence[str],
        vectors: NDArray[np.float32],
        lengths: NDArray[np.float64],
        items: Sequence[tuple[int, Mapping[str, Any]]],
    ) -> None:
        """Insert or replace rows, once the file has them."""
        self._partition.upsert(ids, vectors, lengths, items)
        self._places = None

    def delete(self, ids: Sequence[str]) -> None:
        """Take rows out, once the file has lost them."""
        rows = [row for row in map(self._partition.row, ids) if row is not None]
        if rows:
            self._partition.delete(rows)
            self._places = None

    def reserve(self, rows: int) -> int:
        """Make room for so many rows more; return how many `learn` would be shown."""
        return self._partition.reserve(rows)

    def learn(self, sample: NDArray[np.float32], rows: int) -> None:
        """Learn what rows are like, of which so many will come."""
        self._partition.learn(sample, rows)

    def empty(self) -> None:
        """Take out all rows, and keep what was learned from them about searching."""
        mask, size = self.snapshot.living.mask, len(self.snapshot.rows.vectors)
        self._partition.delete(range(size) if mask is None else np.flatnonzero(mask).tolist())
        self.snapshot.contents.columns.clear()
        self._places = None

    def rows(self, rids: NDArray[np.int64]) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
        """Return the living rows of those row ids that this namespace has, and which it has."""
        if self._places is None:
            mask, size = self.snapshot.living.mask, len(self.snapshot.rows.vectors)
            living = np.arange(size) if mask is None else np.flatnonzero(mask)
            cached = np.array(self.snapshot.contents.rids)[living]
            order = np.argsort(cached, kind="stable")  # fast where the order is nearly right
            self._places = cached[order], living[order]
        cached, living = self._places
        if not len(cached):
            return living, np.zeros(len(rids), np.bool_)
        places = np.minimum(np.searchsorted(cached, rids), len(cached) - 1)
        there = cached[places] == rids
        return living[places[there]], there


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """The rows that a namespace had at one moment.

    Attributes:
        namespace: its name.
        rids: the rows, sorted.
        change: the last change in the file before.
        state: of the database; in another one the rows are others.
    """

    namespace: str
    rids: NDArray[np.int64]
    change: int
    state: object


class _Collected:
    """Vectors in one piece of memory, which the system has back whole: small ones leave holes."""

    def __init__(self, most: int) -> None:
        """Start empty; there will be so many at most."""
        self._most, self._size = most, 0
        self._room = np.empty((0, 0), np.float32)

    def has_room(self, count: int) -> bool:
        """Return True if so many more may be added."""
        return self._size + count <= self._most

    def add(self, vectors: NDArray[np.float32]) -> None:
        """Copy vectors behind the others."""
        if not len(self._room):
            self._room = np.empty((self._most, vectors.shape[1]), np.float32)
        self._room[self._size : self._size + len(vectors)] = vectors
        self._size += len(vectors)

    def taken(self) -> NDArray[np.float32]:
        """Return all, and keep none."""
        vectors = self._room[: self._size]
        self._room, self._size = np.empty((0, 0), np.float32), 0
        return vectors


class NamespaceReader:
    """A namespace while it is read, some rows at a time; what changes meanwhile is not followed.

    Rows that go to a disk are collected first, so that those that are like each other come
    together, and a sample of them is read before.

    Attributes:
        listing: all rows that there were at first.
        cached: what was read.
        read: how many of them were read.
        sampled: which ones are still to be read for the sample.
    """

    def __init__(self, listing: Listing, cached: CachedNamespace) -> None:
        """Start with the first row."""
        self.listing: Listing = listing
        self.cached: CachedNamespace = cached
        self.read: int = 0
        size = len(listing.rids)
        sampled = np.linspace(0, size - 1, cached.reserve(size)).astype(np.intp)
        self.sampled: NDArray[np.int64] = listing.rids[sampled]
        self._sample = _Collected(len(sampled))
        self._collects = len(sampled) > 0
        self._ids, self._items = list[str](), list[tuple[int, Mapping[str, Any]]]()
        self._vectors: _Collected | None = None

    def sample(self, vectors: NDArray[np.float32], count: int) -> None:
        """Take what was read of the first so many that are sampled."""
        self._sample.add(vectors)
        self.sampled = self.sampled[count:]
        if not len(self.sampled):
            self.cached.learn(self._sample.taken(), len(self.listing.rids))

    def add(
        self,
        ids: list[str],
        vectors: NDArray[np.float32],
        items: list[tuple[int, Mapping[str, Any]]],
        count: int,
    ) -> None:
        """Take what was read of the next so many rows."""
        self.read += count
        if not self._collects:
            self.cached.upsert(ids, vectors, row_lengths(vectors), items)
            return
        if self._vectors is None:
            self._vectors = _Collected(_COLLECTED_BYTES // (4 * vectors.shape[1]) + count)
        self._vectors.add(vectors)
        self._ids.extend(ids)
        self._items.extend(items)
        if self.read >= len(self.listing.rids) or not self._vectors.has_room(count):
            matrix = self._vectors.taken()
            self.cached.upsert(self._ids, matrix, row_lengths(matrix), self._items)
            self._vectors, self._ids, self._items = None, [], []


class Namespaces:
    """The namespaces in memory: those used last, up to so many bytes, and always one.

    One thread changes them; others may look meanwhile.
    """

    def __init__(self, most_bytes: int) -> None:
        """Start empty."""
        self._most_bytes = most_bytes
        self._cached: dict[str, CachedNamespace] = {}
        self._bytes: dict[str, int] = {}
        self._uses = count(1)

    def __contains__(self, name: str) -> bool:
        """Return True if a namespace is here."""
        return name in self._cached

    def get(self, name: str) -> CachedNamespace | None:
        """Return a namespace, which counts as used, if it is here."""
        cached = self._cached.get(name)
        if cached is not None:
            cached.used = next(self._uses)
        return cached

    def put(self, name: str, cached: CachedNamespace) -> None:
        """Keep a namespace that is new or has grown, if it holds anything; let go of others."""
        self.drop(name)
        if not cached.snapshot.count:
            return
        cached.used = next(self._uses)
        self._cached[name], self._bytes[name] = cached, cached.nbytes
        held = sum(self._bytes.values())
        while held > self._most_bytes and len(self._cached) > 1:
            oldest = min(self._cached, key=lambda other: self._cached[other].used)
            held -= self._bytes[oldest]
            self.drop(oldest)

    def drop(self, name: str) -> None:
        """Let go of a namespace."""
        self._cached.pop(name, None)
        self._bytes.pop(name, None)

    def clear(self) -> None:
        """Let go of all."""
        self._cached.clear()
        self._bytes.clear()


def selected(snapshot: Snapshot[RowIds], filter: Filter | None) -> Selection | None:
    """Return which rows pass a filter; None if a column that it needs is not in memory."""
    if filter is None:
        return snapshot.living
    columns, size = snapshot.contents.columns, len(snapshot.rows.vectors)
    passing = columns.mask(filter, size, snapshot.version)
    if passing is None:
        return None
    living = snapshot.living.mask
    return Selection.of(passing if living is None else passing & living)
