"""Reads namespaces of the file into memory, whole or what others have changed, and their columns.

Its methods belong into a transaction. A namespace is read some rows at a time, so that others have
their turns between two transactions; what changes meanwhile is followed at the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lib._util.json import compact, parse
from lib.vector.exact.search import row_lengths
from lib.vector.filter import Filter
from lib.vector.stores.sqlite import lexical
from lib.vector.stores.sqlite.cache import CachedNamespace, Listing, NamespaceReader, RowIds
from lib.vector.stores.sqlite.changes import Changes
from lib.vector.stores.sqlite.columns import ColumnReader
from lib.vector.stores.sqlite.rows import TableRows

if TYPE_CHECKING:  # loaded with the first `scratch_dir`
    from lib.vector.exact.scratch import Scratch

RIDS: Final = """
    SELECT id, rid FROM [table] WHERE namespace = ? AND id IN (SELECT value FROM json_each(?))
"""
_ALL = "SELECT json_group_array(rid) FROM [table] WHERE namespace = ?"  # from its index alone
_ROWS: Final = """
    SELECT rid, id, vector FROM [table]
    WHERE +namespace = ? AND rid IN (SELECT value FROM json_each(?))
"""  # the plus keeps SQLite from reading the index of the namespace
_SIZES: Final = (
    "SELECT id, sz FROM [table_fts_docsize] WHERE id IN (SELECT value FROM json_each(?))"
)
_CHANGED: Final = """
    SELECT rid, id, vector, meta FROM [table]
    WHERE namespace = ? AND id IN (SELECT value FROM json_each(?))
"""
_METAS: Final = """
    SELECT json_group_array(rid), '[' || group_concat(meta) || ']' FROM [table]
    WHERE rid IN (SELECT value FROM json_each(?))
"""  # one row, since each one more may wait for the interpreter
_READ_AT_ONCE: Final = 2_000
_METAS_AT_ONCE: Final = 1_000
_UNREAD: Final[Mapping[str, Any]] = {}


class Loader:
    """Reads the rows of one table into memory."""

    def __init__(
        self,
        rows: TableRows,
        changes: Changes,
        column_bytes: int,
        scratch: Scratch | None = None,
    ) -> None:
        """Take what to read from.

        Args:
            rows: of the table.
            changes: its log.
            column_bytes: how much memory the columns of a namespace may take.
            scratch: where vectors lie that memory has no room for; None keeps all in memory.
        """
        self._rows, self._changes = rows, changes
        self._column_bytes, self._scratch = column_bytes, scratch

    def empty(self) -> CachedNamespace:
        """Return a namespace of which nothing was read."""
        table = self._rows.table
        return CachedNamespace(table.metric, table.dimension, self._column_bytes, self._scratch)

    def follow(self, namespace: str, cached: CachedNamespace) -> None:
        """Do in memory what others have done in the file."""
        changed = self._changes.since(cached.change, namespace)
        if changed is None:
            cached.empty()
            self.read_all(namespace, cached)
            return
        rows = self._rows.select(_CHANGED, namespace, compact(changed)) if changed else []
        there = {name for _, name, _, _ in rows}
        cached.delete([name for name in changed if name not in there])
        if rows:
            items = [(rid, self._rows.meta(meta)) for rid, _, _, meta in rows]
            matrix = self._rows.matrix([blob for _, _, blob, _ in rows])
            cached.upsert([name for _, name, _, _ in rows], matrix, row_lengths(matrix), items)
        cached.change = self._changes.last()

    def read_all(self, namespace: str, cached: CachedNamespace) -> None:
        """Read all rows of a namespace that is empty in memory."""
        reader = self.reader(self.listing(namespace, None), cached)
        while self.read(reader):
            pass

    def listing(self, namespace: str, state: object) -> Listing:
        """Return the rows that there are now; changes from now on are to be followed.

        Args:
            namespace: of the rows.
            state: of the database.
        """
        change = self._changes.last()
        ((listed,),) = self._rows.select(_ALL, namespace)
        rids = np.empty(0, np.int64)
        if listed != "[]":  # never as Python's own numbers, which take five times as much
            rids = np.fromstring(listed[1:-1], np.int64, sep=",")
        rids.sort()  # the order in which the file has the rows
        return Listing(namespace=namespace, rids=rids, change=change, state=state)

    def reader(self, listing: Listing, cached: CachedNamespace) -> NamespaceReader:
        """Return what reads these rows."""
        cached.change = listing.change
        return NamespaceReader(listing, cached)

    def read(self, reader: NamespaceReader) -> bool:
        """Read some rows; return True if more follow."""
        rids, namespace = reader.listing.rids, reader.listing.namespace
        if len(reader.sampled):
            some = reader.sampled[:_READ_AT_ONCE].tolist()
            rows = self._rows.select(_ROWS, namespace, compact(some))
            reader.sample(self._rows.matrix([blob for _, _, blob in rows]), len(some))
            return True
        some = rids[reader.read : reader.read + _READ_AT_ONCE].tolist()
        if some:
            rows = self._rows.select(_ROWS, namespace, compact(some))
            matrix = self._rows.matrix([blob for _, _, blob in rows])
            items = [(rid, _UNREAD) for rid, _, _ in rows]
            reader.add([name for _, name, _ in rows], matrix, items, len(some))
        return reader.read < len(rids)

    def read_columns(
        self, cached: CachedNamespace, filter: Filter | None, reader: ColumnReader | None
    ) -> ColumnReader | None:
        """Read some rows of the columns that a filter needs; return what reads on, None at the end.

        Args:
            cached: the namespace, which shows what the file holds.
            filter: the filter.
            reader: what the last call returned; None for the first one.
        """
        contents, version = cached.snapshot.contents, cached.snapshot.version
        if reader is None or reader.columns is not contents.columns:
            reader = contents.columns.reader(filter)
        if reader is None:
            return None
        reader.extend(self._metas(contents.rids[reader.row : reader.row + _METAS_AT_ONCE].tolist()))
        if reader.row < len(contents.rids):
            return reader
        reader.finish(version)
        return None

    def read_lengths(self, contents: RowIds) -> None:
        """Read how many terms the texts have, of rows that were not searched by words before."""
        rids, lengths = contents.rids, contents.lengths
        while len(lengths) < len(rids):
            some = rids[len(lengths) : len(lengths) + _READ_AT_ONCE].tolist()
            stored = dict(self._rows.select(_SIZES, compact(some)))
            lengths.extend(lexical.size(stored.get(rid)) for rid in some)

    def rids(self, namespace: str, ids: list[str]) -> list[int]:
        """Return the rows of records that are there, in the order of their ids."""
        rid_of = dict(self._rows.select(RIDS, namespace, compact(ids)))
        return [rid_of[name] for name in ids]

    def _metas(self, rids: list[int]) -> list[dict[str, Any]]:
        """Return the metadata of rows; of those that are no longer there, none."""
        ((found, metas),) = self._rows.select(_METAS, compact(rids))
        there = dict(zip(parse(found), self._rows.meta(metas or "[]"), strict=True))
        return [there.get(rid, {}) for rid in rids]
