"""Exact nearest neighbours among rows on a disk, of which the sketches are in memory.

All rows whose sketch cannot exclude them are read: first those that promise most, so that their
scores exclude others, then the rest in the order in which they lie. The system learns of all pages
before the first one is read: a disk brings many at once in the time of a few, one after another.
"""

from __future__ import annotations

import mmap
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from lib.vector.exact.bounds import Floats, reached
from lib.vector.exact.scan import Places, Scan
from lib.vector.exact.search import Rows, Scoring, Selection
from lib.vector.exact.sketch import Query, Sketch
from lib.vector.records import Metric

_SEEDS: Final = 256
_PROMISING: Final = 1_024
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
        query, scan = Query(sketch.basis, self._query), self._scan
        if places is None:
            worths = sketch.coarse(query, len(self._mapped.records))
        else:
            worths = sketch.coarse_of(query, places)
        seeds = np.flatnonzero(worths >= reached(worths, min(self._k + _SEEDS, len(worths))))
        seeds = seeds[: 4 * self._k + 2 * _SEEDS]
        self.score(seeds if places is None else places[seeds])
        worths[seeds] = -np.inf
        left = np.flatnonzero(worths >= scan.least)
        left = left[worths[left] > -np.inf]
        left = left if places is None else places[left]
        worths = sketch.fine_of(query, left)
        left, worths = left[worths >= scan.least], worths[worths >= scan.least]
        if len(left) > 2 * _PROMISING:
            promising = worths >= np.partition(worths, -_PROMISING)[-_PROMISING]
            promising = np.flatnonzero(promising)[: 2 * _PROMISING]
            self.score(left[promising])
            worths[promising] = -np.inf
            left = left[(worths >= scan.least) & (worths > -np.inf)]
        self.score(left)

    def score(self, places: Places) -> None:
        """Score rows, in their order, that can be worth enough as they are in 32 bits."""
        for start in range(0, len(places), _AT_ONCE):
            some = places[start : start + _AT_ONCE]
            self._scan.add(some, self._mapped.read(some))

    def best(self) -> tuple[Places, Floats]:
        """Return the nearest rows and their costs, see `Scan`."""
        return self._scan.best()
