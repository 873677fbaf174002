"""The first pass that suits the rows of a partition, learned from them and from the queries.

It starts with codes of the rows as they are, where simsimd is installed, else with nothing. Once
there are many rows it learns from them which few directions hold the most of them, and again each
time that there are four times as many, or that their heads have outgrown the processor's cache.
Results are the same with any first pass, and with none.
"""

from __future__ import annotations

from threading import Lock
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from lib.vector.exact.accel.basis import SURVIVOR, learned
from lib.vector.exact.accel.codes import (
    MOST_ELEMENTS,
    Codes,
    Floats,
    Products,
    ProjectedCodes,
    coded_width,
    fast_products,
)
from lib.vector.exact.accel.heads import CACHE_BYTES, Heads
from lib.vector.exact.search import Everything, FirstPass, Rows, Selection
from lib.vector.records import Metric

_LEARNING_CELLS: Final = 1 << 21
_LEARNING_ROWS: Final = 4  # for each dimension: of long vectors, learning takes seconds
_LEARNING_GROWTH: Final = 4
_JUDGED_SEARCHES: Final = 32
_FORGOTTEN: Final = 0.9  # of what a search has left, with the next one

# What things cost for a row of codes or floats, in the time of reading one byte in order.
_CODED_ROW: Final = 128.0  # what is done for it beside reading it
_CACHED_FLOAT: Final = 2.0
_FLOAT: Final = 4.0
_WORTH_IT: Final = 0.8


class LearningPass:
    """A first pass for the rows of one partition, of the kind that is fastest; safe in threads."""

    def __init__(
        self, metric: Metric, products: Products | None, by: FirstPass, learn_at: int
    ) -> None:
        """Start with this one, and learn at so many rows."""
        self._metric: Metric = metric
        self._products = products
        self._by, self._learn_at = by, learn_at
        self._searches, self._cost = 0, 0.0
        self._left = 0.0  # of the rows, by the worst of the last searches
        self._lock = Lock()

    @classmethod
    def of(cls, metric: Metric, dimension: int) -> Self:
        """Return a new one."""
        products = fast_products()
        by = _plain(metric, dimension, products)
        learn_at = max(_LEARNING_CELLS // dimension + 1, _LEARNING_ROWS * dimension)
        return cls(metric, products, by, learn_at)

    @property
    def speedup(self) -> int:
        """The expected speed-up over reading all rows, from the shares that were left of late."""
        rows = 1.0 / self._by.speedup + SURVIVOR / _FLOAT * self._left
        return max(1, round(1.0 / rows))

    def pending(self, size: int) -> int:
        """Return how many of so many rows have to be read before a search."""
        return self._by.pending(size) if size < self._learn_at else size

    def candidates(self, rows: Rows, query: Floats, k: int, among: Selection) -> NDArray[np.intp]:
        """Return every row that can be among the k nearest of a selection."""
        if len(rows.vectors) >= self._learn_at:
            with self._lock:
                self._learn(rows.vectors)
        by = self._by
        found = by.candidates(rows, query, k, among)
        if among.count * len(query) >= _LEARNING_CELLS:  # of few, a large share is little
            left = len(found) / among.count
            self._left = max(left, _FORGOTTEN * self._left)
            if isinstance(by, Heads | ProjectedCodes):
                with self._lock:
                    self._judge(by, rows.vectors.shape, left)
        return found

    def moved(self, kept: NDArray[np.intp], scales: Floats) -> Self:
        """Return a first pass over these rows alone, in their order; change nothing here."""
        learn_at = self._learn_at  # read first, as it is written last: rather learn twice than late
        by = self._by.moved(kept, scales)
        return type(self)(self._metric, self._products, by, learn_at)

    def _learn(self, vectors: Floats) -> None:
        size, dimension = vectors.shape
        if size < self._learn_at:
            return  # another thread was faster
        worth = _WORTH_IT * self._whole(dimension)
        basis = learned(vectors, self._metric, lambda width: self._reading(width, size), worth)
        learn_at = _LEARNING_GROWTH * size
        if basis is None:
            if isinstance(self._by, Heads | ProjectedCodes):
                self._by = _plain(self._metric, dimension, self._products)
        elif self._products is None or _heads(basis.width, size) < _codes(basis.width):
            self._by = Heads(self._metric, basis)
            outgrown = CACHE_BYTES // (4 * basis.width) + 1
            learn_at = outgrown if size < outgrown < learn_at else learn_at
        else:
            self._by = ProjectedCodes(self._metric, self._products, basis)
        self._searches, self._cost = 0, 0.0
        self._learn_at = learn_at

    def _judge(self, by: Heads | ProjectedCodes, shape: tuple[int, ...], left: float) -> None:
        """Take the rows as they are where their heads leave too much, for such queries."""
        if by is not self._by:
            return  # another thread has learned meanwhile
        size, dimension = shape
        self._searches += 1
        self._cost += SURVIVOR * left * dimension + self._reading(by.width, size)
        if self._searches == _JUDGED_SEARCHES:
            if self._cost > self._searches * self._whole(dimension):
                self._by = _plain(self._metric, dimension, self._products)
            self._searches, self._cost = 0, 0.0

    def _whole(self, dimension: int) -> float:
        """Return what it costs to read a row as it is."""
        return _FLOAT * dimension if self._products is None else _codes(dimension)

    def _reading(self, width: int, size: int) -> float:
        """Return what it costs to read one of so many heads in the cheaper form."""
        heads = _heads(width, size)
        return heads if self._products is None else min(heads, _codes(width))


def _heads(width: int, size: int) -> float:
    return width * (_CACHED_FLOAT if 4 * width * size <= CACHE_BYTES else _FLOAT)


def _codes(width: int) -> float:
    return coded_width(width) + _CODED_ROW


def _plain(metric: Metric, dimension: int, products: Products | None) -> FirstPass:
    """Return a first pass over the rows as they are."""
    if products is None or dimension > MOST_ELEMENTS:
        return Everything(metric)
    return Codes(metric, dimension, products)
