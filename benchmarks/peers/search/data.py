"""The data of every peer."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np

Search = Callable[[np.ndarray], list[int]]
Searches = dict[str, Search]

CASES: dict[str, tuple[str, int] | None] = {"all": None, "1 %": ("bucket", 7), "50 %": ("half", 0)}
"""The field that has to have a value, per case."""


@dataclass(frozen=True, kw_only=True)
class Data:
    """Unit vectors with metadata: row i has the id i, bucket i % 100 and half i % 2.

    Attributes:
        matrix: n rows of d 32-bit floats.
        k: how many rows a search returns.
        folder: where files may be put.
        closing: what is to be closed at the end.
    """

    matrix: np.ndarray
    k: int
    folder: Path
    closing: ExitStack

    def columns(self) -> dict[str, np.ndarray]:
        """Return the metadata by field."""
        row = np.arange(len(self.matrix))
        return {"bucket": row % 100, "half": row % 2}

    def metas(self) -> list[dict[str, int]]:
        """Return the metadata by row."""
        return [{"bucket": row % 100, "half": row % 2} for row in range(len(self.matrix))]

    def mask(self, case: str) -> np.ndarray | None:
        """Return which rows a case allows; None stands for all."""
        wanted = CASES[case]
        return None if wanted is None else self.columns()[wanted[0]] == wanted[1]
