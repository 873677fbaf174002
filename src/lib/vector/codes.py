"""A first pass over 8-bit codes: a quarter of the bytes to read, and a proven bound.

A row x is stored as whole numbers c from -127 to 127 and a step s, with what that leaves out:
x = s c + e. The query is taken apart in the same way: q = t b + f. Then

    x q = s t (c b) + (s c) f + e q

where c b is computed in whole numbers, without error, and the rest is at most
(|x| + |e|) |f| + |e| |q|. Rows that cannot be among the best by this bound are left out; on
embeddings some tens of 100,000 remain, which are then scored by the definition.

Needs simsimd (the extra `fast`); without it the first pass is the one of `lib.vector.exact`, and
the results are the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from importlib import import_module
from threading import Lock
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lib.vector.exact import EXCLUDED, Rows, Selection, grown
from lib.vector.records import Metric

Products: TypeAlias = Callable[[NDArray[np.int8], NDArray[np.int8]], NDArray[Any]]
"""The dot products of one code with many rows of codes, without error."""

_LARGEST: Final = 127
_MOST_ELEMENTS: Final = (2**31 - 1) // _LARGEST**2  # so that no sum of products overflows 32 bits
_CODED_AT_ONCE: Final = 1 << 20
_SMALLEST_STEP: Final = 2.0**-100
_ROUNDING: Final = 2.0**-20  # of the few operations on a key and its score, relative to them


class Codes:
    """Codes of the rows of one partition, made when they are first searched; safe in threads."""

    def __init__(self, metric: Metric, dimension: int, products: Products) -> None:
        """Start empty."""
        self._metric: Metric = metric
        self._products = products
        self._codes = np.empty((0, dimension), np.int8)
        self._steps = np.empty(0, np.float32)  # s, and under cosine s / |x|
        self._errors = np.empty(0, np.float32)  # no less than |e|, and under cosine |e| / |x|
        self._size = 0
        self._lock = Lock()

    @classmethod
    def if_available(cls, metric: Metric, dimension: int) -> Codes | None:
        """Return new codes, or None where they cannot be searched fast and without overflow."""
        products = _fast_products()
        if products is None or dimension > _MOST_ELEMENTS:
            return None
        return cls(metric, dimension, products)

    def pending(self, size: int) -> int:
        """Return how many of so many rows have no code yet."""
        return max(0, size - self._size)

    def candidates(
        self, rows: Rows, query: NDArray[np.float32], k: int, among: Selection
    ) -> NDArray[np.intp]:
        """Return every row that can be among the k nearest of a selection."""
        codes, steps, errors = self._views(rows)
        scales, positions = rows.scales, among.positions
        if positions is not None:
            codes = np.take(codes, positions, axis=0, mode="clip")
            steps, errors, scales = steps[positions], errors[positions], scales[positions]
        keys, slack = self._bounded(query, codes, steps, errors, scales)
        if positions is None and among.mask is not None:
            keys -= EXCLUDED * ~among.mask
        sure = np.partition(keys - slack, len(keys) - k)[len(keys) - k]
        found = np.flatnonzero(keys + slack >= sure)
        return found if positions is None else positions[found]

    def _bounded(
        self,
        query: NDArray[np.float32],
        codes: NDArray[np.int8],
        steps: NDArray[np.float32],
        errors: NDArray[np.float32],
        scales: NDArray[np.float32],
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return keys as those of `lib.vector.exact`, and how far each is off at most."""
        code, step, rest = _encoded(query[np.newaxis])
        length, rest = float(np.linalg.norm(query)), float(rest[0])
        keys = self._products(code[0], codes).astype(np.float32) * (steps * step)
        lengths = 1.0 if self._metric == "cosine" else scales
        slack = errors * (length + rest) + lengths * (rest + _ROUNDING * length)
        if self._metric == "euclidean":
            keys -= 0.5 * scales * scales
            slack += _ROUNDING * (scales + length) ** 2
        return keys, slack

    def _views(
        self, rows: Rows
    ) -> tuple[NDArray[np.int8], NDArray[np.float32], NDArray[np.float32]]:
        """Return codes, steps and errors of the rows, once all of them have a code."""
        size = len(rows.vectors)
        if size > self._size:
            with self._lock:
                self._extend(rows.vectors[self._size :], rows.scales[self._size :])
        return self._codes[:size], self._steps[:size], self._errors[:size]

    def _extend(self, vectors: NDArray[np.float32], scales: NDArray[np.float32]) -> None:
        size = self._size + len(vectors)
        if size > len(self._codes):
            capacity = size + self._size // 2
            self._codes = grown(self._codes, capacity)
            self._steps = grown(self._steps, capacity)
            self._errors = grown(self._errors, capacity)
        rows_at_once = max(1, _CODED_AT_ONCE // vectors.shape[1])
        for start in range(0, len(vectors), rows_at_once):
            part = slice(start, start + rows_at_once)
            place = slice(self._size, self._size + len(vectors[part]))
            unit = scales[part] if self._metric == "cosine" else np.float32(1.0)
            codes, steps, errors = _encoded(vectors[part])
            self._codes[place], self._steps[place] = codes, steps * unit
            self._errors[place] = errors * unit
            self._size = place.stop


def _encoded(
    vectors: NDArray[np.float32],
) -> tuple[NDArray[np.int8], NDArray[np.float32], NDArray[np.float32]]:
    """Return for each row its whole numbers, its step, and the most that they leave out."""
    peaks = np.abs(vectors).max(axis=1)
    steps = peaks / np.float32(_LARGEST)
    steps[steps < _SMALLEST_STEP] = 1.0  # the row is left out as a whole
    codes = np.rint(vectors / steps[:, np.newaxis])
    rest = vectors - codes * steps[:, np.newaxis]
    errors = np.sqrt(np.einsum("ij,ij->i", rest, rest, dtype=np.float64))
    rounding = _ROUNDING * math.sqrt(vectors.shape[1]) * peaks.astype(np.float64)
    return codes.astype(np.int8), steps, (1.001 * errors + rounding).astype(np.float32)


@cache
def _fast_products() -> Products | None:
    """Return the products of simsimd, if it is installed and computes them right here."""
    try:
        simsimd: Any = import_module("simsimd")
    except ImportError:
        return None

    def products(code: NDArray[np.int8], codes: NDArray[np.int8]) -> NDArray[Any]:
        return np.asarray(simsimd.cdist(code[np.newaxis], codes, "dot"))[0]

    sample = np.arange(-_LARGEST, 3 * 333 - _LARGEST).astype(np.int8).reshape(3, 333)
    right = sample.astype(np.int64) @ sample[0].astype(np.int64)
    return products if np.array_equal(products(sample[0], sample), right) else None
