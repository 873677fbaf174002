"""Sketches of rows: a sixteenth of their bytes, from which a proven bound leaves most rows out.

A row is seen from a centre (`exact.bounds`): v = x - c, of length t, and u = v / t. Let R hold r
orthonormal directions, those in which such u differ most, and y = R'u. A sketch keeps the first
numbers of y as bytes, the next ones as half bytes, the others not at all: a is what it says. What
it leaves out is kept as three lengths, rounded up: those of y - a in the bytes and in the half
bytes, and that of z = u - Ry. With the query p / |p| in place of p, and s = R'p,

    u p = a s + (y - a) s + z (p - Rs) + (R'z) s
       <= a s + sum of |(y - a) in a part| |s in that part| + |z| |p - Rs| + |R'z| |s|

y is computed in 32 bits and so off by some n, and R is not quite orthonormal: with |n| <= e and
d = |R'R - I|, both measured or proven when the directions are chosen, |R'z| <= e + d |y|, and
|z|^2 <= |u|^2 - |y|^2 + 2 e |y| + d |y|^2.

A search computes this bound for the rows that their clusters (`exact.clusters`) leave, with a query
of 8 bits, by two products of whole numbers, and what that leaves out of the query is added; then
again for the rows that remain, with all of it.

Source: N. J. Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., 2002, section 3.1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lib.vector.exact.bounds import KEPT, Floats, View, Wide
from lib.vector.exact.clusters import ClusterQuery, Clusters, Numbers, Spans
from lib.vector.exact.search import row_lengths
from lib.vector.records import Metric

Bytes: TypeAlias = NDArray[np.uint8]
Places: TypeAlias = NDArray[np.intp]

_BLOCK_ROWS: Final = 1 << 16
_LARGEST_SAMPLE: Final = 1 << 13  # of which directions and steps are chosen
_CACHED_BYTES: Final = 1 << 19  # of what is done at once, so that it stays in the cache
_REGISTER_BYTES: Final = 32
_NUMBERS_PER_BYTE: Final = 4  # of a row, for each byte of its sketch
_WHOLE_SHARE: Final = 5  # one byte in so many holds one number, the others hold two
_LENGTHS: Final = 3
_TAIL: Final = _LENGTHS + 4  # the lengths, and t
_LARGEST_LENGTH: Final = 255
_SMALLEST: Final = 2.0**-100
_OFF: Final = 2.0**-21
"""The most that x / |x| - c is off in 32 bits, and u, relative to its length."""
_UNDERFLOW: Final = 2.0**-60
"""The most that worth loses where 32 bits hold what is next to nothing: 2**-150, times products of
codes, below 2**25, times t, at most 2**63."""
_EXACT_BYTES: Final = 1 << 10  # the products of so many bytes have a sum that 32 bits hold
_SPREADS: Final = 2.8  # half bytes reach so many deviations
_CELLS: Final = 1 << 20  # floats that are encoded at once


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layout:
    """The use of the bytes of a sketch: whole numbers, pairs of half bytes, lengths, t."""

    width: int
    whole: int
    pairs: int

    @classmethod
    def of(cls, dimension: int) -> _Layout:
        registers = -(-dimension // (_NUMBERS_PER_BYTE * _REGISTER_BYTES))
        width = registers * _REGISTER_BYTES
        room = width - _TAIL
        whole = min(dimension, max(room // _WHOLE_SHARE, 2 * room - dimension))
        return cls(width=width, whole=whole, pairs=min(room - whole, (dimension - whole) // 2))

    @property
    def rank(self) -> int:
        return self.whole + 2 * self.pairs

    @property
    def coded(self) -> int:
        return self.whole + self.pairs

    @property
    def lengths(self) -> slice:
        return slice(self.coded, self.coded + _LENGTHS)


class Basis:
    """The centre, the directions and the steps of sketches, chosen from a sample of rows."""

    def __init__(self, metric: Metric, sample: Floats) -> None:
        """Choose them.

        Args:
            metric: how the rows are searched.
            sample: some of the rows.
        """
        dimension, sizes = sample.shape[1], row_lengths(sample)
        # other programs may write to the file what no store takes
        sample = sample[np.isfinite(sizes) & (sizes > 0.0)]
        sample = sample if len(sample) else np.ones((1, dimension), np.float32)
        self.metric: Metric = metric
        self.layout: _Layout = _Layout.of(dimension)
        some = np.linspace(0, len(sample) - 1, min(len(sample), _LARGEST_SAMPLE)).astype(np.intp)
        wide = sample[some].astype(np.float64)
        if metric == "cosine":
            wide /= np.sqrt(np.einsum("ij,ij->i", wide, wide))[:, np.newaxis]
        self._centre: Floats = np.median(wide, axis=0).astype(np.float32)
        self.centre: Wide = self._centre.astype(np.float64)
        seen, _ = _directions(self._from_centre(sample[some]))
        _, directions = np.linalg.eigh(seen.T.astype(np.float64) @ seen.astype(np.float64))
        rank = self.layout.rank
        self.rotation: Floats = np.ascontiguousarray(directions[:, ::-1][:, :rank], np.float32)
        exact = self.rotation.astype(np.float64)
        skew = exact.T @ exact - np.eye(rank)
        self.skew: float = 1.01 * float(np.sqrt((skew * skew).sum())) + 2.0**-40
        steps = (dimension + 16) * 2.0**-24
        self.error: float = 1.01 * math.sqrt(rank) * steps * (1.0 + self.skew) + 2.0 * _OFF
        self.reach: float = 1.01 * (1.0 + self.skew) + self.error  # |y|
        turned = seen @ self.rotation
        whole = self.layout.whole
        peaks, spreads = np.abs(turned[:, :whole]).max(axis=0), turned[:, whole:].std(axis=0)
        self.steps: Floats = np.maximum(1.25 * peaks / 127, 2.0**-20).astype(np.float32)
        self.widths: Floats = np.maximum(_SPREADS * spreads / 8, 2.0**-20).astype(np.float32)
        tops = 1.5 * np.quantile(self._missed(turned)[-1], 0.999, axis=0) + 2.0**-10
        self.tops: Wide = tops.astype(np.float64)
        self.clusters: Clusters = Clusters(metric, self.centre, self._from_centre(sample))

    @property
    def nbytes(self) -> int:
        """Bytes in memory, about."""
        return self.rotation.nbytes + self.clusters.nbytes

    def sketched(self, vectors: Floats) -> Sketches:
        """Return the sketches of rows."""
        seen = self._from_centre(vectors)
        numbers = self.clusters.numbers(seen)
        spans = self.clusters.spans(seen, numbers)
        return Sketches(self._encoded(seen), numbers, spans)

    def _encoded(self, seen: Floats) -> Bytes:
        layout = self.layout
        seen, lengths = _directions(seen)
        wholes, high, low, missed = self._missed(seen @ self.rotation)
        codes = np.zeros((len(seen), layout.width), np.uint8)
        codes[:, : layout.whole] = wholes.astype(np.int8).view(np.uint8)
        codes[:, layout.whole : layout.coded] = (16 * high + low).astype(np.uint8) ^ np.uint8(128)
        scaled = np.ceil(missed * (_LARGEST_LENGTH / self.tops) * (1.0 + 2.0**-20))
        outside = (scaled > _LARGEST_LENGTH).any(axis=1) | ~np.isfinite(lengths)
        codes[:, layout.lengths] = np.minimum(scaled, _LARGEST_LENGTH).astype(np.uint8) ^ np.uint8(
            128
        )
        lengths[outside] = -1.0  # whatever it is worth
        codes[:, -4:] = lengths.astype("<f4")[:, np.newaxis].view(np.uint8)
        return codes

    def _from_centre(self, vectors: Floats) -> Floats:
        """Return v of rows."""
        if self.metric != "cosine":
            return vectors - self._centre
        seen = vectors * (1.0 / row_lengths(vectors)).astype(np.float32)[:, np.newaxis]
        seen -= self._centre
        return seen

    def _missed(self, turned: Floats) -> tuple[Floats, Floats, Floats, Wide]:
        """Return the whole numbers, the halves of bytes, and the three lengths left out."""
        layout = self.layout
        whole, middle = layout.whole, layout.whole + layout.pairs
        wholes = np.clip(np.rint(turned[:, :whole] / self.steps), -127, 127)
        halves = np.clip(np.floor(turned[:, whole:] / self.widths), -8, 7)
        parts = (
            turned[:, :whole] - wholes * self.steps,
            turned[:, whole:] - self.widths * (halves + np.float32(0.5)),
        )
        missed = np.empty((len(turned), _LENGTHS))
        for column, part in enumerate(parts):
            missed[:, column] = row_lengths(part) * (1.0 + 2.0**-20) + 2.0**-20
        left = 1.0 - row_lengths(turned) ** 2
        left += 2.0 * self.error * self.reach + self.skew * self.reach**2 + 2.0**-16
        missed[:, 2] = np.sqrt(np.maximum(left, 0.0))
        halves += 8
        return wholes, halves[:, : middle - whole], halves[:, middle - whole :], missed


def _directions(seen: Floats) -> tuple[Floats, Floats]:
    """Return u and t of rows."""
    lengths = row_lengths(seen).astype(np.float32)
    nothing = lengths < _SMALLEST
    scaled = seen.copy()
    scaled *= (1.0 / np.where(nothing, np.float32(1.0), lengths))[:, np.newaxis]
    scaled[nothing] = 0.0
    lengths[nothing] = 0.0
    return scaled, lengths


class Sketches(NamedTuple):
    """The sketches of some rows, with the numbers of their clusters and their spans there."""

    codes: Bytes
    numbers: Numbers
    spans: Spans

    def taken(self, rows: Places | slice) -> Sketches:
        """Return those of some of the rows."""
        return Sketches(self.codes[rows], self.numbers[rows], self.spans[rows])


class _Parts(NamedTuple):
    """A query in 8 bits: the products of codes and of their lower halves with it, and the rest."""

    of_codes: NDArray[np.int8]
    of_lows: NDArray[np.int8]
    code_step: np.float32
    low_step: np.float32
    constant: np.float32


class Query:
    """A query as the sketches of one basis are compared with it."""

    def __init__(self, basis: Basis, query: Floats) -> None:
        """Take the query apart."""
        view = View(query, basis.metric, basis.centre)
        layout = self._layout = basis.layout
        self.view: View = view
        self._size = view.length
        unit = view.vector / view.length if view.length > 0.0 else 0.0 * view.vector
        turned = unit @ basis.rotation.astype(np.float64)
        rest = unit - basis.rotation.astype(np.float64) @ turned
        whole = layout.whole
        self._wholes: Wide = turned[:whole] * basis.steps
        halves = turned[whole:] * basis.widths
        self._highs, self._lows = halves[: layout.pairs], halves[layout.pairs :]
        sizes = [math.sqrt(part @ part) for part in (turned[:whole], turned[whole:], rest)]
        self._lengths: Wide = (
            np.array(sizes) * basis.tops / _LARGEST_LENGTH * (1.0 + 2.0**-30) + 2.0**-60
        )
        reached = math.sqrt(turned @ turned)
        self._error = (basis.error + basis.skew * basis.reach) * reached * 1.01 + 2.0**-18
        self._most = float(
            127 * np.abs(self._wholes).sum() + 24 * np.abs(halves).sum() + 512 * self._lengths.sum()
        )
        off = _OFF * (view.length + 4.0) if basis.metric == "cosine" else 0.0
        tiny = 2.0 * _SMALLEST * (1.0 + view.length) + _UNDERFLOW
        self._rest = np.float32(view.constant + view.slack + off + tiny)
        self._half = np.float32(0.0 if basis.metric == "dot" else 0.5 * (KEPT - 2.0**-18))
        self._coarse = self._in_bytes()

    def coarse(self, codes: Bytes, lows: Bytes, products: Products, out: Floats) -> None:
        """Write what rows are worth at most, by their sketches and 8 bits of the query.

        Args:
            codes: the sketches.
            lows: room for as many bytes.
            products: multiplies codes.
            out: for each row.
        """
        np.bitwise_and(codes, np.uint8(15), out=lows)
        parts = self._coarse
        np.multiply(products(parts.of_codes, codes.view(np.int8)), parts.code_step, out=out)
        beside = products(parts.of_lows, lows.view(np.int8))
        beside *= parts.low_step
        out += beside
        out += parts.constant
        self._scaled(codes, out)

    def fine(self, codes: Bytes) -> Floats:
        """Return what rows are worth at most, by their sketches and all of the query."""
        layout = self._layout
        pairs = codes[:, layout.whole : layout.coded] ^ np.uint8(128)
        products = codes[:, : layout.whole].view(np.int8).astype(np.float64) @ self._wholes
        products += ((pairs >> 4) - np.float64(7.5)) @ self._highs
        products += ((pairs & 15) - np.float64(7.5)) @ self._lows
        products += (codes[:, layout.lengths] ^ np.uint8(128)).astype(np.float64) @ self._lengths
        products += self._error + self._most * 2.0**-22
        products *= self._size
        worths = products.astype(np.float32)
        self._scaled(codes, worths)
        return worths

    def _scaled(self, codes: Bytes, out: Floats) -> None:
        lengths = np.ascontiguousarray(codes.view("<f4")[:, -1])
        out -= self._half * lengths
        out *= lengths
        out += self._rest
        np.putmask(out, lengths < 0.0, np.inf)

    def _in_bytes(self) -> _Parts:
        layout, middle = self._layout, self._layout.coded
        of_codes, of_lows = np.zeros(layout.width), np.zeros(layout.width)
        of_codes[: layout.whole] = self._wholes
        of_codes[layout.whole : middle] = self._highs / 16
        of_codes[layout.lengths] = self._lengths
        of_lows[layout.whole : middle] = self._lows - self._highs / 16
        step, low_step = _step(of_codes), _step(of_lows)
        rounded, lows = np.rint(of_codes / step), np.rint(of_lows / low_step)
        rounded[layout.lengths] = np.ceil(of_codes[layout.lengths] / step)
        constant = 0.5 * self._highs.sum() - 7.5 * self._lows.sum()
        constant += 128 * step * rounded[layout.lengths].sum()
        missed = of_codes - step * rounded
        missed[layout.lengths] = 0.0  # rounded up
        constant += 128 * np.abs(missed).sum() + 15 * np.abs(of_lows - low_step * lows).sum()
        constant += self._error + (self._most + 128 * step * 127 * _LENGTHS) * 2.0**-20
        return _Parts(
            rounded.astype(np.int8)[np.newaxis],
            lows.astype(np.int8)[np.newaxis],
            np.float32(step * self._size),
            np.float32(low_step * self._size),
            np.float32(constant * self._size),
        )


def _step(values: Wide) -> float:
    """Return a step of which the largest value is 127, or 126 where it will be rounded up."""
    return max(float(np.abs(values).max()) / 126.5, 2.0**-80)


class Sketch:
    """The sketches of the first rows of a namespace, in blocks that never move.

    One thread appends; others may read the rows that were there before.

    Attributes:
        basis: what they are made with.
        chosen: among how many rows it was chosen.
        size: how many rows there are.
    """

    def __init__(self, basis: Basis, chosen: int) -> None:
        """Start empty."""
        self.basis: Basis = basis
        self.chosen: int = chosen
        self.size: int = 0
        self._blocks: list[Sketches] = []
        self._counts = np.zeros(len(basis.clusters.means), np.int64)

    @property
    def nbytes(self) -> int:
        """Bytes of all blocks, and of the basis."""
        blocks = sum(column.nbytes for block in self._blocks for column in block)
        return blocks + self.basis.nbytes

    @property
    def _at_once(self) -> int:
        """Rows that are compared at once: a power of two, as those of a block are."""
        return 1 << (_CACHED_BYTES // self.basis.layout.width).bit_length() - 1

    def sketched(self, vectors: Floats) -> Sketches:
        """Return the sketches of rows that may follow."""
        step = max(1, _CELLS // vectors.shape[1])
        parts = [
            self.basis.sketched(vectors[start : start + step])
            for start in range(0, max(1, len(vectors)), step)
        ]
        return Sketches(*map(np.concatenate, zip(*parts, strict=True)))

    def extend(self, sketches: Sketches) -> None:
        """Add the sketches of the rows that follow."""
        self._counts += np.bincount(sketches.numbers, minlength=len(self._counts))
        for start, end in self._pieces(len(sketches.codes)):
            place = self.size % _BLOCK_ROWS
            if not place:
                self._blocks.append(_block(sketches.codes.shape[1]))
            for column, some in zip(self._blocks[-1], sketches, strict=True):
                column[place : place + end - start] = some[start:end]
            self.size += end - start

    def _pieces(self, rows: int) -> Iterator[tuple[int, int]]:
        """Yield parts of the rows that follow, each of which belongs into one block."""
        start, end = 0, min(rows, _BLOCK_ROWS - self.size % _BLOCK_ROWS)
        while start < rows:
            yield start, end
            start, end = end, min(rows, end + _BLOCK_ROWS)

    def moved(self, kept: Places) -> Sketch:
        """Return those of these rows that are here, in their order; change nothing here."""
        copy = Sketch(self.basis, self.chosen)
        for first, block, part in self._parts(kept[: np.searchsorted(kept, self.size)]):
            copy.extend(block.taken(part - first))
        return copy

    def promising(
        self, query: ClusterQuery, places: Places | None, size: int, count: int
    ) -> Places:
        """Return about so many rows, or more: those of the clusters that promise most.

        Args:
            query: what they promise it.
            places: which rows to look at, in their order; None for all.
            size: how many rows there are.
            count: how many are wanted.
        """
        order = np.argsort(-query.promises)
        wanted = count * size / max(1, size if places is None else len(places))
        chosen = np.zeros(len(order), np.bool_)
        chosen[order[: 1 + np.searchsorted(np.cumsum(self._counts[order]), wanted)]] = True
        return self._where(places, size, lambda block: chosen.take(block.numbers, mode="clip"))

    def near(self, query: ClusterQuery, least: float, places: Places | None, size: int) -> Places:
        """Return which rows may be worth so much, by their clusters.

        Args:
            query: what they are worth to it.
            least: how much that is.
            places: which rows to look at, in their order; None for all.
            size: how many rows there are.
        """
        spans = query.least_spans(least)
        return self._where(
            places, size, lambda block: block.spans >= spans.take(block.numbers, mode="clip")
        )

    def coarse(self, query: Query, size: int) -> Floats:
        """Return what the first rows are worth at most, fast."""
        worths = np.empty(size, np.float32)
        products = whole_products()
        at_once = self._at_once
        lows = _aligned(at_once, self.basis.layout.width)
        for start in range(0, size, at_once):
            end = min(start + at_once, size)
            place = start % _BLOCK_ROWS
            codes = self._blocks[start // _BLOCK_ROWS].codes[place : place + end - start]
            query.coarse(codes, lows[: end - start], products, worths[start:end])
        return worths

    def coarse_of(self, query: Query, places: Places) -> Floats:
        """Return what some rows, in their order, are worth at most, fast."""
        products, worths = whole_products(), list[Floats]([np.empty(0, np.float32)])
        for codes in self._codes(places):
            out = np.empty(len(codes), np.float32)
            query.coarse(codes, np.empty_like(codes), products, out)
            worths.append(out)
        return np.concatenate(worths)

    def fine_of(self, query: Query, places: Places) -> Floats:
        """Return what some rows, in their order, are worth at most."""
        found = [query.fine(codes) for codes in self._codes(places)]
        return np.concatenate([np.empty(0, np.float32), *found])

    def _where(
        self,
        places: Places | None,
        size: int,
        passes: Callable[[Sketches], NDArray[np.bool_]],
    ) -> Places:
        found = [np.empty(0, np.intp)]
        if places is None:
            for start in range(0, size, _BLOCK_ROWS):
                block = self._blocks[start // _BLOCK_ROWS].taken(slice(size - start))
                found.append(start + np.flatnonzero(passes(block)))
        else:
            for first, block, part in self._parts(places):
                inside = part - first
                numbers, spans = block.numbers[inside], block.spans[inside]
                found.append(part[passes(Sketches(block.codes[:0], numbers, spans))])
        return np.concatenate(found)

    def _codes(self, places: Places) -> Iterator[Bytes]:
        at_once = self._at_once
        for first, block, part in self._parts(places):
            for start in range(0, len(part), at_once):
                yield np.take(block.codes, part[start : start + at_once] - first, axis=0)

    def _parts(self, places: Places) -> Iterator[tuple[int, Sketches, Places]]:
        """Yield the first row of each block, the block, and which of the rows it has."""
        edges = np.arange(0, self.size + _BLOCK_ROWS, _BLOCK_ROWS)
        cuts = np.searchsorted(places, edges)
        for number, block in enumerate(self._blocks[: len(edges) - 1]):
            if cuts[number] < cuts[number + 1]:
                yield int(edges[number]), block, places[cuts[number] : cuts[number + 1]]


def _block(width: int) -> Sketches:
    numbers, spans = np.empty(_BLOCK_ROWS, np.uint16), np.empty(_BLOCK_ROWS, np.uint8)
    return Sketches(_aligned(_BLOCK_ROWS, width), numbers, spans)


def _aligned(rows: int, width: int) -> Bytes:
    """Return room for rows that begin where a register does, else each is read as two."""
    flat = np.empty(rows * width + _REGISTER_BYTES, np.uint8)
    start = -flat.ctypes.data % _REGISTER_BYTES
    return flat[start : start + rows * width].reshape(rows, width)


Products: TypeAlias = Callable[[NDArray[np.int8], NDArray[np.int8]], Floats]
"""The dot products of one row of whole numbers with each of many."""


@cache
def whole_products() -> Products:
    """Return the products of simsimd, if it is installed and right here, else those of numpy."""
    try:
        simsimd: Any = import_module("simsimd")
    except ImportError:
        return numpy_products

    def products(code: NDArray[np.int8], codes: NDArray[np.int8]) -> Floats:
        return np.asarray(simsimd.cdist(code, codes, "dot", out_dtype="float32"))[0]

    codes = (127 - np.arange(3 * 333) % 256).astype(np.int8).reshape(3, 333)
    code = np.maximum(codes[:1], -127)
    found = products(code, codes)
    is_right = found.dtype == np.float32 and np.array_equal(found, numpy_products(code, codes))
    return products if is_right else numpy_products


def numpy_products(code: NDArray[np.int8], codes: NDArray[np.int8]) -> Floats:
    """Return the products of numpy, exact but for one rounding."""
    sums = np.zeros(len(codes), np.float32)
    for start in range(0, codes.shape[1], _EXACT_BYTES):
        part = slice(start, start + _EXACT_BYTES)
        sums += codes[:, part].astype(np.float32) @ code[0, part].astype(np.float32)
    return sums
