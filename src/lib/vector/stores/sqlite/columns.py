"""Metadata of one namespace in memory: a column for each field that a filter has named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import count
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from lib.vector.filter import Filter
from lib.vector.filter.columns import Column, Mask, fields, mask
from lib.vector.filter.field import Field, values_at

_uses: Final = count(1)


class _Stored:
    """A column, as of which write its rows were read, and when it was used last."""

    def __init__(self, column: Column, since: int, used: int) -> None:
        self.column, self.since, self.used = column, since, used


class FieldColumns:
    """Columns that were read from the file once and follow the writes, bounded in bytes.

    The thread of the file changes them; others may read meanwhile.
    """

    def __init__(self, most_bytes: int) -> None:
        """Start without columns; keep about so many bytes at most, and those used last."""
        self._most_bytes = most_bytes
        self._stored: dict[Field, _Stored] = {}

    @property
    def nbytes(self) -> int:
        """Bytes that they take, about."""
        return sum(stored.column.nbytes for stored in self._stored.values())

    def reader(self, filter: Filter | None) -> ColumnReader | None:
        """Return what reads the columns that a filter needs and that are not here."""
        needed = set[Field]() if filter is None else set(fields(filter))
        missing = needed.difference(self._stored)
        return ColumnReader(self, missing, needed) if missing else None

    def mask(self, filter: Filter, n: int, version: int) -> Mask | None:
        """Return for each of the first n rows whether it passes; None if a column is missing.

        Args:
            filter: what the rows have to pass.
            n: how many rows there are.
            version: the number of the last write that they show: a column that was read later
                lacks the values of rows that have died since.
        """
        columns = dict[Field, Column]()
        for field in fields(filter):
            stored = self._stored.get(field)
            if stored is None or stored.since > version:
                return None
            stored.used = next(_uses)
            columns[field] = stored.column
        return mask(filter, columns, n)

    def put(
        self, columns: Mapping[Field, Column], version: int, needed: AbstractSet[Field]
    ) -> None:
        """Keep columns with the values of all rows that live after a write.

        Args:
            columns: by their fields.
            version: the number of the write.
            needed: fields that are kept whatever they take: those of the filter to be decided.
        """
        for field, column in columns.items():
            self._stored[field] = _Stored(column, version, next(_uses))
        self._shrink(needed)

    def extend(self, metas: Sequence[Mapping[str, Any]]) -> None:
        """Append the metadata of the rows that follow."""
        for field, stored in self._stored.items():
            stored.column.extend(values_at(metas, field))
        self._shrink(frozenset())

    def moved(self, kept: NDArray[np.intp]) -> FieldColumns:
        """Return the columns of these rows alone, in their order."""
        moved = FieldColumns(self._most_bytes)
        moved._stored = {
            field: _Stored(stored.column.moved(kept), stored.since, stored.used)
            for field, stored in self._stored.items()
        }
        return moved

    def clear(self) -> None:
        """Let go of all columns."""
        self._stored.clear()

    def _shrink(self, needed: AbstractSet[Field]) -> None:
        """Let go of what was used longest ago, but for these columns and for one."""
        others = sorted(self._stored.keys() - needed, key=lambda field: self._stored[field].used)
        for field in others:
            if len(self._stored) == 1 or self.nbytes <= self._most_bytes:
                return
            del self._stored[field]


class ColumnReader:
    """The columns of fields while they are read, some rows at a time."""

    def __init__(
        self, columns: FieldColumns, missing: AbstractSet[Field], needed: AbstractSet[Field]
    ) -> None:
        """Start with the first row.

        Args:
            columns: where they are missing; other rows have other ones.
            missing: the fields to be read.
            needed: all fields of the filter.
        """
        self.columns: FieldColumns = columns
        self.row: int = 0
        self._needed = needed
        self._read = {field: Column() for field in missing}

    def extend(self, metas: Sequence[Mapping[str, Any]]) -> None:
        """Take the metadata of the next rows."""
        self.row += len(metas)
        for field, column in self._read.items():
            column.extend(values_at(metas, field))

    def finish(self, version: int) -> None:
        """Put the columns where they are missing: they hold all rows that live after a write."""
        self.columns.put(self._read, version, self._needed)
