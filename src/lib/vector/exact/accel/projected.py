"""A first pass over codes of a few numbers for each row, where rows allow it.

`ProjectedCodes` holds 8-bit codes of y, the head of a row and the length of its tail (see
`accel.basis`), where `Codes` holds codes of the row. The product with z is above every score,
so it says which rows may be among the nearest. It does not say how near a row is at least: for
that some of the best so far are scored as they are.
"""

from __future__ import annotations

import math
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from lib.vector.exact.accel.basis import STRETCH, Basis
from lib.vector.exact.accel.codes import Codes, Floats, Products, TakenApart
from lib.vector.exact.accel.threshold import highest, left, scored, seeds
from lib.vector.exact.search import Rows, Selection
from lib.vector.records import Metric


class ProjectedCodes(Codes):
    """Codes of what a basis makes of the rows of one partition."""

    def __init__(self, metric: Metric, products: Products, basis: Basis) -> None:
        """Start empty."""
        super().__init__(metric, basis.width, products)
        self._basis = basis

    @property
    def width(self) -> int:
        """How many numbers the code of a row stands for."""
        return self._basis.width

    def candidates(self, rows: Rows, query: Floats, k: int, among: Selection) -> NDArray[np.intp]:
        """Return every row that can be among the k nearest of a selection."""
        self._catch_up(rows)
        asked = _Bounded(query, self._metric, self._basis)
        least, best = -math.inf, np.empty(0)
        places, keys = list[NDArray[np.intp]](), list[NDArray[np.float64]]()
        for block in self._blocks(rows, among):
            coarse = self._keys(asked.apart, block)
            sown = seeds(coarse, block.allowed, k)
            known = scored(rows, asked.query, block.numbers(sown[0]), self._metric)
            best = highest(np.concatenate([best, known]), k)
            least = float(best[0]) if len(best) == k else least
            floor = (least - asked.slack(*block.worst)) / asked.apart.unit
            chosen = left(coarse, block.allowed, floor, sown, k)
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
        self.query = query.astype(np.float64)
        self._rounding = 1.01 * basis.slack * math.sqrt(np.dot(self.query, self.query))

    def slack(self, error: Any, length: Any) -> Any:
        """Return how far at most a key is below the score's."""
        return self.apart.slack(error, STRETCH * length) + self._rounding * length
