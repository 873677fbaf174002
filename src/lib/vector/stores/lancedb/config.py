"""The configuration of a LanceDB store's table; imports no driver."""

from __future__ import annotations

from dataclasses import dataclass

from lib.vector.records import Metric


@dataclass(frozen=True, slots=True, kw_only=True)
class TableConfig:
    """The table of a store: where it is, and for which vectors.

    Attributes:
        uri: of the folder or the object store.
        table: its name.
        dimension: of every vector.
        metric: how nearness is measured.
        storage_options: for the object store.
        initial_batch: how many of the nearest records a filter is first tried on.
    """

    uri: str
    table: str
    dimension: int
    metric: Metric
    storage_options: dict[str, str] | None
    initial_batch: int

    @property
    def label(self) -> str:
        """The table's name, for messages."""
        return f"LanceDB table {self.table!r}"
