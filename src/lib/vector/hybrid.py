"""`HybridBackedStore`, which stores extend whose backends search texts by their words."""

from __future__ import annotations

from typing import ClassVar, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from lib._util.turns import turn
from lib.vector.backend import MAX_K, BackedStore, Backend
from lib.vector.contract import FUSION_WORDS, Capability, FilterLike, FusionWord, checked_fusion
from lib.vector.filter import Filter
from lib.vector.records import Match, Vector
from lib.vector.text.fusion import Fusion, FusionLike
from lib.vector.validate import checked_k, checked_namespace, checked_words


class HybridBackend(Backend, Protocol):
    """A backend that can fuse keyword relevance with nearness."""

    async def query_hybrid(
        self,
        namespace: str,
        query: NDArray[np.float32],
        text: str,
        k: int,
        filter: Filter | None,
        *,
        fusion: Fusion,
    ) -> list[Match]:
        """Return the best of two lists, nearest vectors and best texts.

        `lib.vector.text.fusion.fused` makes one list of them, as in every store.
        """
        ...

    async def query_keywords(
        self, namespace: str, text: str, k: int, filter: Filter | None
    ) -> list[Match]:
        """Return the best texts, best first, ties by id."""
        ...


H = TypeVar("H", bound=HybridBackend)


class HybridBackedStore(BackedStore[H], Generic[H]):
    """A store over a backend that can fuse keyword relevance with nearness."""

    capabilities: ClassVar[frozenset[Capability]] = frozenset(
        {*BackedStore.capabilities, "hybrid", "keywords"}
    )

    fusions: ClassVar[frozenset[FusionWord]] = frozenset(FUSION_WORDS)
    """The ways in which it can fuse; any other raises `UnsupportedFusion`."""

    async def query_hybrid(
        self,
        vector: Vector,
        text: str,
        k: int = 5,
        *,
        filter: FilterLike = None,
        namespace: str | None = None,
        fusion: FusionLike = "rrf",
    ) -> list[Match]:
        """Return the k best of two lists, nearest vectors and best texts, made one by `fusion`.

        Any word of `text` may match; a text without words leaves the vector list alone.
        """
        await turn()
        chosen = checked_fusion(self, fusion)
        k, query = self._checked_query(vector, k)
        name, words = checked_namespace(namespace), checked_words(text)
        nothing = list[Match]()
        return await self._filtered(
            filter,
            lambda plan: self._run(
                lambda backend: backend.query_hybrid(name, query, words, k, plan, fusion=chosen)
            ),
            otherwise=nothing,
        )

    async def query_keywords(
        self,
        text: str,
        k: int = 5,
        *,
        filter: FilterLike = None,
        namespace: str | None = None,
    ) -> list[Match]:
        """Return the k records whose texts are most relevant to the words of `text`, best first.

        Any word may match; a text without words finds nothing.
        """
        await turn()
        most, words = min(checked_k(k), MAX_K), checked_words(text)
        name, nothing = checked_namespace(namespace), list[Match]()
        return await self._filtered(
            filter,
            lambda plan: self._run(lambda backend: backend.query_keywords(name, words, most, plan)),
            otherwise=nothing,
        )
