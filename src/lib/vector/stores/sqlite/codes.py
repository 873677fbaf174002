"""Codes of rows in the file, some hundred in one piece: a quarter of what their vectors take.

A part holds the codes (`lib.vector.exact.codes`) of all rows that a namespace has between two rows,
and the centre from which they are seen, so that parts of any age serve together. The triggers of
the table delete the part of any row that comes between, whose vector changes or that is deleted,
whatever writes it. So codes are right, and go with the vectors that they were made of; a write of
one row never writes more than that row. Only `REPLACE` deletes rows without their triggers: a part
that has more rows than there are is not used.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lib._util.json import compact
from lib.vector.exact.bounds import Floats, View
from lib.vector.exact.codes import Coding, Prepared, fast_products, saved_width, slow_products
from lib.vector.exact.search import row_lengths, scales
from lib.vector.records import Metric
from lib.vector.stores.sqlite.cache import Listing
from lib.vector.stores.sqlite.rows import TableRows
from lib.vector.validate import MAX_LENGTH, MIN_LENGTH

_PART_BYTES: Final = 96 << 10  # less than what memory is taken from the system for
_ROWS: Final = (8, 256)  # of a part, whatever their bytes
_LEAST_SHARE: Final = 4  # of fewer rows, the centre takes too large a part
_LEARNED_AT_ONCE: Final = 2_000
_DIMENSIONS: Final = range(8, 1 << 14)  # of shorter vectors, codes are no shorter
_PARTS: Final = """
    SELECT first, last, size FROM [table_codes]
    WHERE namespace = ? ORDER BY first
"""
_READ: Final = """
    SELECT first, last, share, centre, codes FROM [table_codes]
    WHERE namespace = ? AND first BETWEEN ? AND ?
"""
_NEWEST: Final = """
    SELECT share, centre FROM [table_codes] WHERE namespace = ? ORDER BY first DESC LIMIT 1
"""
_OUT: Final = """
    DELETE FROM [table_codes] WHERE namespace = ? AND last >= ? AND first BETWEEN
        (SELECT coalesce(max(first), ?) FROM [table_codes] WHERE namespace = ? AND first <= ?) AND ?
"""
_VECTORS: Final = """
    SELECT vector FROM [table]
    WHERE +namespace = ? AND rid IN (SELECT value FROM json_each(?)) ORDER BY rid
"""  # the plus keeps SQLite from reading the index of the namespace
_IN: Final = """
    INSERT INTO [table_codes] (namespace, first, last, size, share, centre, codes)
    VALUES (?, ?, ?, ?, ?, ?, ?)
