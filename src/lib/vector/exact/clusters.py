"""Clusters of rows: three bytes of each row, from which a proven bound leaves most rows out.

A row x (divided by its length under cosine) is seen from a centre c, and belongs to the cluster
whose centre m is about the nearest: x = c + m + w, with |w| <= r. What is kept of it is the number
of its cluster, and r as a whole number of steps, rounded up. With a query q (divided by its length
under cosine), the Cauchy-Schwarz and the triangle inequality bound what the row is worth:

    x q      <= c q + m q + r |q|        (cosine, dot product)
    |x - q|  >= |m - (q - c)| - r        (euclidean, cosine: there x q = 1 - |x - q|^2 / 2)

Only m differs from cluster to cluster, so a search computes once for each cluster which r a row has
to have at least, and looks that up for each row: whole numbers are compared.

x - c is computed in 32 bits and so is off by at most 2**-24 of itself in each number; under cosine
x / |x| is before, by at most 2**-22 in all. w is off by 2**-24 of itself once more. r holds all of
it. m q is computed in 32 bits with q of length 1, and so is off by at most what `exact.bounds`
says, relative to |m|; what 32 bits lose of numbers next to nothing is less than `_UNDERFLOW`.
"""

from __future__ import annotations

import math
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lib.vector.exact.bounds import SCORE_ROUNDING, Floats, Wide
from lib.vector.exact.search import row_lengths
from lib.vector.records import Metric

Numbers: TypeAlias = NDArray[np.uint16]
Spans: TypeAlias = NDArray[np.uint8]

_ROWS_PER_CLUSTER: Final = 6  # of those that clusters are chosen from
_MOST: Final = 1 << 14
_ROUNDS: Final = 5  # of Lloyd's algorithm
_AT_ONCE: Final = 1 << 12
_ANY: Final = 255  # the span of a row that may be anywhere
_OFF: Final = 2.0**-21
_UNDERFLOW: Final = 2.0**-110


