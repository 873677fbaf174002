"""A few directions that hold most of what vectors are, learned from the vectors themselves.

Embeddings fill their space unevenly: a third of the dimensions, chosen well, holds nearly all of
it. A row x is taken apart by the directions W (orthonormal columns, d by m): its head h, about
W'x, and its tail r = x - W h. With the query's head g and tail p likewise,

    x q = h g + r p + (W'q - g) h + (W'r) g

of which the last two terms are rounding, and |r p| <= |r| |p|. So the head with the length of the
tail as one more number, y = (h, |r|), times z = (g, |p|), is no less than x q but for rounding.
This holds for any W and any h; how few rows it leaves depends on how well W was learned.

Rounding: a row is divided by its length first, so that no square underflows, and multiplied by it
last. Then its computed head is off by at most A |x|, A being sqrt(m) times the error of one dot
product of d terms and some more, and so is its tail; W'r = (W'x - h) - (W'W - I) h, with D no less
than the norm of W'W - I. Together the two terms are at most (2.1 A + 1.1 D) |x| |q|. What is so
short that its length is not exact is coded as nothing, with an error that is far longer.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from lib.vector.records import Metric

Floats = NDArray[np.float32]

STRETCH: Final = 1.1
"""|y| is at most so many times |x|, and |z| so many times |q|."""

SURVIVOR: Final = 12.0
"""What a number of a row that is left costs, in the time of reading one byte in order."""

_SAMPLE: Final = 4096
_TRIALS: Final = 24
_WANTED: Final = 10  # neighbours that a search is assumed to be for
_WIDTHS: Final = (31, 47, 63, 127, 191, 255, 383, 511)  # with the tail, whole cache lines of floats
_LARGEST_DIMENSION: Final = 1536  # above, learning takes seconds
_TINY: Final = 2.0**-100


@dataclass(frozen=True, slots=True, kw_only=True)
class Basis:
    """Directions, and how exact they are.

    Attributes:
        directions: W, d rows of m 32-bit floats.
        wide: the same in 64 bits.
        rounding: A.
        skew: D.
    """

    directions: Floats
    wide: NDArray[np.float64]
    rounding: float
    skew: float

    @classmethod
    def of(cls, directions: NDArray[np.float64]) -> Basis:
        """Return the basis of these columns, which are orthonormal but for rounding."""
        narrow = np.ascontiguousarray(directions, np.float32)
        wide = narrow.astype(np.float64)
        dimension, width = wide.shape
        steps = (dimension + 16) * 2.0**-24
        return cls(
            directions=narrow,
            wide=wide,
            rounding=1.01 * (math.sqrt(width) * steps / (1.0 - steps) + 2.0**-20),
            skew=1.001 * float(np.linalg.norm(wide.T @ wide - np.eye(width))),
        )

    @property
    def width(self) -> int:
        """The numbers that stand for a row: its head, and the length of its tail."""
        return self.directions.shape[1] + 1

    @property
    def slack(self) -> float:
        """The most that z y may be below x q, relative to |x| |q|, but for what underflows in z."""
        return 2.1 * self.rounding + 1.1 * self.skew

    def rows(self, vectors: Floats, lengths: Floats) -> Floats:
        """Return y for each row, the length of its tail rounded up."""
        lengths = np.where(lengths < _TINY, np.float32(0.0), lengths)
        inverse = np.divide(1.0, lengths, out=np.zeros_like(lengths), where=lengths > 0.0)
        units = vectors * inverse[:, np.newaxis]
        taken = np.empty((len(vectors), self.width), np.float32)
        heads = np.matmul(units, self.directions, out=taken[:, :-1])
        units -= heads @ self.directions.T
        tails = np.sqrt(np.einsum("ij,ij->i", units, units))
        taken[:, -1] = np.float32(1.001) * tails + np.float32(1.01 * self.rounding)
        taken *= lengths[:, np.newaxis]
        return taken

    def query(self, query: Floats) -> Floats:
        """Return z."""
        wide = query.astype(np.float64)
        head = (wide @ self.wide).astype(np.float32)
        rest = wide - self.wide @ head.astype(np.float64)
        length = math.sqrt(np.dot(wide, wide))
        tail = 1.001 * math.sqrt(np.dot(rest, rest)) + self.rounding * length
        return np.append(head, np.float32(tail))


def learned(
    vectors: Floats, metric: Metric, reading: Callable[[int], float], worth: float
) -> Basis | None:
    """Return the directions that make searching these rows fastest; None if none would help.

    How many are worth it is tried out: some rows of a sample are searched for in it, and it is
    counted how many rows each number of directions would leave.

    Args:
        vectors: the rows.
        metric: how they are searched.
        reading: what it costs for each row to read so many numbers of it.
        worth: what a search may cost for each row, what is left of them included.

    Source: I. T. Jolliffe, Principal component analysis, 2nd ed., 2002 (without the mean, since
    what counts is the dot product and not the variance).
    """
    count, dimension = vectors.shape
    if dimension > _LARGEST_DIMENSION or dimension < 2 * _WIDTHS[0]:
        return None
    sample = _sample(vectors, metric)
    if len(sample) < _TRIALS:
        return None
    _, found = np.linalg.eigh(sample.T @ sample)
    directions = found[:, ::-1]
    queries = _trials(sample)
    rank = 1 + math.ceil(_WANTED * len(sample) / count)  # its own row, and its share of the nearest
    least = np.partition(_keys(sample, queries, metric), -rank, axis=0)[-rank]
    costs = {
        width: reading(width + 1)
        + SURVIVOR * dimension * _left(sample, queries, least, directions[:, :width], metric)
        for width in _WIDTHS
        if 2 * width <= dimension
    }
    best = min(costs, key=costs.__getitem__)
    return Basis.of(directions[:, :best]) if costs[best] <= worth else None


def _sample(vectors: Floats, metric: Metric) -> NDArray[np.float64]:
    """Return some rows, spread evenly; under cosine of length 1, else at most of length 1."""
    places = np.linspace(0, len(vectors) - 1, min(_SAMPLE, len(vectors))).astype(np.intp)
    some = vectors[places].astype(np.float64)
    lengths = np.sqrt(np.einsum("ij,ij->i", some, some))
    some, lengths = some[lengths > 0.0], lengths[lengths > 0.0]
    if not len(some):
        return some
    return some / (lengths[:, np.newaxis] if metric == "cosine" else lengths.max())


def _trials(sample: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return queries: rows with noise, since questions lie farther from documents than these do."""
    rows = sample[:: len(sample) // _TRIALS][:_TRIALS]
    noise = np.random.default_rng(0).standard_normal(rows.shape)
    length = np.linalg.norm(rows, axis=1) / np.linalg.norm(noise, axis=1)
    return rows + 0.5 * length[:, np.newaxis] * noise


def _keys(sample: Any, queries: Any, metric: Metric, lengths: Any = None) -> Any:
    """Return for each row and query what orders the rows, higher being better."""
    dots = sample @ queries.T
    if metric == "euclidean":
        whole = sample if lengths is None else lengths
        dots -= 0.5 * np.einsum("ij,ij->i", whole, whole)[:, np.newaxis]
    return dots


def _left(sample: Any, queries: Any, least: Any, directions: Any, metric: Metric) -> float:
    """Return which share of the sample these directions leave."""
    heads, wanted = sample @ directions, queries @ directions
    tails = np.linalg.norm(sample - heads @ directions.T, axis=1)
    missed = np.linalg.norm(queries - wanted @ directions.T, axis=1)
    bounds = _keys(heads, wanted, metric, sample) + np.outer(tails, missed)
    return float((bounds >= least).mean())
