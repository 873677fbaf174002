"""A first pass over the heads of rows in 32 bits, where few numbers stand for a row.

`Heads` holds y, the head of a row and the length of its tail, as `accel.projected` holds codes of
it. A number takes four times the bytes, but nothing has to be done for a row beside its
product with z, which any numpy computes as fast as memory allows: while the heads of all rows fit
into the processor's cache, that is faster than codes are.
"""

from __future__ import annotations

import math
from threading import Lock
from typing import Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from lib.vector.exact.accel.basis import STRETCH, Basis
from lib.vector.exact.accel.codes import ROUNDING, UNDERFLOW
from lib.vector.exact.accel.threshold import Floats, highest, left, scored, seeds
from lib.vector.exact.search import Rows, Selection, grown
from lib.vector.records import Metric

CACHE_BYTES: Final = 24 << 20
"""As much of the processor's cache as heads may fill."""

_ONE_THREAD_BYTES: Final = 16 << 20
_CACHED: Final = 4  # times as fast as from memory
_ONE_THREAD_CELLS: Final = 8192
_COPIED_SHARE: Final = 0.75
_GATHERED_BYTES: Final = 3 << 19  # what is copied stays in the cache
_PROJECTED_CELLS: Final = 1 << 20


class _Copied(NamedTuple):
    """The rows of one selection, and a copy of their heads, side by side."""

    among: Selection
    places: NDArray[np.intp]
    heads: Floats


