"""Exact nearest neighbours in one contiguous matrix of 32-bit floats.

What is returned is defined without regard to speed: the score of a row is computed in 64 bits from
the row alone and rounded to 32 bits, so it does not depend on where the row stands; rows are
ordered by score, then by id. To get there fast, a first pass scores all rows at once in 32 bits
(BLAS, whose rounding depends on the position). Its error has a proven bound, hence every row that
could belong to the answer is known, and only those (some tens) are scored again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from lib.vector.records import Metric

# Above this share of the rows, one pass over all of them is faster than collecting those allowed.
GATHER_SHARE = 0.25
_BLOCK_BYTES = 1 << 18  # rows are collected in blocks that stay in the cache
_RESCORED_AT_ONCE = 4096
_FEW = 128  # above, a pass in 32 bits before the one in 64 pays
# Below, what surrounds a first pass costs more than it saves; floats here and there are dearer.
_FIRST_PASS_CELLS, _FIRST_PASS_CELLS_GATHERED = 1 << 20, 1 << 17
_CODING_EFFORT = 1 << 20  # a row without a code is work for a thread, were it only for the lock
EXCLUDED = np.float32(3e38)  # vectors are at most 2**62 long, so no key comes near it


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
        few = count <= GATHER_SHARE * len(mask)
        return cls(mask=mask, count=count, positions=np.flatnonzero(mask) if few else None)


class FirstPass(Protocol):
    """Leaves out rows that cannot belong to the answer."""

    @property
    def speedup(self) -> int:
        """The approximate speed-up over reading the rows as they are."""
        ...

    def pending(self, size: int) -> int:
        """Return how many of so many rows it has not read yet."""
        ...

    def candidates(
        self, rows: Rows, query: NDArray[np.float32], k: int, among: Selection
    ) -> NDArray[np.intp]:
        """Return every row that can be among the k nearest of a selection."""
        ...

    def moved(self, kept: NDArray[np.intp], scales: NDArray[np.float32]) -> FirstPass:
        """Return a first pass over these rows alone, given the scales of all."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Vectors of one namespace, as they stood at one moment.

    Attributes:
        ids: the id of each row; may hold more than n.
        vectors: n rows of d floats, contiguous.
        scales: per row its length, or under cosine the inverse of it.
        first_pass: a way to leave rows out, used where there is much to read; or None.
    """

    ids: Sequence[str]
    vectors: NDArray[np.float32]
    scales: NDArray[np.float32]
    first_pass: FirstPass | None = None


def row_lengths(vectors: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the Euclidean length of each row."""
    with np.errstate(invalid="ignore"):
        return np.sqrt(np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64))


def scales(lengths: NDArray[np.float64], metric: Metric) -> NDArray[np.float32]:
    """Return what `Rows.scales` holds for rows of these lengths."""
    return (1.0 / lengths if metric == "cosine" else lengths).astype(np.float32)


def nearest(
    rows: Rows, query: NDArray[np.float32], k: int, *, metric: Metric, among: Selection
) -> list[tuple[int, float]]:
    """Return the k nearest rows with their scores, best first, ties in the order of their ids.

    Args:
        rows: where to search.
        query: d floats, within the bounds of `lib.vector.validate`.
        k: how many at most.
        metric: how to score.
        among: which rows may be returned.
    """
    if not among.count:
        return []
    coarse = _direction(query) if metric == "cosine" else query
    # Workaround: within the bounds nothing overflows, yet some BLAS libraries leave flags behind
    # of which numpy warns; https://github.com/numpy/numpy/issues/28687 tells when they are gone.
    with np.errstate(all="ignore"):
        found = _found(rows, coarse, min(k, among.count), metric, among)
    return _ranked(rows, query, found, k, metric)


def _found(
    rows: Rows, query: NDArray[np.float32], k: int, metric: Metric, among: Selection
) -> NDArray[np.intp]:
    """Return every row that can be among the k best, by the fastest way there is."""
    if rows.first_pass is None or not _pays(rows, among):
        return Everything(metric).candidates(rows, query, k, among)
    found = rows.first_pass.candidates(rows, query, k, among)
    if len(found) > _FEW:
        return _search_some(rows, query, k, metric, found)
    return found


def effort(rows: Rows, among: Selection) -> int:
    """Return about how many floats a search reads, in the time of reading them in order."""
    cells = _cells(rows, among)
    read = cells if among.positions is None else 2 * cells
    if rows.first_pass is None or not _pays(rows, among):
        return read
    return (
        read // rows.first_pass.speedup
        + rows.first_pass.pending(len(rows.vectors)) * _CODING_EFFORT
    )


def _pays(rows: Rows, among: Selection) -> bool:
    """Return True if there is so much to read that a first pass pays."""
    least = _FIRST_PASS_CELLS if among.positions is None else _FIRST_PASS_CELLS_GATHERED
    return _cells(rows, among) >= least


def _cells(rows: Rows, among: Selection) -> int:
    """Return how many numbers the rows hold that a search has to look at."""
    size, dimension = rows.vectors.shape
    return (size if among.positions is None else among.count) * dimension


