"""The configuration of a PostgreSQL store's table; imports no driver."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from lib.vector.records import Metric

NAME: Final = "PostgresVectorStore"
MAX_DIMENSION: Final = 16_000
MAX_INDEXED: Final = 2_000
MAX_HALF_INDEXED: Final = 4_000
MAX_EF_SEARCH: Final = 1_000
MAX_KEY_BYTES: Final = 2_600  # of namespace and id: a third of a page, less what else is there
_MAX_NAME_BYTES: Final = 63

Index = Literal["full", "half"]
"""What an HNSW index holds: vectors as they are, or directions in 16-bit floats."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """The table of a store: its name, and how it is searched.

    Attributes:
        name: of the table, perhaps with its schema before a dot.
        dimension: of every vector.
        metric: how nearness is measured.
        hnsw: True if searches may be approximate.
        ef_search: how many candidates the index keeps in view.
        config: the text search configuration.
    """

    name: str
    dimension: int
    metric: Metric
    hnsw: bool
    ef_search: int
    config: str

    def __post_init__(self) -> None:
        if self.dimension > MAX_DIMENSION:
            raise ValueError(f"pgvector holds up to {MAX_DIMENSION} dimensions")
        if not 1 <= self.ef_search <= MAX_EF_SEARCH:
            raise ValueError(f"ef_search is 1 to {MAX_EF_SEARCH}, got {self.ef_search!r}")
        if not all(map(_is_name, self.name.split(".", 1))):
            raise ValueError(
                f"table is a name of up to {_MAX_NAME_BYTES} bytes, perhaps with its schema and "
                f"a dot before it, got {self.name!r}"
            )

    @property
    def place(self) -> str:
        """The place of the table, for messages."""
        return f"vector table {self.name!r}"

    @property
    def wanted_index(self) -> Index | None:
        """The content of an HNSW index on it, None for no index.

        Beyond 2,000 dimensions pgvector indexes 16-bit floats, which end at 65,504: directions
        fit in, a vector of any length need not. So other metrics stay exact there.
        """
        if not self.hnsw or self.dimension > MAX_HALF_INDEXED:
            return None
        if self.dimension <= MAX_INDEXED:
            return "full"
        return "half" if self.metric == "cosine" else None


def _is_name(part: str) -> bool:
    fits = 1 <= len(part.encode(errors="replace")) <= _MAX_NAME_BYTES
    return fits and "." not in part and part.isprintable()
