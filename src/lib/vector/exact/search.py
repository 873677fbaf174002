"""Exact nearest neighbours in one contiguous matrix of 32-bit floats.

What is returned is defined without regard to speed: the score of a row is computed in 64 bits from
the row alone and rounded to 32 bits, so it does not depend on where the row stands; rows are
ordered by score, then by id. To get there fast, a first pass finds what each row is worth at most
(`exact.bounds`), from codes of the rows where there are some (`exact.codes`), else from the rows in
32 bits. Some rows that seem to be worth most are scored; the k-th best of them leaves out every row
that is worth less, and those that remain (some tens) are scored, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from sys import maxsize
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from lib.vector.exact.bounds import Floats, View, Wide, lowest, reached
from lib.vector.exact.codes import Codes, Places, Prepared
from lib.vector.records import Metric

# Above this share of the rows, one pass over all of them is faster than collecting those allowed.
_GATHER_SHARE = 0.25
_BLOCK_BYTES = 1 << 18  # rows are collected in blocks that stay in the cache
_SCORED_AT_ONCE = 4096
_SPARE, _CODED_SPARE = 2, 16  # rows beyond the k-th that are scored first
_MOST_SEEDS = 256  # and of those that seem to be worth the same
_FEW = 128  # above, a pass in 32 bits before the one in 64 pays
_AT_ONCE = 64  # so few rows are scored without a first pass
# How much cheaper and dearer than reading a row.
_CODED_SPEEDUP, _PREPARING, _SCORING = 4, 8, 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The rows of a namespace that may be returned.

    Attributes:
        mask: per row whether it may; None if all may.
        count: how many may.
        positions: which ones, where they are so few that it pays to collect them; else None.
    """

    mask: NDArray[np.bool_] | None
    count: int
    positions: NDArray[np.intp] | None = None

    @classmethod
    def of(cls, mask: NDArray[np.bool_]) -> Selection:
        """Return the selection of the rows where the mask is set."""
        count = int(np.count_nonzero(mask))
        if count == len(mask):
            return cls(mask=None, count=count)
        few = count <= _GATHER_SHARE * len(mask)
        return cls(mask=mask, count=count, positions=mask.nonzero()[0] if few else None)

    def reads_codes(self, codes: Codes) -> bool:
        """Return True if it pays to read codes of these rows instead of the rows."""
        return codes.pays(self.count, collected=self.positions is not None)

    def places(self) -> NDArray[np.intp]:
        """Return which rows may be returned."""
        if self.positions is not None:
            return self.positions
        return np.arange(self.count) if self.mask is None else self.mask.nonzero()[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Vectors of one namespace, as they stood at one moment.

    Attributes:
        ids: the id of each row; may hold more than n.
        vectors: n rows of d floats, contiguous.
        scales: per row its length, or under cosine the inverse of it.
        codes: what is kept of the rows to leave some out fast; or None.
        mapped: how they are searched where they lie on a disk; None in memory.
    """

    ids: Sequence[str]
    vectors: Floats
    scales: Floats
    codes: Codes | None = None
    mapped: Mapped | None = None


class Mapped(Protocol):
    """Rows on a disk, see `lib.vector.exact.disk`."""

    def nearest(
        self, rows: Rows, query: Floats, k: int, among: Selection
    ) -> list[tuple[int, float]]:
        """Return what `nearest` does."""
        ...


def row_lengths(vectors: Floats) -> NDArray[np.float64]:
    """Return the Euclidean length of each row."""
    with np.errstate(invalid="ignore"):
        return np.sqrt(np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64))


def scales(lengths: NDArray[np.float64], metric: Metric) -> Floats:
    """Return what `Rows.scales` holds for rows of these lengths."""
    return (1.0 / lengths if metric == "cosine" else lengths).astype(np.float32)


def nearest(
    rows: Rows,
    query: Floats,
    k: int,
    *,
    metric: Metric,
    among: Selection,
    at_once: int = _AT_ONCE,
) -> list[tuple[int, float]]:
    """Return the k nearest rows with their scores, best first, ties in the order of their ids.

    Args:
        rows: where to search.
        query: d floats, within the bounds of `lib.vector.validate`.
        k: how many at most.
        metric: how to score.
        among: which rows may be returned.
        at_once: so few rows are scored without a first pass.
    """
    if not among.count:
        return []
    # Workaround: within the bounds nothing overflows, yet some BLAS libraries leave flags behind
    # of which numpy warns; https://github.com/numpy/numpy/issues/28687 tells when they are gone.
    with np.errstate(all="ignore"):
        if rows.mapped is not None:
            return rows.mapped.nearest(rows, query, min(k, among.count), among)
        scoring = Scoring(rows, query, metric)
        if among.count <= max(k, at_once):
            places = among.places()
            return scoring.ranked(places, scoring.costs(places), min(k, among.count))
        return _Search(scoring, query, among).nearest(k)


def effort(rows: Rows, among: Selection) -> int:
    """Return about how many floats a search reads, in the time of reading them in order."""
    size, dimension = rows.vectors.shape
    if rows.mapped is not None:
        return maxsize  # the disk may be slow, however few are read
    if among.count <= _AT_ONCE:
        return among.count * dimension * _SCORING
    cost = size if among.positions is None else 2 * among.count
    if rows.codes is not None:
        if among.reads_codes(rows.codes):
            coded = cost * rows.codes.coded(size) // max(1, size)
            cost -= coded - coded // _CODED_SPEEDUP
        cost += rows.codes.pending(size) * _PREPARING
    return cost * dimension


class Scoring:
    """The definition of scores: row by row, in 64 bits, rounded to 32.

    Attributes:
        rows: those that are scored by their places.
        metric: how.
        sign: what turns a score into a cost, of which less is better.
    """

    def __init__(self, rows: Rows, query: Floats, metric: Metric) -> None:
        """Score by this query."""
        self.rows: Rows = rows
        self.metric: Metric = metric
        self.sign: float = 1.0 if metric == "euclidean" else -1.0
        self._query: Wide = query.astype(np.float64)
        self._square = 0.0
        if metric == "cosine":
            self._square = float(np.add.reduce(self._query * self._query))

    def costs(self, places: NDArray[np.intp]) -> Floats:
        """Return the scores of rows, so that lower is better."""
        vectors = self.rows.vectors
        if len(places) <= _SCORED_AT_ONCE:
            costs = self.scores(vectors.take(places, axis=0))
        else:
            costs = np.empty(len(places), np.float32)
            for start in range(0, len(places), _SCORED_AT_ONCE):
                part = slice(start, start + _SCORED_AT_ONCE)
                costs[part] = self.scores(vectors.take(places[part], axis=0))
        costs *= self.sign
        return costs

    def ranked(self, places: NDArray[np.intp], costs: Floats, k: int) -> list[tuple[int, float]]:
        """Return the k best of the rows with their scores, best first, ties by id."""
        if len(places) > k:  # ids lie all over the memory, so only those that count are looked at
            best = costs <= lowest(costs, k)
            places, costs = places[best], costs[best]
        rows, ids, sign = places.tolist(), self.rows.ids, self.sign
        ranked = sorted(zip(costs.tolist(), [ids[row] for row in rows], rows, strict=True))
        return [(row, sign * cost) for cost, _, row in ranked[:k]]

    def scores(self, vectors: Floats) -> Floats:
        """Return the scores of vectors, one by one."""
        wide = vectors.astype(np.float64)
        if self.metric == "euclidean":
            wide -= self._query
            wide *= wide
            return np.sqrt(np.add.reduce(wide, axis=1)).astype(np.float32)
        if self.metric == "dot":
            wide *= self._query
            return np.add.reduce(wide, axis=1).astype(np.float32)
        lengths = np.sqrt(np.add.reduce(wide * wide, axis=1) * self._square)
        wide *= self._query
        return (np.add.reduce(wide, axis=1) / lengths).astype(np.float32)


class _Search:
    """One search with a first pass."""

    def __init__(self, scoring: Scoring, query: Floats, among: Selection) -> None:
        rows = scoring.rows
        self._scoring, self._rows, self._query, self._among = scoring, rows, query, among
        self._ready: Prepared | None = None
        self._size = 0  # of the rows that are prepared
        self._coded = False
        if rows.codes is not None:
            self._ready = rows.codes.ready(rows.vectors, rows.scales)
            self._coded = self._ready is not None and among.reads_codes(rows.codes)
        if self._ready is not None:
            self._size = min(self._ready.size, len(rows.vectors))
        centre = None if self._ready is None else self._ready.centre
        self._view = View(query, scoring.metric, centre)

    def nearest(self, k: int) -> list[tuple[int, float]]:
        """Return the k nearest rows with their scores, best first, ties by id."""
        positions, mask, scoring = self._among.positions, self._among.mask, self._scoring
        every = slice(0, len(self._rows.vectors)) if positions is None else positions
        worths = self._worths(every, coded=self._coded)
        if positions is None and mask is not None:
            np.putmask(worths, ~mask, -np.inf)
        spare = _CODED_SPARE if self._coded else _SPARE
        least = reached(worths, min(k + spare, self._among.count))
        found = (worths >= least).nonzero()[0]
        first = found[: 4 * k + _MOST_SEEDS]
        places = first if positions is None else positions[first]
        costs = scoring.costs(places)
        kth = self._view.least(scoring.sign * lowest(costs, k))
        if kth < least or len(first) < len(found):
            worths[first] = -np.inf
            found = (worths >= kth).nonzero()[0]
            others = self._worth(found if positions is None else positions[found], kth)
            places = np.concatenate([places, others])
            costs = np.concatenate([costs, scoring.costs(others)])
        return scoring.ranked(places, costs, k)

    def _worth(self, places: NDArray[np.intp], least: float) -> NDArray[np.intp]:
        """Return which of the rows can be worth so much, by what they are in 32 bits."""
        if len(places) <= _FEW or self._size == 0:
            return places
        return places[self._worths(places, coded=False) >= least]

    def _worths(self, places: Places, *, coded: bool) -> Floats:
        """Return what rows are worth at most; if `coded`, prepared ones by their codes."""
        ready = self._ready
        if ready is None:
            return self._of_floats(places, self._view, None)
        prepared, others = self._split(places)
        if coded:
            worths = ready.worths(self._view, prepared)
        else:
            worths = self._of_floats(prepared, self._view, ready.halves(prepared))
        if not _count(others):
            return worths
        plain = View(self._query, self._scoring.metric)
        return np.concatenate([worths, self._of_floats(others, plain, None)])

    def _split(self, places: Places) -> tuple[Places, Places]:
        """Return which rows are prepared, and which are not."""
        if isinstance(places, slice):
            return slice(0, self._size), slice(self._size, places.stop)
        prepared = int(places.searchsorted(self._size))
        return places[:prepared], places[prepared:]

    def _of_floats(self, places: Places, view: View, halves: Floats | None) -> Floats:
        """Return what rows are worth at most, as they are in 32 bits."""
        vectors, query = self._rows.vectors, view.vector.astype(np.float32)
        if isinstance(places, slice):
            products = vectors[places].dot(query)
        else:
            products = _products(vectors, places, query)
        return view.of_floats(products, self._rows.scales[places], halves)


def _count(places: Places) -> int:
    return places.stop - places.start if isinstance(places, slice) else len(places)


def _products(vectors: Floats, places: NDArray[np.intp], query: Floats) -> Floats:
    """Return the products of some rows with a query, collected in blocks."""
    products = np.empty(len(places), np.float32)
    step = max(1, _BLOCK_BYTES // query.nbytes)
    block = np.empty((min(step, len(places)), len(query)), np.float32)
    for start in range(0, len(places), step):
        part = places[start : start + step]
        collected = block[: len(part)]
        # "clip" checks nothing, and the places are right: a third faster than "raise"
        np.take(vectors, part, axis=0, out=collected, mode="clip")
        np.matmul(collected, query, out=products[start : start + step])
    return products
