"""Maximal marginal relevance: results that are near the query and not all alike."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def marginal_relevance(
    query: NDArray[np.float32], vectors: NDArray[np.float32], k: int, diversity: float
) -> list[int]:
    """Return up to k rows, each the best beside those before it, ties in the order of the rows.

    A row's worth is its similarity to the query, less what it has in common with the row already
    chosen that is most like it. Similarity is the cosine; a vector of zeros is like no other.

    Args:
        query: d floats.
        vectors: n rows of d floats.
        k: how many rows at most.
        diversity: 0 to 1: the weight of what is in common, the similarity having the rest.

    Source: J. Carbonell, J. Goldstein, The use of MMR, diversity-based reranking for reordering
    documents and producing summaries, SIGIR 1998.
    """
    rows, wanted = _directions(vectors), _directions(query[np.newaxis])[0]
    relevance = (1.0 - diversity) * _products(rows, wanted)
    common, free = np.zeros(len(rows)), np.ones(len(rows), np.bool_)
    chosen: list[int] = []
    while len(chosen) < min(k, len(rows)):
        worth = np.where(free, relevance - diversity * common, -np.inf)
        best = int(np.argmax(worth))
        alike = _products(rows, rows[best])
        common = np.maximum(common, alike) if chosen else alike
        free[best] = False
        chosen.append(best)
    return chosen


def _products(rows: NDArray[np.float64], vector: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the products with each row, the same for equal rows wherever they stand."""
    return (rows * vector).sum(axis=1)


def _directions(vectors: NDArray[np.float32]) -> NDArray[np.float64]:
    wide = vectors.astype(np.float64)
    lengths = np.linalg.norm(wide, axis=1, keepdims=True)
    return wide / np.where(lengths == 0.0, 1.0, lengths)
