"""Rows prepared for a fast first pass: a centre, and codes of 8 bits around it.

A row is seen from the centre (`exact.bounds`), and v stored as whole numbers b from -127 to 127
and a step s, with what that leaves out: v = s b + e. The query's p is taken apart in the same way:
p = t a + f. Then

    v p = s t (b a) + (s b) f + e p

where |s b| <= |v| + |e|, so that s t (b a) is off by at most

    |e| (|p| + |f|) + |v| |f| <= (|e| + r |v|) w,  w being the greater of |p| + |f| and |f| / r

for any r, which is best if it is |f| / |p| of the queries. Some tens of 100,000 rows remain, and
are scored by the definition. Sums of unsigned bytes are faster than of signed ones, hence
B = b + 128 and A = a + 128 are multiplied:

    b a = B A - 128 (sum of B) - 128 (sum of a)

The sums are exact in 32 bits (multiples of 128 below 2**31). B A is not, nor are the differences:
below 2**16 d, 2**17 d and 2**14 d in size, they are rounded by less than d / 64 together, and as
t <= |p| / 127, or a = 0, adding s d / 4096 to |e| covers that. What rounding does to v itself is
added to |e|, too, and what it does to its square is taken from |v|^2 / 2.

Codes need simsimd (the extra `fast`). Without it a centre is kept alone, from which the rows
are seen in 32 bits; the results are the same.

The centre is the median of some rows in each dimension, which a few long ones do not move. It is
taken anew once there are four times as many rows. No search waits until all rows are prepared:
each prepares an eighth of them, which takes about as long as reading all.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from sys import maxsize
from threading import Lock
from typing import Any, Final, NamedTuple, Self, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from lib.vector.exact.bounds import KEPT, Floats, View, Wide
from lib.vector.records import Metric

Codes8: TypeAlias = NDArray[np.uint8]
Places: TypeAlias = slice | NDArray[np.intp]
Products: TypeAlias = Callable[[Codes8, Codes8], Floats]
"""The dot products of one row of codes with each of many, exact but for one rounding."""

_LARGEST: Final = 127
_MOST_ELEMENTS: Final = 1 << 14  # of longer ones, what the longest codes leave out overflows
_SHARED_BYTES: Final = 8 << 20  # reading so many takes ten times as long as waking a thread
_MOST_THREADS: Final = 4  # of those that share a scan; they share the memory, too
_PARTS: Final = 2  # of a scan, for each thread
_GATHERED_BYTES: Final = 3 << 19  # what is copied stays in the cache
_BOUNDED_ROWS: Final = 1 << 15  # likewise
_ENCODED_CELLS: Final = 1 << 16  # likewise
_REGISTER_BYTES: Final = 64
_SMALLEST_STEP: Final = 2.0**-100
_SAMPLE: Final = 256
_RECENTRED: Final = 4
_SHARE: Final = 8
_CENTRED_SHARE: Final = 8
_SUITING: Final = 0.25  # the square of how far a centre may be from a mean, relative to the spread
_EXACT_BYTES: Final = 1 << 8  # the products of so many bytes have a sum that 32 bits hold
_LEAST_CELLS: Final = 1 << 19  # below, a search saves nothing
_COLLECTED: Final = 5  # if its rows are collected, a fifth of them is enough
_OFF: Final = 2.0**-17
"""The share of rounding in |e|, relative to |v|: of v in 32 bits, and of worth as dot product."""
_UNIT_OFF: Final = 2.0**-21
"""The most that x / |x| - c is off in 32 bits."""


class _Kept(NamedTuple):
    """The data kept of rows, in their order."""

    halves: Floats  # no more than |v|^2 / 2 less 2 ROUNDING |v|^2
    codes: Codes8  # B, then zeros
    sums: Floats  # 128 times the sum of B
    steps: Floats  # s
    errors: Floats  # no less than |e| + r |v|

    @classmethod
    def room(cls, rows: int, width: int) -> Self:
        """Return room for so many rows, with codes of so many bytes, all zero; 0 keeps none.

        Codes begin where a register of 64 bytes does, else each would be read as two.
        """
        flat = np.zeros(rows * width + _REGISTER_BYTES, np.uint8)
        start = -flat.ctypes.data % _REGISTER_BYTES
        codes = flat[start : start + rows * width].reshape(rows, width)
        others = (np.empty(rows if width else 0, np.float32) for _ in range(3))
        return cls(np.empty(rows, np.float32), codes, *others)

    def taken(self, places: Places, rows: int) -> Self:
        """Return a copy of some rows, with room for so many."""
        copy = self.room(rows, self.codes.shape[1])
        for field, values in zip(copy, self, strict=True):
            some = values[places] if len(values) else values
            field[: len(some)] = some
        return copy


@dataclass(frozen=True, slots=True, kw_only=True)
class Coding:
    """The way rows are prepared.

    Attributes:
        metric: how they are searched.
        products: multiplies codes; None keeps none.
        least_rows: how many rows make codes pay; as of an eighth of them, rows are prepared.
        shared_bytes: as of how many bytes of codes several threads share the products.
    """

    metric: Metric
    products: Products | None
    least_rows: int
    shared_bytes: int = _SHARED_BYTES

    @classmethod
    def of(cls, metric: Metric, dimension: int) -> Self:
        """Return what is fastest for vectors of this length."""
        products = fast_products() if dimension <= _MOST_ELEMENTS else None
        pays = products is not None or metric != "dot"
        least_rows = _LEAST_CELLS // dimension if pays else maxsize
        return cls(metric=metric, products=products, least_rows=least_rows)


class Prepared:
    """The first rows of a namespace as they are seen from one centre.

    One thread at a time appends rows; others may read those that were there before.

    Attributes:
        centre: c.
        size: how many rows there are.
        coded: True if they have codes.
    """

    def __init__(
        self, coding: Coding, centre: Floats, share: float, kept: _Kept | None = None
    ) -> None:
        """Start with what is kept of some rows; None starts without any.

        Args:
            coding: how rows are prepared.
            centre: c.
            share: r.
            kept: becomes its own.
        """
        self._coding, self._centre, self._share = coding, centre, share
        self.centre: Wide = centre.astype(np.float64)
        self.coded: bool = coding.products is not None
        self._kept = kept or _Kept.room(0, coded_width(len(centre)) if self.coded else 0)
        self.size: int = len(self._kept.halves)

    @classmethod
    def of(cls, coding: Coding, vectors: Floats, scales: Floats) -> Self:
        """Return one with the centre of these rows, and none of them."""
        some = np.linspace(0, len(vectors) - 1, min(_SAMPLE, len(vectors))).astype(np.intp)
        sample = vectors[some].astype(np.float64)
        if coding.metric == "cosine":
            sample *= scales[some, np.newaxis]
        centre = np.median(sample, axis=0).astype(np.float32)
        sample -= centre
        lengths = np.sqrt(np.einsum("ij,ij->i", sample, sample))
        peaks = np.abs(sample).max(axis=1)[lengths > 0.0] / lengths[lengths > 0.0]
        peak = float(np.median(peaks)) if len(peaks) else 1.0
        return cls(coding, centre, math.sqrt(len(centre) / 12) / _LARGEST * peak)

    def moved(self, kept: NDArray[np.intp]) -> Self:
        """Return those of these rows that are here, in their order; change nothing here."""
        here = kept[: np.searchsorted(kept, self.size)]
        return type(self)(
            self._coding, self._centre, self._share, self._kept.taken(here, len(here))
        )

    @classmethod
    def loaded(cls, coding: Coding, centre: Floats, share: float, saved: Sequence[bytes]) -> Self:
        """Return all rows of what `saved` has returned for rows of one centre.

        Args:
            coding: how they are prepared.
            centre: c.
            share: r.
            saved: of some rows each.
        """
        dimension = len(centre)
        sizes = [len(each) // saved_width(dimension) for each in saved]
        kept, start = _Kept.room(sum(sizes), coded_width(dimension)), 0
        fields = (kept.halves, kept.sums, kept.steps, kept.errors)
        for each, size in zip(saved, sizes, strict=True):
            end = start + size
            numbers = np.frombuffer(each, "<f4", 4 * size).reshape(4, size)
            for field, values in zip(fields, numbers, strict=True):
                field[start:end] = values
            codes = np.frombuffer(each, np.uint8, offset=16 * size)
            kept.codes[start:end, :dimension] = codes.reshape(size, dimension)
            start = end
        return cls(coding, centre, share, kept)

    @property
    def share(self) -> float:
        """The r of its rows."""
        return self._share

    def saved(self) -> bytes:
        """Return what is kept of all its rows, `saved_width` bytes of each, for `loaded`."""
        kept, size = self._kept, self.size
        fields = (kept.halves, kept.sums, kept.steps, kept.errors)
        numbers = [field[:size].astype("<f4", copy=False).tobytes() for field in fields]
        return b"".join([*numbers, kept.codes[:size, : len(self.centre)].tobytes()])

    def suits(self, vectors: Floats, scales: Floats) -> bool:
        """Return True if rows are about as near to its centre as they are to their own mean."""
        some = np.linspace(0, len(vectors) - 1, min(_SAMPLE, len(vectors))).astype(np.intp)
        seen = np.empty((len(some), vectors.shape[1]), np.float32)
        self._see(vectors[some], scales[some], seen)
        mean = seen.mean(axis=0, dtype=np.float64)
        spread = np.einsum("ij,ij->", seen, seen, dtype=np.float64) / len(some)
        return bool(mean @ mean <= _SUITING * spread)

    def halves(self, places: Places) -> Floats:
        """Return no more than |v|^2 / 2 of some rows, as `View.of_floats` needs it."""
        return self._kept.halves[places]

    def worths(self, view: View, places: Places) -> Floats:
        """Return what some rows are worth at most, by their codes, to a query from this centre."""
        query, kept = _CodedQuery(view, self._share), self._kept
        worths = self._products(query.code, places)
        for start in range(0, len(worths), _BOUNDED_ROWS):
            part = slice(start, min(start + _BOUNDED_ROWS, len(worths)))
            some = part if isinstance(places, slice) else places[part]
            self._bound(query, kept, some, worths[part])
        return worths

    def _products(self, code: Codes8, places: Places) -> Floats:
        """Return the products B A of some rows."""
        kept, products = self._kept.codes, cast(Products, self._coding.products)
        if isinstance(places, slice):
            codes = kept[places]
            if codes.nbytes < self._coding.shared_bytes:
                return products(code, codes)
            found = np.empty(len(codes), np.float32)

            def multiply(part: slice) -> None:
                found[part] = products(code, codes[part])

            _share(multiply, len(codes))
            return found
        found = np.empty(len(places), np.float32)
        step = max(1, _GATHERED_BYTES // kept.shape[1])
        for start in range(0, len(places), step):
            part = slice(start, start + step)
            # "clip" checks nothing, and the places are right: faster than "raise"
            found[part] = products(code, np.take(kept, places[part], axis=0, mode="clip"))
        return found

    def _bound(self, query: _CodedQuery, kept: _Kept, places: Places, out: Floats) -> None:
        """Turn the products of some rows into what they are worth at most."""
        out -= query.sum
        out -= kept.sums[places]
        out *= kept.steps[places]
        out *= query.step
        out += query.weight * kept.errors[places]
        if self._coding.metric != "dot":
            out -= kept.halves[places]
        out += query.rest

    def append(self, vectors: Floats, scales: Floats, room: int) -> None:
        """Prepare the rows that follow."""
        size, dimension = self.size + len(vectors), vectors.shape[1]
        if size > len(self._kept.halves):
            self._kept = self._kept.taken(slice(0, self.size), max(room, size + self.size // 2))
        step = max(1, _ENCODED_CELLS // dimension)
        # memory that is new for each block would take longer than all that is done in it
        seen, work = np.empty((2, min(step, len(vectors)), dimension), np.float32)
        for start in range(0, len(vectors), step):
            some = vectors[start : start + step]
            place = slice(self.size, self.size + len(some))
            self._see(some, scales[start : start + step], seen[: len(some)])
            self._keep(place, seen[: len(some)], work[: len(some)])
            self.size = place.stop

    def _see(self, vectors: Floats, scales: Floats, out: Floats) -> None:
        """Write the rows as they are seen from the centre."""
        if self._coding.metric == "cosine":
            np.multiply(vectors, scales[:, np.newaxis], out=out)
            out -= self._centre
        else:
            np.subtract(vectors, self._centre, out=out)

    def _keep(self, place: slice, seen: Floats, work: Floats) -> None:
        """Keep what is kept of some rows; what they and `work` hold is overwritten."""
        kept, dimension = self._kept, seen.shape[1]
        off = _UNIT_OFF if self._coding.metric == "cosine" else 0.0
        if not self.coded:
            squares = np.einsum("ij,ij->i", seen, seen)
            kept.halves[place] = _half(squares.astype(np.float64), dimension, off)
            return
        steps = np.abs(seen, out=work).max(axis=1) / np.float32(_LARGEST)
        steps[steps < _SMALLEST_STEP] = 1.0  # the row is left out as a whole
        seen *= (np.float32(1.0) / steps)[:, np.newaxis]
        wide = steps.astype(np.float64)
        squares = np.einsum("ij,ij->i", seen, seen) * (wide * wide)
        np.rint(seen, out=work)
        seen -= work
        missed = np.sqrt(np.einsum("ij,ij->i", seen, seen))
        work += np.float32(128.0)
        # of the quotient's rounding, and of that of products
        allowance = math.sqrt(dimension) * 2.0**-15 + dimension / 4096
        lengths = 1.01 * np.sqrt(squares)
        kept.halves[place] = _half(squares, dimension, off)
        kept.codes[place, :dimension] = work
        kept.sums[place] = 128.0 * (work @ np.ones(dimension, np.float32))
        kept.steps[place] = steps
        kept.errors[place] = wide * (1.01 * missed + allowance)
        kept.errors[place] += (self._share + _OFF) * lengths + off


def _half(squares: Wide, dimension: int, off: float) -> Wide:
    """Return no more than |v|^2 / 2 less 2 ROUNDING |v|^2, of squares summed in 32 bits."""
    kept = KEPT - 1.01 * (dimension + 16) * 2.0**-24
    return 0.5 * kept * squares - off * 1.01 * np.sqrt(squares) - off * off


class _CodedQuery:
    """A query as it is seen from a centre, taken apart.

    Attributes:
        code: A, as a matrix of one row, then zeros.
        sum: 128 times the sum of a.
        step: t.
        weight: w.
        rest: what worth has beside what depends on the row, its slack included.
    """

    def __init__(self, view: View, share: float) -> None:
        self.rest: float = view.constant + view.slack
        work = np.abs(view.vector)
        self.step: float = float(np.float32(float(np.maximum.reduce(work)) / _LARGEST))
        if self.step < _SMALLEST_STEP:
            self.step = 1.0  # the query is left out as a whole
        code = np.divide(view.vector, self.step, out=work)
        np.rint(code, out=code)
        rest = view.vector - code * self.step
        self.sum: float = 128.0 * float(np.add.reduce(code))
        code += 128.0
        self.code: Codes8 = _padded(code)
        missed = 1.001 * math.sqrt(rest.dot(rest))
        self.weight: float = 1.001 * max(view.length + missed, missed / share)


def coded_width(dimension: int) -> int:
    """Return how many bytes the code of so many numbers takes: whole registers of 64.

    Products of rows that end within one take two to three times as long.
    """
    return -(-dimension // _REGISTER_BYTES) * _REGISTER_BYTES


def saved_width(dimension: int) -> int:
    """Return how many bytes are saved of a row."""
    return dimension + 16


def _padded(code: Wide) -> Codes8:
    """Return a code as bytes in a matrix of one row, then zeros, which add nothing to a product."""
    padded = np.zeros((1, coded_width(len(code))), np.uint8)
    padded[0, : len(code)] = code
    return padded


def _share(work: Callable[[slice], None], size: int) -> None:
    """Do work on so many rows in parts, each done by this thread or by another one that is free.

    A thread that comes too late finds nothing to do, and is not waited for.
    """
    helpers, threads = _helpers()
    step = -(-size // (_PARTS * threads))
    parts = iter([slice(start, min(start + step, size)) for start in range(0, size, step)])

    def work_on() -> None:
        for part in parts:  # of which no two threads have the same one
            work(part)

    calls = [helpers.submit(work_on) for _ in range(threads - 1)]
    work_on()
    for call in calls:
        if not call.cancel():
            call.result()


@cache
def _helpers() -> tuple[ThreadPoolExecutor, int]:
    """Return threads that help with a scan, and how many share one, the caller's included."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    threads = min(_MOST_THREADS, cores or 1)
    return ThreadPoolExecutor(max(1, threads - 1), "lib-vector-scan"), threads


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_helpers.cache_clear)  # threads do not survive it


