"""Decodes rows of the table, and checks them: files get damaged."""

from __future__ import annotations

import json
import sqlite3
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lib.errors import StoreCorrupt
from lib.vector.records import Record
from lib.vector.stores.sqlite.schema import Table

as_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


class TableRows:
    """Selects rows of one table and decodes them."""

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
        if any(len(blob) != 4 * self.table.dimension for blob in blobs):
            raise StoreCorrupt(f"{self.table.label} is damaged: a vector has the wrong size")
        vectors = np.frombuffer(b"".join(blobs), "<f4").astype(np.float32, copy=False)
        return vectors.reshape(-1, self.table.dimension)

    def meta(self, text: str) -> Any:
        """Return metadata, or a list of it, from JSON.

        Raises:
            StoreCorrupt: it is none.
        """
        try:
            return json.loads(text)
        except ValueError as error:
            raise StoreCorrupt(f"{self.table.label} is damaged: metadata is no JSON") from error
