"""Two stages: an index finds many candidates fast, a reranker picks the best of them."""

from __future__ import annotations

from collections.abc import Sequence

from lib._util.operations import MAX_DOCUMENTS, MAX_QUERY_CHARS, model_of, operation
from lib.errors import VectorError
from lib.vector.contract import FilterLike
from lib.vector.index import Hybrid, Predicate
from lib.vector.records import Hit
from lib.vector.rerank.contract import Index, Reranker
from lib.vector.validate import checked_k


class RerankingIndex:
    """An index whose hits a reranker has put in order.

    It is searched as an `EmbeddingIndex` is, so that it may stand in front of another one, too.

    Attributes:
        index: where candidates are found.
        reranker: what picks the best of them.
        fetch_k: how many candidates it looks at, unless more hits are wanted.
    """

    def __init__(self, index: Index, reranker: Reranker, *, fetch_k: int = 30) -> None:
        """Put a reranker behind an index.

        Raises:
            ValueError: `fetch_k` is below 1.
        """
        if fetch_k < 1:
            raise ValueError(f"fetch_k is {fetch_k}, it has to be at least 1")
        self.index = index
        self.reranker = reranker
        self.fetch_k = fetch_k

    async def search(
        self,
        query: str,
        k: int = 5,
        *,
        filter: Predicate | FilterLike = None,
        hybrid: Hybrid | None = None,
    ) -> list[Hit]:
        """Return the k best of `fetch_k` candidates, best first.

        Hits keep the score, and its metric, that the index gave them: they are in the reranker's
        order, not in that of their scores.

        Args:
            query: what is looked for.
            k: how many hits are wanted.
            filter: which documents count, as the index takes it.
            hybrid: as the index takes it.

        Raises:
            ValueError: k is below 1; and what else the index raises.
            LLMError: the reranker failed for good. Nothing is returned in its stead: who would
                rather have the first stage's order catches it and searches `index`.
            VectorError: the reranker gave what is no order of the candidates.
        """
        k = checked_k(k)
        hits = await self.index.search(query, max(self.fetch_k, k), filter=filter, hybrid=hybrid)
        if not hits:
            return []
        model, shown = model_of(self.reranker), query[:MAX_QUERY_CHARS]
        with operation("reranker", model=model, k=int(k), count=len(hits), query=shown) as facts:
            places = await self.reranker.rerank(query, [hit.text for hit in hits], k)
            _check(places, len(hits), k)
            facts["documents"] = [{"id": hits[place].doc.id} for place in places[:MAX_DOCUMENTS]]
        return [hits[place] for place in places]


def _check(places: Sequence[int], count: int, k: int) -> None:
    """Refuse places that are not those of the k best, each once; rerankers are written by many."""
    if len(places) != min(k, count) or len(set(places).intersection(range(count))) != len(places):
        raise VectorError(
            f"the reranker's {len(places)} places are not the {min(k, count)} best of {count} texts"
        )
