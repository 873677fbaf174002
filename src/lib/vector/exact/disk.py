"""Exact nearest neighbours among rows on a disk, of which the sketches are in memory.

All rows whose sketch cannot exclude them are read: first those that promise most, so that their
scores exclude others, then the rest in the order in which they lie. The system learns of all pages
before the first one is read: a disk brings many at once in the time of a few, one after another.
"""

from __future__ import annotations

import math
import mmap
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from lib.vector.exact.bounds import Floats, View, lowest, reached
from lib.vector.exact.search import Rows, Scoring, Selection, row_lengths, scales
from lib.vector.exact.sketch import Query, Sketch
from lib.vector.records import Metric

Places = NDArray[np.intp]

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
        search = _Search(self, Scoring(rows, query, self.metric), query, k)
        sketch = self.sketch
        places = among.positions
        if places is None and (among.mask is not None or sketch is None or among.count <= _SEEDS):
            places = np.arange(len(self.records)) if among.mask is None else among.mask.nonzero()[0]
        if sketch is None or among.count <= max(_SEEDS, 4 * k):
            search.score(np.arange(len(self.records)) if places is None else places)
        else:
            search.sketched(sketch, places)
        return search.ranked()

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
    """One search: the rows scored so far, and the score that others have to reach."""

    def __init__(self, mapped: MappedRows, scoring: Scoring, query: Floats, k: int) -> None:
        self._mapped, self._scoring, self._query, self._k = mapped, scoring, query, k
        self._view = View(query, mapped.metric)
        self._places, self._costs = [np.empty(0, np.intp)], [np.empty(0, np.float32)]
        self._kept = self._found = 0
        self._least = -math.inf

    def sketched(self, sketch: Sketch, places: Places | None) -> None:
        """Score all rows that may be among the nearest, of these or of all."""
        query = Query(sketch.basis, self._query)
        if places is None:
            worths = sketch.coarse(query, len(self._mapped.records))
        else:
            worths = sketch.coarse_of(query, places)
        seeds = np.flatnonzero(worths >= reached(worths, min(self._k + _SEEDS, len(worths))))
        seeds = seeds[: 4 * self._k + 2 * _SEEDS]
        self.score(seeds if places is None else places[seeds])
        worths[seeds] = -np.inf
        left = np.flatnonzero(worths >= self._least)
        left = left[worths[left] > -np.inf]
        left = left if places is None else places[left]
        worths = sketch.fine_of(query, left)
        left, worths = left[worths >= self._least], worths[worths >= self._least]
        if len(left) > 2 * _PROMISING:
            promising = worths >= np.partition(worths, -_PROMISING)[-_PROMISING]
            promising = np.flatnonzero(promising)[: 2 * _PROMISING]
            self.score(left[promising])
            worths[promising] = -np.inf
            left = left[(worths >= self._least) & (worths > -np.inf)]
        self.score(left)

    def score(self, places: Places) -> None:
        """Score rows, in their order, that can be worth enough as they are in 32 bits."""
        narrow = self._view.vector.astype(np.float32)
        for start in range(0, len(places), _AT_ONCE):
            some = places[start : start + _AT_ONCE]
            vectors = self._mapped.read(some)
            if self._least > -np.inf and len(some) > _SEEDS:
                worths = self._view.of_floats(
                    vectors @ narrow, scales(row_lengths(vectors), self._mapped.metric), None
                )
                passing = worths >= self._least
                some, vectors = some[passing], vectors[passing]
            self._add(some, self._scoring.scores(vectors))

    def _add(self, places: Places, found: Floats) -> None:
        self._places.append(places)
        self._costs.append(found * self._scoring.sign)
        self._found += len(places)
        if self._found < max(self._k, 2 * self._kept):
            return  # many may be worth the same
        places, costs = np.concatenate(self._places), np.concatenate(self._costs)
        kth = lowest(costs, self._k)
        best = costs <= kth
        self._places, self._costs = [places[best]], [costs[best]]
        self._kept = self._found = len(self._places[0])
        self._least = self._view.least(self._scoring.sign * kth)

    def ranked(self) -> Found:
        """Return the k best of the scored rows, best first, ties by id."""
        places, costs = np.concatenate(self._places), np.concatenate(self._costs)
        return self._scoring.ranked(places, costs, self._k)