def _direction(query: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the query with length 1, so that tiny vectors cannot underflow in the first pass."""
    wide = query.astype(np.float64)
    return (wide / np.sqrt((wide * wide).sum())).astype(np.float32)


class Everything:
    """The first pass that reads every row as it is."""

    speedup = 1

    def __init__(self, metric: Metric) -> None:
        """Need to know nothing else."""
        self._metric: Metric = metric

    def pending(self, size: int) -> int:
        """Return none: there is nothing to prepare."""
        return 0

    def candidates(
        self, rows: Rows, query: NDArray[np.float32], k: int, among: Selection
    ) -> NDArray[np.intp]:
        """Return every row that can be among the k nearest of a selection."""
        if among.positions is None:
            return _search_all(rows, query, k, self._metric, among)
        return _search_some(rows, query, k, self._metric, among.positions)

    def moved(self, kept: NDArray[np.intp], scales: NDArray[np.float32]) -> Everything:
        """Return itself: it knows nothing of the rows."""
        return self


def _search_all(
    rows: Rows, query: NDArray[np.float32], k: int, metric: Metric, among: Selection
) -> NDArray[np.intp]:
    """Return every row that can be among the k best, by a pass over all rows."""
    keys, slack = _keys(rows.vectors @ query, rows.scales, query, metric)
    if among.mask is not None:
        keys -= EXCLUDED * ~among.mask
    return _candidates(keys, slack, k)


def _search_some(
    rows: Rows, query: NDArray[np.float32], k: int, metric: Metric, positions: NDArray[np.intp]
) -> NDArray[np.intp]:
    """Return every row that can be among the k best of those at the positions."""
    dots = np.empty(len(positions), np.float32)
    step = max(1, _BLOCK_BYTES // query.nbytes)
    block = np.empty((min(step, len(positions)), len(query)), np.float32)
    for start in range(0, len(positions), step):
        part = positions[start : start + step]
        collected = block[: len(part)]
        # "clip" checks nothing, and the positions are right: a third faster than "raise"
        np.take(rows.vectors, part, axis=0, out=collected, mode="clip")
        np.matmul(collected, query, out=dots[start : start + step])
    keys, slack = _keys(dots, rows.scales[positions], query, metric)
    return positions[_candidates(keys, slack, k)]


def _keys(
    dots: NDArray[np.float32],
    scales: NDArray[np.float32],
    query: NDArray[np.float32],
    metric: Metric,
) -> tuple[NDArray[np.float32], float]:
    """Turn dot products into keys that order rows as scores do, higher being better.

    The keys are the cosine, the dot product, or the negative half of what is left of the squared
    distance once the query's own share is taken away.

    Returns:
        keys: one for each row; the dot products are overwritten.
        slack: how far at most a key is from its exact value, the rounding of the score to 32 bits
            included.

    Source: N. J. Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., 2002, section
    3.1: whatever the order of summation, a dot product of n terms is computed with an error of
    at most nu / (1 - nu) times the dot product of the absolute values, u being the unit roundoff.
    Sixteen more roundings are allowed for than the steps around it have.
    """
    steps = (len(query) + 16) * 2.0**-24
    relative = 1.001 * steps / (1.0 - steps)
    if metric == "cosine":
        dots *= scales
        return dots, relative
    underflow = (len(query) + 16) * 2.0**-126
    length, longest = math.sqrt(np.dot(query, query)), float(scales.max())
    if metric == "dot":
        return dots, relative * length * longest + underflow
    dots -= 0.5 * scales * scales
    return dots, relative * (length + longest) ** 2 + underflow


def _candidates(keys: NDArray[np.float32], slack: float, k: int) -> NDArray[np.intp]:
    """Return where a key may be among the k best, k being at most the number of keys."""
    sure = np.partition(keys, len(keys) - k)[len(keys) - k]
    return np.flatnonzero(keys >= sure - 2.0 * slack)


def _ranked(
    rows: Rows, query: NDArray[np.float32], found: NDArray[np.intp], k: int, metric: Metric
) -> list[tuple[int, float]]:
    """Return the k best of the found rows with their scores, best first, ties by id."""
    sign = np.float32(1.0 if metric == "euclidean" else -1.0)
    costs = np.empty(len(found), np.float32)
    for start in range(0, len(found), _RESCORED_AT_ONCE):
        part = slice(start, start + _RESCORED_AT_ONCE)
        costs[part] = sign * _scores(rows.vectors[found[part]], query, metric)
    if len(found) > k:  # ids lie all over the memory, so only those that count are looked at
        best = costs <= np.partition(costs, k - 1)[k - 1]
        found, costs = found[best], costs[best]
    scored = zip(costs.tolist(), found.tolist(), strict=True)
    ranked = sorted((cost, rows.ids[row], row) for cost, row in scored)
    return [(row, float(sign * cost)) for cost, _, row in ranked[:k]]


def _scores(
    vectors: NDArray[np.float32], query: NDArray[np.float32], metric: Metric
) -> NDArray[np.float32]:
    """Return the score of each vector: the definition, row by row, in 64 bits."""
    left, right = vectors.astype(np.float64), query.astype(np.float64)
    if metric == "euclidean":
        return np.sqrt(((left - right) ** 2).sum(axis=1)).astype(np.float32)
    dots = (left * right).sum(axis=1)
    if metric == "dot":
        return dots.astype(np.float32)
    lengths = np.sqrt((left * left).sum(axis=1) * (right * right).sum())
    return (dots / lengths).astype(np.float32)


def grown(array: NDArray[Any], capacity: int) -> NDArray[Any]:
    """Return a copy with room for more rows."""
    copy = np.empty((capacity, *array.shape[1:]), array.dtype)
    copy[: len(array)] = array
    return copy
