"""The k best of a backend that breaks ties as it likes: equal scores in the order of their ids."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from lib.vector.records import Match

T = TypeVar("T")

_SPARE = 8  # results beyond the k-th, to see where its score ends
_GROWTH = 4


def ordered(found: Sequence[Match], *, higher_is_better: bool) -> list[Match]:
    """Return the matches best first, ties in the order of their ids."""
    sign = -1.0 if higher_is_better else 1.0
    return sorted(found, key=lambda match: (sign * match.score, match.id))


async def nearest(
    fetch: Callable[[int], Awaitable[Sequence[Match]]],
    k: int,
    *,
    higher_is_better: bool,
    limit: int | None = None,
) -> list[Match]:
    """Return the k best, as if the backend had ordered equal scores by id.

    Args:
        fetch: asks the backend for its n best, in any order; fewer only where there are no more.
        k: how many are wanted.
        higher_is_better: how the backend's scores are read.
        limit: the most that can be asked for; beyond it ties are broken as the backend likes.
    """
    sign = -1.0 if higher_is_better else 1.0
    found = await contenders(fetch, k, distance=lambda match: sign * match.score, limit=limit)
    return ordered(found, higher_is_better=higher_is_better)[:k]


async def contenders(
    fetch: Callable[[int], Awaitable[Sequence[T]]],
    k: int,
    *,
    distance: Callable[[T], float],
    limit: int | None = None,
) -> Sequence[T]:
    """Return the k best and all that are as good as the k-th, perhaps more, in any order.

    Asks for more than k until a result is worse than the k-th, so that every tie with it is seen.

    Args:
        fetch: asks the backend for its n best, in any order; fewer only where there are no more.
            It may give more than n, as long as they are its best.
        k: how many are wanted.
        distance: how bad a result is.
        limit: the most that can be asked for.
    """
    size = k + _SPARE
    while True:
        size = size if limit is None else min(size, limit)
        found = await fetch(size)
        distances = sorted(map(distance, found))
        complete = len(found) < size or size == limit
        if complete or distances[-1] != distances[k - 1]:
            return found
        size *= _GROWTH
