"""The contracts of reranking, and what every reranker does around its judge."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from itertools import chain
from typing import Protocol, TypeAlias

from lib._util.turns import turn
from lib.vector.contract import FilterLike
from lib.vector.index import Hybrid, Predicate
from lib.vector.records import Hit
from lib.vector.validate import checked_k


class Reranker(Protocol):
    """Puts texts in the order of their relevance to a query."""

    async def rerank(self, query: str, texts: Sequence[str], k: int) -> list[int]:
        """Return the places in `texts` of the k most relevant, best first.

        Places are counted from 0, each is there once, and there are k of them or as many as there
        are texts. A blank text comes after all others. Where there is nothing to judge, with a
        blank query or fewer than two texts that are not blank, the judge is not called.

        Args:
            query: what was looked for.
            texts: n texts, in the order in which they were found. Equally relevant ones keep it,
                but which of them are among the best k is the judge's choice.
            k: how many places are wanted.

        Raises:
            ValueError: k is below 1.
            LLMError: the judge cannot be reached, or refuses.
        """
        ...


class Index(Protocol):
    """A searcher of texts, such as an `EmbeddingIndex`."""

    async def search(
        self,
        query: str,
        k: int = 5,
        *,
        filter: Predicate | FilterLike = None,
        hybrid: Hybrid | None = None,
    ) -> list[Hit]:
        """Return the k best documents for the query, best first."""
        ...


Judge: TypeAlias = Callable[[Sequence[str], int], Awaitable[Sequence[int]]]
"""Takes texts and k, returns the places of up to k of the texts, best first, each once."""


async def best_first(query: str, texts: Sequence[str], k: int, judge: Judge) -> list[int]:
    """Return the places of the k best texts, best first.

    The judge sees the texts that are not blank, at least two. After those that it names come the
    rest of them, then the blank ones, each in their order.

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
