"""A second copy of vectors in the file, many in one piece: read in a fraction of the time.

A part holds the ids and vectors of rows that follow each other without a gap, all of one namespace.
A store that was made with `packed=True` writes batches with their parts; the triggers of the table
delete the part of any row whose id or vector changes or that is deleted, whatever writes it. So a
part that is there is right, erased vectors leave both places at once, and a write of one row never
writes more than that row.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from lib.vector.stores.sqlite.rows import TableRows, as_json

_PART_BYTES: Final = 96 << 10  # of vectors: less than what memory is taken from the system for
_MOST_ROWS: Final = 512
_LEAST_ROWS: Final = 8
_PARTS: Final = "SELECT first, last FROM [table_packed] WHERE namespace = ? ORDER BY first"
_READ: Final = """
    SELECT first, last, ids, vectors FROM [table_packed]
    WHERE namespace = ? AND first BETWEEN ? AND ? ORDER BY first
"""
_VECTORS: Final = """
    SELECT first, last, vectors FROM [table_packed]
    WHERE namespace = ? AND first BETWEEN ? AND ? ORDER BY first
"""
_OUT: Final = "DELETE FROM [table_packed] WHERE first BETWEEN ? AND ? AND last >= ?"
_IN: Final = """
    INSERT INTO [table_packed] (first, last, namespace, ids, vectors) VALUES (?, ?, ?, ?, ?)
"""


class Packed:
    """The parts of one table; its methods belong into a transaction."""

    def __init__(self, rows: TableRows, *, is_there: bool) -> None:
        """Take the table.

        Args:
            rows: of the table.
            is_there: True if the file has a table of parts.
        """
        self._rows, self._is_there = rows, is_there
        self._is_written = is_there and rows.table.packed
        self._dimension = rows.table.dimension
        self._step = max(_LEAST_ROWS, min(_MOST_ROWS, _PART_BYTES // (4 * self._dimension)))

    def wants(self, count: int) -> bool:
        """Return True if a batch of so many records may have parts."""
        return self._is_written and count >= self._step

    def write(
        self, namespace: str, rids: list[int], ids: list[str], vectors: NDArray[np.float32]
    ) -> None:
        """Write the parts of a batch that was written."""
        rows, step = np.array(rids, np.int64), self._step
        for start in range(0, len(rids) - step + 1, step):
            part = slice(start, start + step)
            if not (np.diff(rows[part]) == 1).all():
                continue
            first, last = rids[start], rids[start + step - 1]
            self._rows.select(_OUT, first - _MOST_ROWS, last, first)
            blob = vectors[part].astype("<f4", copy=False).tobytes()
            self._rows.select(_IN, first, last, namespace, as_json(ids[part]), blob)

    def parts(self, namespace: str, rids: NDArray[np.int64]) -> dict[int, int]:
        """Return the first and the last row of each part, of those without rows that are gone.

        Args:
            namespace: their namespace.
            rids: all its rows, sorted.
        """
        if not self._is_there or not len(rids):
            return {}
        found = np.array(self._rows.select(_PARTS, namespace), np.int64).reshape(-1, 2)
        ends = found.ravel()
        places = np.minimum(np.searchsorted(rids, ends), len(rids) - 1)
        full = (rids[places] == ends).reshape(-1, 2).all(axis=1)
        full &= np.diff(places.reshape(-1, 2))[:, 0] == np.diff(found)[:, 0]
        return dict(found[full].tolist())

    def read(
        self, namespace: str, first: int, last: int
    ) -> Generator[tuple[int, list[str], NDArray[np.float32]]]:
        """Yield the first row, the ids and the vectors of the parts that begin between two rows."""
        for begin, end, listed, blob in self._select(_READ, namespace, first, last):
            ids, count = json.loads(listed), end - begin + 1
            if len(ids) == count and len(blob) == 4 * self._dimension * count:
                yield begin, ids, np.frombuffer(blob, "<f4").reshape(count, self._dimension)

    def vectors(
        self, namespace: str, first: int, last: int
    ) -> Generator[tuple[int, NDArray[np.float32]]]:
        """Yield the first row and the vectors of such parts."""
        for begin, end, blob in self._select(_VECTORS, namespace, first, last):
            count = end - begin + 1
            if len(blob) == 4 * self._dimension * count:
                yield begin, np.frombuffer(blob, "<f4").reshape(count, self._dimension)

    def _select(self, sql: str, *parameters: object) -> Iterator[Any]:
        """Yield rows as they are read: all at once would take memory anew."""
        return self._rows.connection.execute(self._rows.table.named(sql), parameters)
