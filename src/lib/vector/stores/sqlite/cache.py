"""Namespaces of the file in memory, valid until the file changes, and queries over them."""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from sys import getsizeof
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lib.vector.exact.partition import Partition, Snapshot
from lib.vector.exact.search import Selection, effort
from lib.vector.filter import Filter
from lib.vector.offload import copying, is_small
from lib.vector.records import Metric


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

    def is_small(self, snapshot: Snapshot[RowIds], among: Selection) -> bool:
        """Return True if the event loop may answer it."""
        floats = len(self.vector) if self.include_vectors else 0
        copies = copying(min(self.k, among.count), floats)
        return is_small(effort(snapshot.rows, among) + copies)


@dataclass(frozen=True, slots=True)
class Near:
    """The nearest rows of a namespace with their scores, best first."""

    snapshot: Snapshot[RowIds]
    found: list[tuple[int, float]]


Stored: TypeAlias = tuple[str, str]
"""A text, and its metadata as JSON."""

_ENTRY_BYTES: Final = 320  # what Python keeps beside the two strings
_LONGEST_META: Final = 2_048  # characters, so that decoding some tens takes less than a millisecond
_numbers: Final = count()


class RowIds:
    """The columns beside each vector: its row in the file, and its count of terms.

    Attributes:
        number: tells these rows from those of all others.
    """

    def __init__(self, rids: array[int], lengths: array[int]) -> None:
        """Keep two arrays of one length."""
        self.rids: array[int] = rids
        self.lengths: array[int] = lengths
        self.number: int = next(_numbers)

    def extend(self, items: Sequence[tuple[int, int]]) -> None:
        """Append the pairs of the rows that follow."""
        self.rids.extend(rid for rid, _ in items)
        self.lengths.extend(length for _, length in items)

    def bury(self, rows: Sequence[int]) -> None:
        """Do nothing: the snapshot tells which rows are alive."""

    def moved(self, kept: NDArray[np.intp]) -> RowIds:
        """Return the pairs of these rows alone."""
        return RowIds(
            array("q", np.array(self.rids)[kept].tobytes()),
            array("q", np.array(self.lengths)[kept].tobytes()),
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
    """

    used = 0

    def __init__(self, metric: Metric, dimension: int) -> None:
        """Start empty."""
        self._partition = Partition(metric, dimension, RowIds(array("q"), array("q")))
        self._places: tuple[NDArray[np.int64], NDArray[np.intp]] | None = None

    @property
    def snapshot(self) -> Snapshot[RowIds]:
        """The content of the namespace."""
        return self._partition.snapshot

    def upsert(
        self,
        ids: Sequence[str],
        vectors: NDArray[np.float32],
        lengths: NDArray[np.float64],
        items: Sequence[tuple[int, int]],
    ) -> None:
        """Insert or replace rows, once the file has them."""
        self._partition.upsert(ids, vectors, lengths, items)
        self._places = None

    def delete(self, ids: Sequence[str]) -> None:
        """Take rows out, once the file has lost them."""
        rows = map(self._partition.row, ids)
        self._partition.delete([row for row in rows if row is not None])
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

    def selected(self, filter: Filter | None, passing: Callable[[], Sequence[int]]) -> Selection:
        """Return which rows pass a filter, by the row ids that the file gives; remembered."""
        cached = remembered(self.snapshot, filter)
        if cached is not None:
            return cached
        mask = np.zeros(len(self.snapshot.rows.vectors), np.bool_)
        mask[self.rows(np.array(passing(), np.int64))[0]] = True
        return self.snapshot.remember(repr(filter), Selection.of(mask))


def remembered(snapshot: Snapshot[RowIds], filter: Filter | None) -> Selection | None:
    """Return which rows pass a filter, if that is cached."""
    return snapshot.living if filter is None else snapshot.selections.get(repr(filter))
