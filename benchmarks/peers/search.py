"""The peers of `benchmarks/search.py`, each with what it offers that is fastest."""

from __future__ import annotations

from collections.abc import Callable

import faiss
import numpy as np
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.vectorstores import InMemoryVectorStore

Search = Callable[[np.ndarray], list[int]]


def faiss_flat(matrix: np.ndarray, masks: dict[str, np.ndarray], k: int) -> dict[str, Search]:
    """IndexFlatIP; its selectors are made beforehand and cost the search nothing."""
    index = faiss.IndexFlatIP(matrix.shape[1])
    index.add(matrix)

    def search(mask: np.ndarray) -> Search:
        if mask.all():
            return lambda query: index.search(query[None], k)[1][0].tolist()
        selector = faiss.IDSelectorBitmap(np.packbits(mask, bitorder="little"))
        asked = faiss.SearchParameters(sel=selector)
        return lambda query: index.search(query[None], k, params=asked)[1][0].tolist()

    return {case: search(mask) for case, mask in masks.items()}


def langchain_memory(matrix: np.ndarray, masks: dict[str, np.ndarray], k: int) -> dict[str, Search]:
    """InMemoryVectorStore, with filters as the callables that it takes."""
    store = InMemoryVectorStore(_Given(matrix))
    store.add_documents(
        [
            Document(
                str(row), id=str(row), metadata={case: bool(masks[case][row]) for case in masks}
            )
            for row in range(len(matrix))
        ]
    )

    def search(case: str) -> Search:
        def passes(document: Document) -> bool:
            return document.metadata[case]

        wanted = None if masks[case].all() else passes
        return lambda query: [
            int(document.id)
            for document, _ in store.similarity_search_with_score_by_vector(
                query.tolist(), k, wanted
            )
        ]

    return {case: search(case) for case in masks}


class _Given(Embeddings):
    """Embeds the text "7" as row 7."""

    def __init__(self, matrix: np.ndarray) -> None:
        self._matrix = matrix

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return self._matrix[[int(text) for text in texts]].tolist()

    def embed_query(self, text: str) -> list[float]:
        return self._matrix[int(text)].tolist()
