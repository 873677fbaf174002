"""Exact nearest neighbours among rows on a disk, of which clusters and sketches are in memory.

All rows that neither their cluster nor their sketch can exclude are read: first some that promise
most, by the sketches of the clusters that promise most, so that their scores exclude others, then
the rest in the order in which they lie. Rows of a cluster mostly lie together, so these are few
pages. The system learns of all of them before the first one is read: a disk brings many at once in
the time of a few, one after another.
"""

from __future__ import annotations

import mmap
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from lib.vector.exact.bounds import Floats, reached
from lib.vector.exact.clusters import ClusterQuery
from lib.vector.exact.scan import Places, Scan
from lib.vector.exact.search import Rows, Scoring, Selection
from lib.vector.exact.sketch import Query, Sketch
from lib.vector.records import Metric

_SEEDS: Final = 256
_LOOKED_AT: Final = 4_096  # of which the first rows to be scored are chosen
_AT_ONCE: Final = 4_096
_NEAR_BYTES: Final = 1 << 16  # pages between rows that are nearer to each other are read, too


@dataclass(frozen=True, slots=True, kw_only=True)
class MappedRows:
    """The rows of a namespace that lie on a disk, as they were at one moment.

    Attributes:
        metric: how they are searched.
        records: vectors with what stands beside them, mapped.
        sketch: of the first rows, or of more than these; None if there are few.
        mapping: the records' own.
    """

    metric: Metric
    records: NDArray[Any]
    sketch: Sketch | None
    mapping: mmap.mmap | None

    def nearest(self, rows: Rows, query: Floats, k: int, among: Selection) -> Found:
        """Return the k nearest rows with their scores, best first, ties in the order of ids."""
        scoring = Scoring(rows, query, self.metric)
        search = _Search(self, scoring, query, k)
        sketch = self.sketch
        places = among.positions
        if places is None and (among.mask is not None or sketch is None or among.count <= _SEEDS):
            places = np.arange(len(self.records)) if among.mask is None else among.mask.nonzero()[0]
        if sketch is None or among.count <= max(_SEEDS, 4 * k):
            search.score(np.arange(len(self.records)) if places is None else places)
        else:
            search.sketched(sketch, places)
        return scoring.ranked(*search.best(), k)

    def read(self, places: Places) -> Floats:
        """Return vectors, read from the disk at once."""
        self._announce(places)
        # all fields at once would be copied one by one, which takes up to thirty times as long
        return np.ascontiguousarray(self.records["vector"][places])

    def _announce(self, places: Places) -> None:
        """Let the system read the pages of rows, in their order, ahead."""
        if not len(places) or self.mapping is None or not hasattr(mmap, "MADV_WILLNEED"):
            return
        width = self.records.dtype.itemsize
        starts = places * width // mmap.PAGESIZE * mmap.PAGESIZE
        ends = (places + 1) * width
        cuts = np.flatnonzero(starts[1:] - ends[:-1] > _NEAR_BYTES)
        firsts, lasts = starts[np.r_[0, cuts + 1]], ends[np.r_[cuts, len(ends) - 1]]
        for first, last in zip(firsts.tolist(), lasts.tolist(), strict=True):
            with suppress(OSError):  # advice alone
                self.mapping.madvise(mmap.MADV_WILLNEED, first, last - first)


Found = list[tuple[int, float]]


class _Search:
    """One search: which rows are read, and in which order."""

    def __init__(self, mapped: MappedRows, scoring: Scoring, query: Floats, k: int) -> None:
        self._mapped, self._query, self._k = mapped, query, k
        self._scan = Scan(scoring, query, k)

    def sketched(self, sketch: Sketch, places: Places | None) -> None:
        """Score all rows that may be among the nearest, of these or of all."""
        near, query = (
            ClusterQuery(sketch.basis.clusters, self._query),
            Query(sketch.basis, self._query),
        )
        size, wanted = len(self._mapped.records), self._k + _SEEDS
        seeds = sketch.promising(near, places, size, _LOOKED_AT + 4 * wanted)
        if len(seeds) < wanted:
            seeds = np.arange(size) if places is None else places
        worths = sketch.coarse_of(query, seeds)
        seeds = seeds[_highest(worths, min(wanted, len(worths)))]
        self.score(seeds)
        left = _without(sketch.near(near, self._scan.least, places, size), seeds)
        if 2 * len(left) > size:
            worths = sketch.coarse(query, size)[left]
        else:
            worths = sketch.coarse_of(query, left)
        left = self._worth(left, worths)
        self.score(self._worth(left, sketch.fine_of(query, left)))

    def _worth(self, places: Places, worths: Floats) -> Places:
        """Return which rows may be worth enough; where they are many, score the best at once."""
        passing = worths >= self._scan.least
        places, worths = places[passing], worths[passing]
        if len(places) <= 4 * _SEEDS:
            return places
        best = _highest(worths, _SEEDS)
        self.score(places[best])
        worths[best] = -np.inf
        return places[worths >= self._scan.least]

    def score(self, places: Places) -> None:
        """Score rows, in their order, that can be worth enough as they are in 32 bits."""
        for start in range(0, len(places), _AT_ONCE):
            some = places[start : start + _AT_ONCE]
            self._scan.add(some, self._mapped.read(some))

    def best(self) -> tuple[Places, Floats]:
        """Return the nearest rows and their costs, see `Scan`."""
        return self._scan.best()


def _highest(worths: Floats, count: int) -> Places:
    """Return about the highest so many, in their order; of equal ones not all."""
    return np.flatnonzero(worths >= reached(worths, count))[: 2 * count]


def _without(places: Places, others: Places) -> Places:
    """Return the rows that are not among the others; both are sorted, and there are others."""
    at = np.minimum(np.searchsorted(others, places), len(others) - 1)
    return places[others[at] != places]
