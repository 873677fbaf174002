"""A first pass over codes of a few numbers for each row, where rows allow it.

`ProjectedCodes` holds 8-bit codes of y, the head of a row and the length of its tail (see
`lib.vector.basis`), where `Codes` holds codes of the row. The product with z is above every score,
so it says which rows may be among the nearest. It does not say how near a row is at least: for
that some of the best so far are scored as they are.

`LearningCodes` codes rows as they are until there are many, then learns a basis from them, and
again each time that there are four times as many. Results are the same with any basis, and none.
"""

from __future__ import annotations

import math
from threading import Lock
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from lib.vector.basis import STRETCH, Basis, cost, learned
from lib.vector.codes import (
    LOWEST,
    Codes,
    Floats,
    Products,
    TakenApart,
    excluding,
    fast_products,
    highest,
    kth_highest,
)
from lib.vector.exact import Rows, Selection
from lib.vector.records import Metric

_LEARNING_CELLS: Final = 1 << 22
_LEARNING_GROWTH: Final = 4
_SEEDS: Final = 48
_MOST_SEEDS: Final = 256
_JUDGED_SEARCHES: Final = 32


class ProjectedCodes(Codes):
    """Codes of what a basis makes of the rows of one partition."""

    def __init__(self, metric: Metric, products: Products, basis: Basis) -> None:
        """Start empty."""
        super().__init__(metric, basis.width, products)
        self._basis = basis

    @property
    def width(self) -> int:
        """How many bytes the code of a row has."""
        return self._basis.width

    def candidates(self, rows: Rows, query: Floats, k: int, among: Selection) -> NDArray[np.intp]:
        """Return every row that can be among the k nearest of a selection."""
        self._catch_up(rows)
        asked = _Bounded(query, self._metric, self._basis)
        least, best = -math.inf, np.empty(0)
        places, keys = list[NDArray[np.intp]](), list[NDArray[np.float64]]()
        for block in self._blocks(rows, among):
            coarse = excluding(self._keys(asked.apart, block), block.allowed)
            likely = max(kth_highest(coarse, k + _SEEDS), LOWEST)
            seeds = (coarse >= likely).nonzero()[0][: 4 * k + _MOST_SEEDS]
            scored = asked.keys(rows, block.numbers(seeds))
            best = highest(np.concatenate([best, scored]), k)
            least = float(best[0]) if len(best) == k else least
            slack = asked.slack(*block.worst)
            floor = max((least - slack) / asked.apart.unit, LOWEST)
            chosen = (coarse >= floor).nonzero()[0]
            keys.append(coarse[chosen].astype(np.float64) * asked.apart.unit)
            places.append(block.numbers(chosen))
        found = np.concatenate(places)
        lengths = 1.0 if self._metric == "cosine" else rows.scales[found].astype(np.float64)
        slack = asked.slack(self._errors[found].astype(np.float64), lengths)
        return found[np.concatenate(keys) + slack >= least]

    def _emptied(self) -> Self:
        return type(self)(self._metric, self._products, self._basis)

    def _reduced(self, vectors: Floats, scales: Floats) -> Floats:
        lengths = 1.0 / scales if self._metric == "cosine" else scales
        return self._basis.rows(vectors, lengths)


class _Bounded:
    """A query, as it is and as z, taken apart."""

    def __init__(self, query: Floats, metric: Metric, basis: Basis) -> None:
        self.apart = TakenApart(basis.query(query), metric)
        self._query = query.astype(np.float64)
        self._metric = metric
        self._rounding = 1.01 * basis.slack * math.sqrt(np.dot(self._query, self._query))

    def slack(self, error: Any, length: Any) -> Any:
        """Return how far at most a key is below the score's."""
        return self.apart.slack(error, STRETCH * length) + self._rounding * length

    def keys(self, rows: Rows, numbers: NDArray[np.intp]) -> NDArray[np.float64]:
        """Return the keys of some rows as they are."""
        dots = rows.vectors[numbers].astype(np.float64) @ self._query
        scales = rows.scales[numbers].astype(np.float64)
        if self._metric == "cosine":
            return dots * scales
        return dots - 0.5 * scales * scales if self._metric == "euclidean" else dots


class LearningCodes:
    """Codes of the rows of one partition, of one kind or the other; safe in threads."""

    def __init__(self, metric: Metric, codes: Codes, products: Products, learn_at: int) -> None:
        """Start with these codes, and learn at so many rows."""
        self._metric: Metric = metric
        self._codes, self._products = codes, products
        self._learn_at = learn_at
        self._searches, self._cost = 0, 0.0
        self._lock = Lock()

    @classmethod
    def if_available(cls, metric: Metric, dimension: int) -> Self | None:
        """Return new codes, or None where they cannot be searched fast and without overflow."""
        codes, products = Codes.if_available(metric, dimension), fast_products()
        if codes is None or products is None:
            return None
        return cls(metric, codes, products, _LEARNING_CELLS // dimension + 1)

    def pending(self, size: int) -> int:
        """Return how many of so many rows have no code yet."""
        return self._codes.pending(size) if size < self._learn_at else size

    def candidates(self, rows: Rows, query: Floats, k: int, among: Selection) -> NDArray[np.intp]:
        """Return every row that can be among the k nearest of a selection."""
        if len(rows.vectors) >= self._learn_at:
            with self._lock:
                self._learn(rows.vectors)
        codes = self._codes
        found = codes.candidates(rows, query, k, among)
        if isinstance(codes, ProjectedCodes) and among.positions is None:
            with self._lock:
                self._judge(codes, rows.vectors.shape[1], len(found) / among.count)
        return found

    def moved(self, kept: NDArray[np.intp], scales: Floats) -> Self:
        """Return the codes of these rows alone, in their order; change nothing here."""
        codes = self._codes.moved(kept, scales)
        return type(self)(self._metric, codes, self._products, self._learn_at)

    def _learn(self, vectors: Floats) -> None:
        if len(vectors) < self._learn_at:
            return  # another thread was faster
        basis = learned(vectors, self._metric)
        if basis is not None:
            self._codes = ProjectedCodes(self._metric, self._products, basis)
        elif isinstance(self._codes, ProjectedCodes):
            self._codes = Codes(self._metric, vectors.shape[1], self._products)
        self._learn_at = _LEARNING_GROWTH * len(vectors)
        self._searches, self._cost = 0, 0.0

    def _judge(self, codes: ProjectedCodes, dimension: int, left: float) -> None:
        """Take the rows' own codes where those of their heads leave too much, for such queries."""
        self._searches += 1
        self._cost += cost(codes.width, dimension, left)
        if self._searches == _JUDGED_SEARCHES and codes is self._codes:
            if self._cost > self._searches * cost(dimension, dimension, 0.0):
                self._codes = Codes(self._metric, dimension, self._products)
            self._searches, self._cost = 0, 0.0
