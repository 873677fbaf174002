"""Decodes rows of the table, and checks them: files get damaged."""

from __future__ import annotations

import sqlite3
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lib._util.json import compact, parse
from lib.errors import StoreCorrupt
from lib.vector.filter import Filter
from lib.vector.records import Record
from lib.vector.stores.sqlite.filter import chosen
from lib.vector.stores.sqlite.schema import Table

_RECORDS = """
    SELECT id, vector, text, meta FROM [table]
    WHERE namespace = ? AND id IN (SELECT value FROM json_each(?))
"""
_RECORDS_IN = """
    SELECT id, vector, text, meta FROM [table] WHERE rid IN (SELECT value FROM json_each(?))
"""
_PAGE = "SELECT id, vector, text, meta FROM [table] WHERE "
_METAS = "SELECT id, meta FROM [table] WHERE "
_IN_ORDER = " AND id > ? ORDER BY id LIMIT ?"
_CHOSEN = "SELECT rid, id FROM [table] WHERE "
_COUNT = "SELECT count(*) FROM [table] WHERE "


class TableRows:
    """Selects rows of one table and decodes them; filters are decided by SQL."""

    def __init__(self, connection: sqlite3.Connection, table: Table) -> None:
        """Take the connection.

        Args:
            connection: of the table.
            table: named `[table]` in the statements.
        """
        self.connection: sqlite3.Connection = connection
        self.table: Table = table

    def select(self, sql: str, *parameters: object) -> list[Any]:
        """Return all rows of a statement."""
        return self.connection.execute(self.table.named(sql), parameters).fetchall()

    def records(self, namespace: str, ids: list[str]) -> list[Record]:
        """Return the records of these ids, in their order."""
        found = map(self.record, self.select(_RECORDS, namespace, compact(ids)))
        records = {record.id: record for record in found}
        return [records[name] for name in ids if name in records]

    def records_in(self, rids: list[int]) -> list[Record]:
        """Return the records of these rows."""
        return [self.record(row) for row in self.select(_RECORDS_IN, compact(rids))]

    def page(self, namespace: str, after: str, limit: int, filter: Filter | None) -> list[Record]:
        """Return the first records that pass the filter and whose ids follow, in their order."""
        where, parameters = chosen(namespace, filter, None)
        rows = self.select(_PAGE + where + _IN_ORDER, *parameters, after, limit)
        return [self.record(row) for row in rows]

    def metas(
        self, namespace: str, after: str, limit: int, filter: Filter | None
    ) -> list[tuple[str, dict[str, Any]]]:
        """Return ids and metadata of the first records of such a page."""
        where, parameters = chosen(namespace, filter, None)
        rows = self.select(_METAS + where + _IN_ORDER, *parameters, after, limit)
        return [(name, self.meta(meta)) for name, meta in rows]

    def chosen(
        self, namespace: str, filter: Filter | None, ids: list[str] | None
    ) -> list[tuple[int, str]]:
        """Return row and id of the records that have one of the ids, and pass the filter."""
        where, parameters = chosen(namespace, filter, ids)
        return self.select(_CHOSEN + where, *parameters)

    def count(self, namespace: str, filter: Filter | None) -> int:
        """Return how many records pass the filter."""
        where, parameters = chosen(namespace, filter, None)
        ((count,),) = self.select(_COUNT + where, *parameters)
        return count

    def record(self, row: Any) -> Record:
        """Return the record of an id, a vector, a text and metadata.

        Raises:
            StoreCorrupt: the vector or the metadata is damaged.
        """
        name, blob, text, meta = row
        return Record(name, self.matrix([blob])[0].tolist(), text, self.meta(meta))

    def matrix(self, blobs: list[bytes]) -> NDArray[np.float32]:
        """Return vectors as the rows of a matrix.

        Raises:
            StoreCorrupt: one has the wrong size.
        """
        if not {4 * self.table.dimension}.issuperset(map(len, blobs)):
            raise StoreCorrupt(f"{self.table.label} is damaged: a vector has the wrong size")
        vectors = np.frombuffer(b"".join(blobs), "<f4").astype(np.float32, copy=False)
        return vectors.reshape(-1, self.table.dimension)

    def meta(self, text: str) -> Any:
        """Return metadata, or a list of it, from JSON.

        Raises:
            StoreCorrupt: it is none.
        """
        try:
            return parse(text)
        except ValueError as error:
            raise StoreCorrupt(f"{self.table.label} is damaged: metadata is no JSON") from error
