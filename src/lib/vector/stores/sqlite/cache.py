"""One namespace of the file, held in memory as long as the file says the same."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from lib.vector.exact import Selection
from lib.vector.partition import Partition, Snapshot
from lib.vector.records import Metric


class RowIds:
    """What stands beside each vector: its row in the file, and how many terms its text has."""

    def __init__(self, rids: array[int], lengths: array[int]) -> None:
        """Keep two arrays of one length."""
        self.rids, self.lengths = rids, lengths

    def extend(self, items: Sequence[tuple[int, int]]) -> None:
        """Append the pairs of the rows that follow."""
        self.rids.extend(rid for rid, _ in items)
        self.lengths.extend(length for _, length in items)

    def bury(self, rows: Sequence[int]) -> None:
        """Do nothing: whether a row counts is asked of the snapshot."""

    def moved(self, kept: NDArray[np.intp]) -> RowIds:
        """Return the pairs of these rows alone."""
        return RowIds(
            array("q", np.array(self.rids)[kept].tobytes()),
            array("q", np.array(self.lengths)[kept].tobytes()),
        )


class CachedNamespace:
    """Vectors and row ids of one namespace."""

    def __init__(self, metric: Metric, dimension: int) -> None:
        """Start empty."""
        self._partition = Partition(metric, dimension, RowIds(array("q"), array("q")))
        self._places: tuple[NDArray[np.int64], NDArray[np.intp]] | None = None

    @property
    def snapshot(self) -> Snapshot[RowIds]:
        """What the namespace holds."""
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
            known = np.array(self.snapshot.contents.rids)[living]
            order = np.argsort(known, kind="stable")  # fast where the order is nearly right
            self._places = known[order], living[order]
        known, living = self._places
        if not len(known):
            return living, np.zeros(len(rids), np.bool_)
        places = np.minimum(np.searchsorted(known, rids), len(known) - 1)
        there = known[places] == rids
        return living[places[there]], there

    def selection(self, key: str, passing: Callable[[], Sequence[int]]) -> Selection:
        """Return which rows pass a filter, by the row ids that the file gives; remembered."""
        if key in self.snapshot.selections:
            return self.snapshot.selections[key]
        mask = np.zeros(len(self.snapshot.rows.vectors), np.bool_)
        mask[self.rows(np.array(passing(), np.int64))[0]] = True
        return self.snapshot.remember(key, Selection.of(mask))