"""

Rids = NDArray[np.int64]


class Bounds(NamedTuple):
    """Upper bounds of what rows are worth to a query, by their codes.

    Attributes:
        rids: the rows.
        worths: of each.
    """

    rids: Rids
    worths: Floats


class StoredCodes:
    """The parts of one table; its methods belong into a transaction.

    Attributes:
        part_rows: how many rows a part has at most.
    """

    def __init__(self, rows: TableRows, *, is_there: bool) -> None:
        """Take the table.

        Args:
            rows: of the table.
            is_there: True if the file has a table of parts.
        """
        self._rows = rows
        self._metric: Metric = rows.table.metric
        self._dimension = rows.table.dimension
        self._is_there = is_there and self._dimension in _DIMENSIONS
        least, most = _ROWS
        self.part_rows: int = max(least, min(most, _PART_BYTES // saved_width(self._dimension)))

    def wants(self, count: int) -> bool:
        """Return True if so many rows that follow each other get codes."""
        return self._is_there and count >= self.part_rows // _LEAST_SHARE

    def write(
        self, namespace: str, rids: Rids, vectors: Floats, lengths: NDArray[np.float64]
    ) -> None:
        """Write the codes of rows; of some that have others of the namespace between them, none.

        Args:
            namespace: theirs.
            rids: the rows.
            vectors: theirs.
            lengths: of the vectors.
        """
        order = np.argsort(rids, kind="stable")
        for some in np.array_split(order, -(-len(rids) // self.part_rows)):
            if len(some) and rids[some[-1]] - rids[some[0]] == len(some) - 1:
                self.write_part(namespace, rids[some], vectors[some], lengths[some])

    def write_part(
        self, namespace: str, rids: Rids, vectors: Floats, lengths: NDArray[np.float64]
    ) -> None:
        """Write the codes of all rows of a namespace that there are between two, in their order."""
        if lengths.max() > MAX_LENGTH or (self._metric == "cosine" and lengths.min() < MIN_LENGTH):
            return  # other programs may write what no store takes
        first, last, inverse = int(rids[0]), int(rids[-1]), scales(lengths, self._metric)
        coded = self._newest(namespace)
        if coded is None or not coded.suits(vectors, inverse):
            coded = Prepared.of(self._coding, vectors, inverse)
        coded.append(vectors, inverse, len(rids))
        self._rows.select(_OUT, namespace, first, first, namespace, first, last)
        centre = coded.centre.astype("<f4").tobytes()
        self._rows.select(
            _IN, namespace, first, last, len(rids), coded.share, centre, coded.saved()
        )

    def learned(self, listing: Listing) -> Generator[bool]:
        """Write the codes of a namespace's rows that have none; yields where a transaction may end.

        Rows that stand between parts, and are few, get none.
        """
        rids, done = listing.rids, 0
        loose = np.zeros(len(rids) + 2, np.int8)
        loose[1:-1] = 1
        for first, last in self.parts(listing.namespace, rids).items():
            loose[np.searchsorted(rids, first) + 1 : np.searchsorted(rids, last) + 2] = 0
        for begin, end in np.diff(loose).nonzero()[0].reshape(-1, 2).tolist():
            if not self.wants(end - begin):
                continue
            for some in np.array_split(rids[begin:end], -(-(end - begin) // self.part_rows)):
                found = self._rows.select(_VECTORS, listing.namespace, compact(some.tolist()))
                vectors = self._rows.matrix([vector for (vector,) in found])
                self.write_part(listing.namespace, some, vectors, row_lengths(vectors))
                done += len(some)
                if done >= _LEARNED_AT_ONCE:
                    done = 0
                    yield True

    def parts(self, namespace: str, rids: Rids) -> dict[int, int]:
        """Return the first and the last row of the parts that are right.

        Args:
            namespace: their namespace.
            rids: all its rows, sorted.
        """
        if not self._is_there or not len(rids):
            return {}
        found = np.array(self._rows.select(_PARTS, namespace), np.int64).reshape(-1, 3)
        begins, ends = np.searchsorted(rids, found[:, 0]), np.searchsorted(rids, found[:, 1])
        full = (rids[begins % len(rids)] == found[:, 0]) & (rids[ends % len(rids)] == found[:, 1])
        full &= ends - begins == found[:, 2] - 1
        return dict(found[full, :2].tolist())

    def bounds(
        self, query: Floats, namespace: str, rids: Rids, parts: Sequence[tuple[int, int]]
    ) -> Bounds:
        """Return what the rows of parts are worth at most to a query, of those parts still there.

        Args:
            query: d floats.
            namespace: their namespace.
            rids: all its rows, sorted.
            parts: the first and last row of some parts that follow each other.
        """
        last_of, width = dict(parts), saved_width(self._dimension)
        by_centre = dict[tuple[float, bytes], list[tuple[int, bytes]]]()
        read = self._read(namespace, parts[0][0], parts[-1][0])
        for first, last, share, centre, codes in read:
            place = int(rids.searchsorted(first))
            size = int(rids.searchsorted(last)) + 1 - place
            is_whole = len(codes) == size * width and len(centre) == 4 * self._dimension
            if is_whole and last_of.get(first) == last:
                by_centre.setdefault((share, centre), []).append((place, codes))
        found, worths = [rids[:0]], [np.empty(0, np.float32)]
        for (share, centre), saved in by_centre.items():
            worths.append(self._worths(query, share, centre, [codes for _, codes in saved]))
            found += [rids[place : place + len(codes) // width] for place, codes in saved]
        return Bounds(np.concatenate(found), np.concatenate(worths))

    def _read(
        self, namespace: str, first: int, last: int
    ) -> Iterator[tuple[int, int, float, bytes, bytes]]:
        """Yield parts as they are read: all at once would take more memory."""
        sql = self._rows.table.named(_READ)
        yield from self._rows.connection.execute(sql, (namespace, first, last))

    def _worths(self, query: Floats, share: float, centre: bytes, saved: list[bytes]) -> Floats:
        seen_from = np.frombuffer(centre, "<f4").astype(np.float32, copy=False)
        coded = Prepared.loaded(self._coding, seen_from, share, saved)
        worths = coded.worths(View(query, self._metric, coded.centre), slice(0, coded.size))
        np.putmask(worths, np.isnan(worths), np.inf)  # of what no store takes
        return worths

    @property
    def _coding(self) -> Coding:
        products = fast_products() or slow_products
        return Coding(metric=self._metric, products=products, least_rows=0)

    def _newest(self, namespace: str) -> Prepared | None:
        """Return what has the centre of the last part, and no rows."""
        for share, centre in self._rows.select(_NEWEST, namespace):
            if len(centre) == 4 * self._dimension:
                seen_from = np.frombuffer(centre, "<f4").astype(np.float32, copy=False)
                return Prepared(self._coding, seen_from, share)
        return None


class Learning:
    """Codes that are made of a namespace; its methods belong into transactions.

    Attributes:
        listing: the rows.
    """

    def __init__(self, listing: Listing, codes: StoredCodes) -> None:
        """Start with the first row."""
        self.listing: Listing = listing
        self._steps = codes.learned(listing)

    def go_on(self) -> bool:
        """Write some; return True if more follow."""
        return next(self._steps, None) is not None
