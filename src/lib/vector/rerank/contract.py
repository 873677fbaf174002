"""The contracts of reranking: what can be searched, and what puts texts in order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from lib.vector.filter import Filter
from lib.vector.index import Hybrid, Predicate
from lib.vector.records import Hit


class Reranker(Protocol):
    """Puts texts in the order of their relevance to a query."""

    async def rerank(self, query: str, texts: Sequence[str], k: int) -> list[int]:
        """Return the places in `texts` of the k most relevant, best first.

        Places are counted from 0, each is there once, and there are k of them or as many as there
        are texts. A blank text comes after all others. Where there is nothing to judge, with a
        blank query or fewer than two texts that are not blank, nobody is asked.

        Args:
            query: what was looked for.
            texts: n texts, in the order in which they were found. Equally relevant ones keep it,
                but which of them are among the best k is the judge's choice.
            k: how many places are wanted.

        Raises:
            ValueError: k is below 1.
            LLMError: the judge cannot be asked, or refuses.
        """
        ...


class Index(Protocol):
    """What can be searched by text, as an `EmbeddingIndex` can."""

    async def search(
        self,
        query: str,
        k: int = 5,
        *,
        filter: Predicate | Filter | dict[str, Any] | None = None,
        hybrid: Hybrid | None = None,
    ) -> list[Hit]:
        """Return the k best documents for the query, best first."""
        ...
