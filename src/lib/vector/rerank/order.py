"""What every reranker does around its judge: it asks only where there is something to judge."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from itertools import chain
from typing import TypeAlias

from lib._util.turns import turn
from lib.vector.validate import checked_k

Judge: TypeAlias = Callable[[Sequence[str], int], Awaitable[Sequence[int]]]
"""Given texts and k, returns the places of up to k of the texts, best first, each once."""


async def best_first(query: str, texts: Sequence[str], k: int, judge: Judge) -> list[int]:
    """Return the places of the k best texts, best first.

    The judge sees the texts that are not blank, at least two. After those that it names come the
    rest of them, then the blank ones, each in the order given.

    Raises:
        ValueError: k is below 1.
    """
    await turn()
    k = checked_k(k)
    judged = [place for place, text in enumerate(texts) if text.strip()] if query.strip() else []
    best: list[int] = []
    if len(judged) > 1:
        named = await judge([texts[place] for place in judged], min(k, len(judged)))
        best = [judged[place] for place in named]
    return list(dict.fromkeys(chain(best, judged, range(len(texts)))))[:k]
