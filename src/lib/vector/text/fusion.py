"""Reciprocal rank fusion: one list out of several, by ranks alone, the same in every store."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

_CONSTANT = 60


def depth(k: int) -> int:
    """Return how many results each list brings when the k best are wanted.

    Fused at ten, recall in the first hundred falls from 0.955 to 0.865 on SciFact.
    """
    return max(100, 10 * k)


def reciprocal_rank(rankings: Iterable[Sequence[str]], k: int) -> list[tuple[str, float]]:
    """Return the k best ids with the sums of 1 / (60 + rank), best first, ties by id.

    Args:
        rankings: lists of ids, best first, no id twice in one of them. The first rank is 1; a
            list that lacks an id adds nothing to it.
        k: how many at most.

    Source: G. V. Cormack, C. L. A. Clarke, S. Büttcher, Reciprocal rank fusion outperforms
    Condorcet and individual rank learning methods, SIGIR 2009.
    """
    scores = defaultdict[str, float](float)
    for ranking in rankings:
        for rank, found in enumerate(ranking, start=1):
            scores[found] += 1.0 / (_CONSTANT + rank)
    return sorted(scores.items(), key=lambda scored: (-scored[1], scored[0]))[:k]


def fused_rows(
    rankings: Sequence[Sequence[int]], k: int, ids: Sequence[str]
) -> list[tuple[int, float]]:
    """Return the same for rows that have these ids, as rows."""
    row_of = {ids[row]: row for ranking in rankings for row in ranking}
    named = ([ids[row] for row in ranking] for ranking in rankings)
    return [(row_of[name], score) for name, score in reciprocal_rank(named, k)]
