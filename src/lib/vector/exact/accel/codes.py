"""A first pass over 8-bit codes: a quarter of the bytes to read, and a proven bound.

A row x is stored as whole numbers c from -127 to 127 and a step s, with what that leaves out:
x = s c + e. The query is taken apart in the same way: q = t b + f. Then

    x q = s t (c b) + (s c) f + e q

where |s c| <= |x| + |e|, so that s t (c b) is off by at most

    |e| (|q| + |f|) + |x| |f|.

Rows that cannot be among the best by this bound are left out; on embeddings some tens of 100,000
remain, which are then scored by the definition. Sums of unsigned bytes are faster than of signed
ones, hence C = c + 128 and B = b + 128 are multiplied:

    c b = C B - 128 (sum of C) - 128 (sum of b)

The sums are exact in 32 bits (multiples of 128 below 2**31). C B is not, nor are the differences:
below 2**16 d, 2**17 d and 2**14 d in size, they are rounded by less than d / 64 together, and as
t <= |q| / 127 (or b = 0, when nothing is rounded), adding s d / 4096 to |e| covers that. What is
left is the rounding of a key relative to its size, and underflow, both allowed for generously.

The rows are read in blocks. A whole block is measured with the largest |e| and |x| in it, which
takes one comparison per row; the few that pass are then measured with their own. The least that
the k best of the rows read so far must have is all that passes on from block to block. Nothing
depends on it but the time.

Needs simsimd (the extra `fast`); without it a first pass reads 32-bit floats (`exact.search`,
`accel.heads`), and the results are the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from threading import Lock
from typing import Any, Final, NamedTuple, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lib.vector.exact.accel.basis import STRETCH, Basis
from lib.vector.exact.accel.threshold import highest, left, reached, reaching, scored, seeds
from lib.vector.exact.search import Rows, Selection, grown
from lib.vector.records import Metric

Codes8: TypeAlias = NDArray[np.uint8]
Floats: TypeAlias = NDArray[np.float32]
Products: TypeAlias = Callable[[Codes8, Codes8], Floats]
"""The dot products of one row of codes with each of many, exact but for one rounding."""

_LARGEST: Final = 127
MOST_ELEMENTS: Final = (2**31 - 1) // 255**2  # so that no sum of products overflows 32 bits
_BLOCK_BYTES: Final = 12 << 20  # what is done for a block costs little beside reading it
_GATHERED_BYTES: Final = 3 << 19  # what is copied stays in the cache
_CODED_CELLS: Final = 1 << 17
_REGISTER_BYTES: Final = 64
_SMALLEST_STEP: Final = 2.0**-100
ROUNDING: Final = 2.0**-20  # of the few operations on a key and its score, relative to them
UNDERFLOW: Final = 2.0**-120


class Codes:
    """Codes of the rows of one partition, made when they are first searched; safe in threads."""

    speedup = 4

    def __init__(self, metric: Metric, dimension: int, products: Products) -> None:
        """Start empty."""
        self._metric: Metric = metric
        self._products = products
        self._codes = np.empty((0, coded_width(dimension)), np.uint8)  # C, then zeros
        self._sums = np.empty(0, np.float32)  # 128 times the sum of C
        self._steps = np.empty(0, np.float32)  # s, and under cosine s / |x|
        self._errors = np.empty(0, np.float32)  # no less than |e|, and under cosine |e| / |x|
        self._worst: list[_Worst] = []
        self._size = 0
        self._rows_at_once = max(1, _BLOCK_BYTES // self._codes.shape[1])
        self._lock = Lock()

    def pending(self, size: int) -> int:
        """Return how many of so many rows have no code yet."""
        return max(0, size - self._size)

    def moved(self, kept: NDArray[np.intp], scales: Floats) -> Self:
        """Return the codes of these rows alone, in their order; change nothing here."""
        codes = self._emptied()
        with self._lock:
            known = kept[: np.searchsorted(kept, self._size)]
            parts = (self._codes[known], self._sums[known], self._steps[known], self._errors[known])
        codes._fill(*parts, scales[known])  # noqa: SLF001 - it is one of these
        return codes

    def _fill(
        self, codes: Codes8, sums: Floats, steps: Floats, errors: Floats, scales: Floats
    ) -> None:
        self._codes, self._sums, self._steps, self._errors = codes, sums, steps, errors
        self._size = len(codes)
        self._measure(0, self._size, scales)

    def _emptied(self) -> Self:
        """Return codes of the same kind, without any row."""
        return type(self)(self._metric, self._codes.shape[1], self._products)

    def _reduced(self, vectors: Floats, scales: Floats) -> Floats:
        """Return what of the rows is coded: here, the rows."""
        return vectors

    def candidates(self, rows: Rows, query: Floats, k: int, among: Selection) -> NDArray[np.intp]:
        """Return every row that can be among the k nearest of a selection."""
        self._catch_up(rows)
        parts = QueryParts(query, self._metric)
        least, best = -math.inf, np.empty(0)
        places, keys = list[NDArray[np.intp]](), list[NDArray[np.float64]]()
        for block in self._blocks(rows, among):
            coarse = self._keys(parts, block)
            slack = parts.slack(*block.worst)
            if least == -math.inf:
                least = reached(coarse, block.allowed, k) * parts.unit - slack
            chosen = reaching(coarse, block.allowed, (least - slack) / parts.unit)
            if len(chosen):
                keys.append(coarse[chosen].astype(np.float64) * parts.unit)
                places.append(block.numbers(chosen))
                best = highest(np.concatenate([best, keys[-1] - slack]), k)
                least = max(least, float(best[0])) if len(best) == k else least
        return self._measured(rows, parts, np.concatenate(places), np.concatenate(keys), k)

    def _measured(
        self,
        rows: Rows,
        parts: QueryParts,
        places: NDArray[np.intp],
        keys: NDArray[np.float64],
        k: int,
    ) -> NDArray[np.intp]:
        """Return which of the places can be among the k best, by what is known of each."""
        lengths = 1.0 if self._metric == "cosine" else rows.scales[places].astype(np.float64)
        slack = parts.slack(self._errors[places].astype(np.float64), lengths)
        return places[keys + slack >= highest(keys - slack, k)[0]]

    def _keys(self, parts: QueryParts, block: _Block) -> Floats:
        """Return keys as those of `lib.vector.exact.search`, in units of the query's."""
        keys = self._products(parts.code, block.codes)
        keys -= parts.sum
        keys -= block.sums
        keys *= block.steps
        if self._metric == "euclidean":
            keys *= parts.step
            keys -= 0.5 * block.scales * block.scales
        return keys

    def _blocks(self, rows: Rows, among: Selection) -> Iterator[_Block]:
        """Yield the rows of a selection, read in order where there is no list of them."""
        codes, sums, steps = self._codes, self._sums, self._steps
        if among.positions is None:
            size, mask = len(rows.vectors), among.mask
            for number, start in enumerate(range(0, size, self._rows_at_once)):
                part = slice(start, min(start + self._rows_at_once, size))
                yield _Block(
                    start,
                    codes[part],
                    sums[part],
                    steps[part],
                    rows.scales[part],
                    self._worst[number],
                    None if mask is None else mask[part],
                )
            return
        step = max(1, _GATHERED_BYTES // codes.shape[1])
        for start in range(0, among.count, step):
            some = among.positions[start : start + step]
            scales = rows.scales[some]
            yield _Block(
                some,
                # "clip" checks nothing, and the positions are right: faster than "raise"
                np.take(codes, some, axis=0, mode="clip"),
                sums[some],
                steps[some],
                scales,
                self._worst_of(self._errors[some], scales),
                None,
            )

    def _catch_up(self, rows: Rows) -> None:
        """Make codes of the rows that have none."""
        size = len(rows.vectors)
        if size > self._size:
            with self._lock:
                self._extend(rows.vectors[self._size :], rows.scales[self._size :])

    def _extend(self, vectors: Floats, scales: Floats) -> None:
        size = self._size + len(vectors)
        if size > len(self._codes):
            capacity = size + self._size // 2
            self._codes = grown(self._codes, capacity)
            self._sums = grown(self._sums, capacity)
            self._steps = grown(self._steps, capacity)
            self._errors = grown(self._errors, capacity)
        rows_at_once = max(1, _CODED_CELLS // vectors.shape[1])
        for start in range(0, len(vectors), rows_at_once):
            part = slice(start, start + rows_at_once)
            place = slice(self._size + start, self._size + start + len(vectors[part]))
            codes, sums, steps, errors = _encoded(self._reduced(vectors[part], scales[part]))
            unit = scales[part] if self._metric == "cosine" else np.float32(1.0)
            self._codes[place], self._sums[place] = codes, sums
            self._steps[place], self._errors[place] = steps * unit, errors * unit
        self._measure(self._size, size, scales)
        self._size = size

    def _measure(self, start: int, end: int, scales: Floats) -> None:
        """Note the worst of each block, once the rows from one to before another are in it."""
        first = start
        while start < end:
            number = start // self._rows_at_once
            stop = min(end, (number + 1) * self._rows_at_once)
            worst = self._worst_of(self._errors[start:stop], scales[start - first : stop - first])
            if number < len(self._worst):
                known = self._worst[number]
                self._worst[number] = max(known[0], worst[0]), max(known[1], worst[1])
            else:
                self._worst.append(worst)
            start = stop

    def _worst_of(self, errors: Floats, scales: Floats) -> _Worst:
        longest = 1.0 if self._metric == "cosine" else float(scales.max())
        return float(errors.max()), longest


_Worst: TypeAlias = tuple[float, float]  # the largest |e| and |x|


class _Block(NamedTuple):
    """Some rows: what is known of each, and which of them may be found."""

    places: int | NDArray[np.intp]
    codes: Codes8
    sums: Floats
    steps: Floats
    scales: Floats
    worst: _Worst
    allowed: NDArray[np.bool_] | None

    def numbers(self, chosen: NDArray[np.intp]) -> NDArray[np.intp]:
        """Return which rows of the namespace some of these are."""
        return chosen + self.places if isinstance(self.places, int) else self.places[chosen]


class QueryParts:
    """A query, taken apart.

    Attributes:
        code: B, as a matrix of one row, then zeros.
        sum: 128 times the sum of b.
        step: t.
        unit: what keys have to be multiplied with.
    """

    def __init__(self, query: Floats, metric: Metric) -> None:
        peak = float(np.abs(query).max())
        self.step: float = float(np.float32(peak / _LARGEST))
        if self.step < _SMALLEST_STEP:
            self.step = 1.0  # the query is left out as a whole
        wide = query.astype(np.float64)
        code = np.rint(wide / self.step)
        rest = wide - code * self.step
        self.code: Codes8 = _padded(code[np.newaxis] + 128.0)
        self.sum: float = 128.0 * float(code.sum())
        self._euclidean = metric == "euclidean"
        self.unit: float = 1.0 if self._euclidean else self.step
        self._length = math.sqrt(np.dot(wide, wide))
        self._rest = 1.001 * math.sqrt(np.dot(rest, rest))

    def slack(self, error: Any, length: Any) -> Any:
        """Return how far at most a key is off, for a row with such an |e| and |x|."""
        slack = error * (self._length + self._rest)
        slack = slack + length * (self._rest + ROUNDING * self._length) + UNDERFLOW
        if self._euclidean:
            slack = slack + ROUNDING * (length + self._length) ** 2
        return slack


def _encoded(vectors: Floats) -> tuple[Codes8, Floats, Floats, Floats]:
    """Return for each row C, 128 times its sum, s, and the most that they leave out."""
    steps = np.maximum(vectors.max(axis=1), -vectors.min(axis=1)) / np.float32(_LARGEST)
    steps[steps < _SMALLEST_STEP] = 1.0  # the row is left out as a whole
    rest = vectors * (np.float32(1.0) / steps)[:, np.newaxis]
    codes = np.rint(rest)
    rest -= codes
    codes += np.float32(128.0)
    d = vectors.shape[1]
    allowance = math.sqrt(d) * 2.0**-15 + d / 4096  # the quotient's rounding, and see above
    errors = np.float32(1.01) * np.sqrt(np.einsum("ij,ij->i", rest, rest)) + np.float32(allowance)
    sums = np.float32(128.0) * codes.sum(axis=1)
    return _padded(codes), sums, steps, steps * errors


def coded_width(dimension: int) -> int:
    """Return how many bytes the code of so many numbers takes: whole registers of 64.

    Products of rows that end within one take two to three times as long.
    """
    return -(-dimension // _REGISTER_BYTES) * _REGISTER_BYTES


def _padded(codes: NDArray[Any]) -> Codes8:
    """Return the codes as bytes, each row followed by zeros, which add nothing to a product."""
    padded = np.zeros((len(codes), coded_width(codes.shape[1])), np.uint8)
    padded[:, : codes.shape[1]] = codes
    return padded


@cache
def fast_products() -> Products | None:
    """Return the products of simsimd, if it is installed and computes them right here.

    Its own threads are not used: they wait for each other in a loop, which takes ten times as
    long as the work as soon as one of them has to share its core. Nor is its `out`, which drops
    a reference to None with every call.
    """
    try:
        simsimd: Any = import_module("simsimd")
    except ImportError:
        return None

    def products(code: Codes8, codes: Codes8) -> Floats:
        return np.asarray(simsimd.cdist(code, codes, "dot", out_dtype="float32"))[0]

    sample = (255 - np.arange(3 * 333) % 256).astype(np.uint8).reshape(3, 333)
    right = (sample.astype(np.int64) @ sample[0].astype(np.int64)).astype(np.float32)
    found = products(sample[:1], sample)
    return products if found.dtype == np.float32 and np.array_equal(found, right) else None


class ProjectedCodes(Codes):
    """Codes of what a basis makes of the rows of one partition."""

    def __init__(self, metric: Metric, products: Products, basis: Basis) -> None:
        """Start empty."""
        super().__init__(metric, basis.width, products)
        self._basis = basis

    @property
    def width(self) -> int:
        """The count of numbers that the code of a row stands for."""
        return self._basis.width

    def candidates(self, rows: Rows, query: Floats, k: int, among: Selection) -> NDArray[np.intp]:
        """Return every row that can be among the k nearest of a selection."""
        self._catch_up(rows)
        parts = _BoundedQuery(query, self._metric, self._basis)
        least, best = -math.inf, np.empty(0)
        places, keys = list[NDArray[np.intp]](), list[NDArray[np.float64]]()
        for block in self._blocks(rows, among):
            coarse = self._keys(parts.apart, block)
            sown = seeds(coarse, block.allowed, k)
            known = scored(rows, parts.query, block.numbers(sown[0]), self._metric)
            best = highest(np.concatenate([best, known]), k)
            least = float(best[0]) if len(best) == k else least
            floor = (least - parts.slack(*block.worst)) / parts.apart.unit
            chosen = left(coarse, block.allowed, floor, sown, k)
            keys.append(coarse[chosen].astype(np.float64) * parts.apart.unit)
            places.append(block.numbers(chosen))
        found = np.concatenate(places)
        lengths = 1.0 if self._metric == "cosine" else rows.scales[found].astype(np.float64)
        slack = parts.slack(self._errors[found].astype(np.float64), lengths)
        return found[np.concatenate(keys) + slack >= least]

    def _emptied(self) -> Self:
        return type(self)(self._metric, self._products, self._basis)

    def _reduced(self, vectors: Floats, scales: Floats) -> Floats:
        lengths = 1.0 / scales if self._metric == "cosine" else scales
        return self._basis.rows(vectors, lengths)


class _BoundedQuery:
    """A query, as it is and as z, taken apart."""

    def __init__(self, query: Floats, metric: Metric, basis: Basis) -> None:
        self.apart = QueryParts(basis.query(query), metric)
        self.query = query.astype(np.float64)
        self._rounding = 1.01 * basis.slack * math.sqrt(np.dot(self.query, self.query))

    def slack(self, error: Any, length: Any) -> Any:
        """Return how far at most a key is below the score's."""
        return self.apart.slack(error, STRETCH * length) + self._rounding * length