@cache
def fast_products() -> Products | None:
    """Return the products of simsimd, if it is installed and computes them right here.

    It lets other threads of Python work meanwhile. Its own threads are not used: they wait for
    each other in a loop, which takes ten times as long as the work as soon as one of them has to
    share its core. Nor is its `out`, which drops a reference to None with every call.
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


def slow_products(code: Codes8, codes: Codes8) -> Floats:
    """Return the products of numpy, exact but for one rounding, where there are no faster ones."""
    found = np.empty(len(codes), np.float32)
    wide = code[0].astype(np.float32)
    for start in range(0, len(codes), _EXACT_BYTES):  # so few that what is converted stays cached
        some = codes[start : start + _EXACT_BYTES]
        sums = np.zeros(len(some))
        for first in range(0, codes.shape[1], _EXACT_BYTES):
            part = slice(first, first + _EXACT_BYTES)
            sums += some[:, part].astype(np.float32) @ wide[part]
        found[start : start + _EXACT_BYTES] = sums
    return found


def grown(array: NDArray[Any], capacity: int) -> NDArray[Any]:
    """Return a copy with room for more rows."""
    copy = np.empty((capacity, *array.shape[1:]), array.dtype)
    copy[: len(array)] = array
    return copy


class Codes:
    """The prepared rows of one partition; safe in threads."""

    def __init__(
        self,
        coding: Coding,
        ready: Prepared | None = None,
        ahead: Prepared | None = None,
        until: int = 0,
    ) -> None:
        """Start with what is prepared.

        Args:
            coding: how rows are prepared.
            ready: is used.
            ahead: sees rows from a newer centre; is used once it has got as far.
            until: as of how many rows another centre is due.
        """
        self._coding, self._ready, self._ahead, self._until = coding, ready, ahead, until
        self._lock = Lock()

    def ready(self, vectors: Floats, scales: Floats) -> Prepared | None:
        """Return what is prepared of these rows, after preparing some more; None if nothing is."""
        if self.pending(len(vectors)) and self._lock.acquire(blocking=False):
            try:
                self._prepare(vectors, scales)
            finally:
                self._lock.release()
        return self._ready

    def pays(self, count: int, *, collected: bool = False) -> bool:
        """Return True if it pays to read the codes of so many rows instead of the rows.

        To collect rows costs more than to read them in order, and codes are a quarter as long.
        """
        least_rows = self._coding.least_rows // (_COLLECTED if collected else 1)
        return self._coding.products is not None and count >= least_rows

    def coded(self, size: int) -> int:
        """Return how many of so many rows have codes."""
        ready = self._ready
        return min(size, ready.size) if ready is not None and ready.coded else 0

    def pending(self, size: int) -> int:
        """Return how many of so many rows the next search prepares."""
        if size < self._coding.least_rows // _CENTRED_SHARE:
            return 0
        last = self._ahead or self._ready
        if last is None or (self._ahead is None and size >= self._until):
            return size // _SHARE + 1
        return max(0, min(size - last.size, size // _SHARE + 1))

    def moved(self, kept: NDArray[np.intp]) -> Self:
        """Return what is prepared of these rows alone, in their order; change nothing here."""
        with self._lock:
            ready = self._ready and self._ready.moved(kept)
            ahead = self._ahead and self._ahead.moved(kept)
            return type(self)(self._coding, ready, ahead, self._until)

    def _prepare(self, vectors: Floats, scales: Floats) -> None:
        size = len(vectors)
        count = self.pending(size)  # another thread may have been faster
        if count and self._ahead is None and size >= self._until:
            self._ahead = Prepared.of(self._coding, vectors, scales)
            self._until = _RECENTRED * size
        last = self._ahead or self._ready
        if last is not None and count:
            part = slice(last.size, last.size + count)
            last.append(vectors[part], scales[part], size)
            if self._ready is None or last.size >= self._ready.size:
                self._ready, self._ahead = last, None
