"""Coherence: one sign that the nearest vectors of a search have found something.

Vectors that are near the query by chance are no nearer to each other than that explains.

Source: M. Vlachou, C. Macdonald, On coherence-based predictors for dense query performance
prediction, 2023.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lib.vector.text.fusion import Fusion

COHERENT_AMONG: Final = 10
"""So many of the nearest are compared with each other."""

_FEWEST: Final = 3  # below it, coherence says nothing


def coherence_for(
    fusion: Fusion, query: NDArray[np.float32], near: Sequence[int], vectors: NDArray[np.float32]
) -> float:
    """Return the coherence of the nearest rows if the fusion needs it, else 0."""
    if fusion.method != "adaptive":
        return 0.0
    return coherence(query, vectors[near[:COHERENT_AMONG]])


def coherence(query: NDArray[np.float32], nearest: NDArray[np.float32]) -> float:
    """Return how near vectors are to each other beyond what being near the query explains.

    It is the mean partial correlation of their directions in standard errors: 0 by chance, seldom
    above 3.

    Args:
        query: d floats.
        nearest: n rows of d floats, best first, of which the first ten count.
    """
    rows = _directions(nearest[:COHERENT_AMONG])
    if len(rows) < _FEWEST:
        return 0.0
    near = np.clip(rows @ _directions(query[np.newaxis])[0], -0.999, 0.999)
    left = np.sqrt(1.0 - near * near)
    partial = (rows @ rows.T - np.outer(near, near)) / np.outer(left, left)
    pairs = partial[np.triu_indices(len(rows), 1)]
    return float(pairs.mean() * np.sqrt(pairs.size * rows.shape[1]))


def _directions(rows: NDArray[np.float32]) -> NDArray[np.float64]:
    exact = rows.astype(np.float64)
    lengths = np.linalg.norm(exact, axis=1, keepdims=True)
    return np.divide(exact, lengths, out=np.zeros_like(exact), where=lengths > 0.0)