class Clusters:
    """The centres of clusters, chosen from a sample of rows, in two levels.

    Attributes:
        metric: how the rows are searched.
        centre: from which they are seen.
        means: the centre of each cluster, as it is seen from there.
        lengths: those of these.
        step: of the spans of rows.
    """

    def __init__(self, metric: Metric, centre: Wide, sample: Floats) -> None:
        """Choose them.

        Args:
            metric: how the rows are searched.
            centre: from which they are seen.
            sample: some rows, as they are seen; at least one.
        """
        self.metric: Metric = metric
        self.centre: Wide = centre
        count = max(1, min(_MOST, len(sample) // _ROWS_PER_CLUSTER))
        noise = np.random.default_rng(0)
        means = _means(sample, math.isqrt(count), noise)
        members = [rows for rows in _members(_Nearest(means).of(sample), len(means)) if len(rows)]
        leaves = [
            _means(sample[rows], max(1, count * len(rows) // len(sample)), noise)
            for rows in members
        ]
        self._groups = _Nearest(np.stack([some.mean(axis=0) for some in leaves]))
        self._starts = np.cumsum([0, *map(len, leaves)])
        self.means: Floats = np.concatenate(leaves)
        self._leaves = [_Nearest(some) for some in np.split(self.means, self._starts[1:-1])]
        self.lengths: Wide = row_lengths(self.means)
        spans = self._spans(sample, self.numbers(sample))
        self.step: float = max(1.5 * float(np.quantile(spans, 0.999)) / _ANY, _UNDERFLOW)

    @property
    def nbytes(self) -> int:
        """Bytes in memory, about."""
        return self.means.nbytes

    def numbers(self, seen: Floats) -> Numbers:
        """Return the clusters of rows, as they are seen from the centre."""
        numbers = np.empty(len(seen), np.uint16)
        for group, rows in enumerate(_members(self._groups.of(seen), len(self._leaves))):
            if len(rows):
                numbers[rows] = self._starts[group] + self._leaves[group].of(seen[rows])
        return numbers

    def spans(self, seen: Floats, numbers: Numbers) -> Spans:
        """Return by how many steps rows are away from the centres of their clusters at most."""
        steps = np.ceil(self._spans(seen, numbers) / self.step * (1.0 + 2.0**-40))
        return np.where(steps < _ANY, steps, _ANY).astype(np.uint8)  # what is no number as well

    def _spans(self, seen: Floats, numbers: Numbers) -> Wide:
        spans = np.empty(len(seen))
        for start in range(0, len(seen), _AT_ONCE):
            part = slice(start, start + _AT_ONCE)
            spans[part] = row_lengths(seen[part] - self.means[numbers[part]])
        spans *= 1.0 + 2.0**-20
        return spans + _OFF * (row_lengths(seen) + (self.metric == "cosine")) + _UNDERFLOW


class ClusterQuery:
    """A query as it is seen from the centres of clusters.

    Attributes:
        promises: what each cluster promises; more is better.
    """

    def __init__(self, clusters: Clusters, query: Floats) -> None:
        """Compare the query with all centres."""
        wide = query.astype(np.float64)
        if clusters.metric == "cosine":
            wide /= math.sqrt(wide @ wide)
        self._metric: Metric = clusters.metric
        self._step = clusters.step
        self._distances: Wide | None = None
        if clusters.metric != "dot":
            self._distances = _distances(clusters, wide)
        self._products: Wide | None = None
        if clusters.metric != "euclidean":
            self._products, self._constant, self._length = _products(clusters, wide)
        promises = self._products if self._distances is None else -self._distances
        self.promises: Wide = np.zeros(0) if promises is None else promises

    def least_spans(self, least: float) -> Spans:
        """Return the span that a row of each cluster has at least, if it is worth so much.

        A row that may be anywhere has the largest.

        Args:
            least: what it is worth.
        """
        needed = np.zeros(len(self.promises))
        if self._distances is not None:
            worth = least - 1.0 - 2.0**-20 if self._metric == "cosine" else least
            farthest = math.sqrt(max(0.0, -2.0 * worth)) * (1.0 + 2.0**-20)
            needed = np.fmax(needed, self._distances - farthest)
        if self._products is not None and self._length > 0.0:
            needed = np.fmax(needed, (least - self._constant) / self._length - self._products)
        needed *= (1.0 - 2.0**-40) / self._step
        return np.minimum(needed, _ANY).astype(np.uint8)


def _distances(clusters: Clusters, query: Wide) -> Wide:
    """Return no more than the distances of the query from centres."""
    seen = query - clusters.centre
    length = math.sqrt(seen @ seen)
    products, off = _products_of_units(clusters, seen, length)
    sizes = clusters.lengths**2 + length * length
    squares = sizes - 2.0 * length * (products + off) - 2.0**-40 * sizes
    return np.sqrt(np.maximum(squares, 0.0)) * (1.0 - 2.0**-20)


def _products(clusters: Clusters, query: Wide) -> tuple[Wide, float, float]:
    """Return no less than m q / |q| of the centres and what scores are off, then c q and |q|."""
    length = math.sqrt(query @ query)
    products, off = _products_of_units(clusters, query, length)
    # what a score loses by its rounding, for |x| <= |c| + |m| + r
    centre = math.sqrt(clusters.centre @ clusters.centre)
    products += off + SCORE_ROUNDING * (centre + clusters.lengths + _ANY * clusters.step)
    return products, float(clusters.centre @ query), length


def _products_of_units(clusters: Clusters, query: Wide, length: float) -> tuple[Wide, Wide]:
    """Return the products of the centres with a query of length 1, and what they are off."""
    steps = (len(query) + 16) * 2.0**-24
    unit = (query / length if length > 0.0 else 0.0 * query).astype(np.float32)
    off = 1.001 * steps / (1.0 - steps) * clusters.lengths + _UNDERFLOW
    return (clusters.means @ unit).astype(np.float64), off


class _Nearest:
    """Looks for the nearest of some centres."""

    def __init__(self, means: Floats) -> None:
        self._means = means
        self._halves = np.float32(0.5) * np.einsum("ij,ij->i", means, means)

    def of(self, vectors: Floats) -> NDArray[np.intp]:
        """Return the number of about the nearest centre of each row."""
        numbers = np.empty(len(vectors), np.intp)
        for start in range(0, len(vectors), _AT_ONCE):
            products = vectors[start : start + _AT_ONCE] @ self._means.T
            products -= self._halves
            products.argmax(axis=1, out=numbers[start : start + _AT_ONCE])
        return numbers


def _means(vectors: Floats, count: int, noise: np.random.Generator) -> Floats:
    """Return centres of clusters (Lloyd's algorithm); one that no row is nearest to stays."""
    if count >= len(vectors):
        return vectors.copy()
    means = vectors[noise.choice(len(vectors), count, replace=False)]
    for _ in range(_ROUNDS):
        for number, rows in enumerate(_members(_Nearest(means).of(vectors), count)):
            if len(rows):
                means[number] = vectors[rows].mean(axis=0)
    return means


def _members(numbers: NDArray[np.intp], count: int) -> list[NDArray[np.intp]]:
    """Return the rows of each number."""
    order = np.argsort(numbers, kind="stable")
    return np.split(order, np.searchsorted(numbers[order], np.arange(1, count)))
