"""`Scan`: the nearest of rows that are shown once, some at a time and in any order."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from lib.vector.exact.bounds import Floats, View, lowest
from lib.vector.exact.search import Scoring

Places = NDArray[np.intp]


class Scan:
    """Scores the rows that can be among the k nearest, and keeps those that are so far.

    Attributes:
        least: what a row has to be worth to be among them.
    """

    def __init__(self, scoring: Scoring, query: Floats, k: int) -> None:
        """Start without rows; a scan is used with numpy's warnings off, see `exact.search`."""
        self.least: float = -math.inf
        self._scoring, self._k = scoring, k
        self._view = View(query, scoring.metric)
        self._places, self._costs = [np.empty(0, np.intp)], [np.empty(0, np.float32)]
        self._kept = self._found = 0

    def add(self, places: Places, vectors: Floats) -> None:
        """Show some rows: where they are, and their vectors."""
        if self.least > -math.inf:
            passing = self._view.of_rows(vectors) >= self.least
            if not passing.any():
                return
            places, vectors = places[passing], vectors[passing]
        self._places.append(places)
        self._costs.append(self._scoring.scores(vectors) * self._scoring.sign)
        self._found += len(places)
        if self._found >= max(self._k, 2 * self._kept):  # many may be worth the same
            self._keep_best()

    def best(self) -> tuple[Places, Floats]:
        """Return the k nearest rows, and all that score like the last of them, with their costs."""
        if self._found >= self._k:
            self._keep_best()
        return np.concatenate(self._places), np.concatenate(self._costs)

    def _keep_best(self) -> None:
        places, costs = np.concatenate(self._places), np.concatenate(self._costs)
        kth = lowest(costs, self._k)
        best = costs <= kth
        self._places, self._costs = [places[best]], [costs[best]]
        self._kept = self._found = len(self._places[0])
        self.least = self._view.least(self._scoring.sign * kth)
