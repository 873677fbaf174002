"""The k best of a backend that breaks ties as it likes: equal scores in the order of their ids."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from lib.vector.records import Match

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

    Asks for more than k until a result is worse than the k-th, so that every tie with it is seen.

    Args:
        fetch: asks the backend for its n best, in any order; fewer only where there are no more.
        k: how many are wanted.
        higher_is_better: how the backend's scores are read.
        limit: the most that can be asked for; beyond it ties are broken as the backend likes.
    """
    size = k + _SPARE
    while True:
        size = size if limit is None else min(size, limit)
        found = ordered(await fetch(size), higher_is_better=higher_is_better)
        complete = len(found) < size or size == limit
        if complete or found[-1].score != found[k - 1].score:
            return found[:k]
        size *= _GROWTH
