"""A query on its way through the store, and what memory alone says to it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lib.vector.exact.partition import Snapshot
from lib.vector.exact.search import Selection, effort
from lib.vector.filter import Filter
from lib.vector.offload import copying, is_small
from lib.vector.stores.sqlite.cache import RowIds


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A query.

    Attributes:
        namespace: where to search.
        vector: d floats.
        k: how many records at most.
        filter: what they have to pass, folded; None if all do.
        include_vectors: whether they are wanted with their vectors.
    """

    namespace: str
    vector: NDArray[np.float32]
    k: int
    filter: Filter | None
    include_vectors: bool

    def is_small(self, snapshot: Snapshot[RowIds], among: Selection) -> bool:
        """Tell whether the event loop may answer it."""
        floats = len(self.vector) if self.include_vectors else 0
        copies = copying(min(self.k, among.count), floats)
        return is_small(effort(snapshot.rows, among) + copies)


@dataclass(frozen=True, slots=True)
class Near:
    """The nearest rows of a namespace with their scores, best first."""

    snapshot: Snapshot[RowIds]
    found: list[tuple[int, float]]