class Heads:
    """Heads of the rows of one partition, made when they are first searched; safe in threads."""

    def __init__(self, metric: Metric, basis: Basis) -> None:
        """Start empty."""
        self._metric: Metric = metric
        self._basis = basis
        self._heads = np.empty((0, basis.width), np.float32)  # y, and under cosine y / |x|
        self._size = 0
        self._longest = 1.0 if metric == "cosine" else 0.0  # |x|, with cosine of x / |x|
        self._last: Selection | None = None  # of the last search
        self._copied: _Copied | None = None
        self._lock = Lock()

    @property
    def width(self) -> int:
        """The count of numbers that stand for a row."""
        return self._basis.width

    @property
    def speedup(self) -> int:
        """The approximate speed-up over reading the rows as they are."""
        cached = 4 * self.width * self._size <= _ONE_THREAD_BYTES
        return max(1, len(self._basis.directions) * (_CACHED if cached else 1) // self.width)

    def pending(self, size: int) -> int:
        """Return how many of so many rows have no head yet."""
        return max(0, size - self._size)

    def moved(self, kept: NDArray[np.intp], scales: Floats) -> Self:
        """Return the heads of these rows alone, in their order; change nothing here."""
        moved = type(self)(self._metric, self._basis)
        with self._lock:
            known = kept[: np.searchsorted(kept, self._size)]
            heads = self._heads[known]
        moved._fill(heads, scales[known])  # noqa: SLF001 - it is one of these
        return moved

    def _fill(self, heads: Floats, scales: Floats) -> None:
        self._heads, self._size = heads, len(heads)
        self._measure(scales)

    def _measure(self, scales: Floats) -> None:
        if self._metric != "cosine":
            self._longest = float(scales.max(initial=np.float32(self._longest)))

    def candidates(self, rows: Rows, query: Floats, k: int, among: Selection) -> NDArray[np.intp]:
        """Return every row that can be among the k nearest of a selection."""
        self._catch_up(rows)
        head, wide = self._basis.query(query), query.astype(np.float64)
        copied = self._side_by_side(among)
        if copied is not None:
            places, allowed, keys = copied.places, None, _product(copied.heads, head)
        else:
            places, allowed = among.positions, among.mask if among.positions is None else None
            keys = self._products(head, len(rows.vectors), places)
        if self._metric == "euclidean":
            lengths = rows.scales if places is None else rows.scales[places]
            keys -= 0.5 * lengths * lengths
        sown = seeds(keys, allowed, k)
        seeded = sown[0] if places is None else places[sown[0]]
        best = highest(scored(rows, wide, seeded, self._metric), k)
        least = float(best[0]) - self._slack(wide) if len(best) == k else -math.inf
        found = left(keys, allowed, least, sown, k)
        return found if places is None else places[found]

    def _side_by_side(self, among: Selection) -> _Copied | None:
        """Return a copy of the heads of a selection that pays; make it at the second call in a row.

        There is one at a time, and none outlives the rows that were there when it was made.
        """
        if among.mask is None or among.count > _COPIED_SHARE * len(among.mask):
            return None
        kept, last, self._last = self._copied, self._last, among
        if kept is not None and kept.among is among:
            return kept
        if last is not among or 4 * self.width * among.count > CACHE_BYTES:
            return None
        places = among.mask.nonzero()[0] if among.positions is None else among.positions
        self._copied = copied = _Copied(among, places, self._heads[places])
        return copied

    def _products(self, head: Floats, size: int, places: NDArray[np.intp] | None) -> Floats:
        """Return y z for the first rows, or for those at the places."""
        heads = self._heads[:size]
        if places is None:
            return _product(heads, head)
        products = np.empty(len(places), np.float32)
        step = max(1, _GATHERED_BYTES // head.nbytes)
        for start in range(0, len(places), step):
            part = slice(start, start + step)
            # "clip" checks nothing, and the places are right: faster than "raise"
            products[part] = _product(np.take(heads, places[part], 0, mode="clip"), head)
        return products

    def _slack(self, query: NDArray[np.float64]) -> float:
        """Return how far at most a key is below the score's.

        The products of n numbers are off by n roundings of their sum at most (see
        `exact.search`), where |y| <= STRETCH |x| and |z| <= STRETCH |q|. Rows so short that they
        have no head lack at most 2**20 `UNDERFLOW` |q|. What underflows in a number of z is
        less than `UNDERFLOW`, and counts for |x|; so does what underflows in a product, for itself.
        """
        length, longest = math.sqrt(np.dot(query, query)), self._longest
        steps = STRETCH * STRETCH * (self._basis.width + 16) * 2.0**-24
        slack = (self._basis.slack + 1.01 * steps + ROUNDING) * longest * length
        slack += (self._basis.width * (1.0 + longest) + 2.0**20 * length) * UNDERFLOW
        return slack + ROUNDING * (longest + length) ** 2 if self._metric == "euclidean" else slack

    def _catch_up(self, rows: Rows) -> None:
        """Make heads of the rows that have none."""
        size = len(rows.vectors)
        if size > self._size:
            with self._lock:
                self._extend(rows.vectors[self._size :], rows.scales[self._size :])

    def _extend(self, vectors: Floats, scales: Floats) -> None:
        size = self._size + len(vectors)
        self._copied = self._last = None
        if size > len(self._heads):
            self._heads = grown(self._heads, size + self._size // 2)
        step = max(1, _PROJECTED_CELLS // vectors.shape[1])
        for start in range(0, len(vectors), step):
            part = slice(start, start + step)
            place = slice(self._size + start, self._size + start + len(vectors[part]))
            if self._metric == "cosine":
                taken = self._basis.rows(vectors[part], 1.0 / scales[part])
                taken *= scales[part, np.newaxis]
            else:
                taken = self._basis.rows(vectors[part], scales[part])
            self._heads[place] = taken
        self._measure(scales)
        self._size = size


def _product(heads: Floats, head: Floats) -> Floats:
    """Return y z for each of these heads; if the cache holds them, by one thread.

    OpenBLAS shares a product of more than 9,216 cells among threads, which wait for each other:
    where something else runs, one in a hundred takes milliseconds, on the event loop, too.
    Source: `interface/gemv.c` of OpenBLAS, `GEMM_MULTITHREAD_THRESHOLD`.
    """
    if heads.nbytes > _ONE_THREAD_BYTES:
        return heads @ head
    width = len(head)
    step = max(1, _ONE_THREAD_CELLS // width)
    stacked = len(heads) // step * step
    products = np.empty(len(heads), np.float32)
    stack = heads[:stacked].reshape(-1, step, width)
    np.matmul(stack, head, out=products[:stacked].reshape(-1, step))
    np.matmul(heads[stacked:], head, out=products[stacked:])
    return products
