"""The stores in memory that frameworks bring along."""

from __future__ import annotations

import numpy as np
from haystack import Document as HaystackDocument
from haystack.document_stores.in_memory import InMemoryDocumentStore
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.vectorstores import InMemoryVectorStore
from llama_index.core.schema import TextNode
from llama_index.core.vector_stores import MetadataFilter, MetadataFilters, SimpleVectorStore
from llama_index.core.vector_stores.types import VectorStoreQuery
from peers.search.data import CASES, Data, Search, Searches


def langchain(data: Data) -> Searches:
    """InMemoryVectorStore, with filters as the functions that it takes."""
    store = InMemoryVectorStore(_PrecomputedEmbeddings(data.matrix))
    store.add_documents(
        [Document(str(row), id=str(row), metadata=meta) for row, meta in enumerate(data.metas())]
    )

    def search(wanted: tuple[str, int] | None) -> Search:
        def passes(document: Document) -> bool:
            return wanted is None or document.metadata[wanted[0]] == wanted[1]

        only = None if wanted is None else passes

        def found(query: np.ndarray) -> list[int]:
            answer = store.similarity_search_with_score_by_vector(query.tolist(), data.k, only)
            return [int(document.id) for document, _ in answer]

        return found

    return {case: search(wanted) for case, wanted in CASES.items()}


class _PrecomputedEmbeddings(Embeddings):
    """Embeds the text "7" as row 7."""

    def __init__(self, matrix: np.ndarray) -> None:
        self._matrix = matrix

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return self._matrix[[int(text) for text in texts]].tolist()

    def embed_query(self, text: str) -> list[float]:
        return self._matrix[int(text)].tolist()


def llama_index(data: Data) -> Searches:
    """SimpleVectorStore."""
    store = SimpleVectorStore()
    store.add(
        [
            TextNode(id_=str(row), embedding=vector.tolist(), metadata=meta)
            for row, (vector, meta) in enumerate(zip(data.matrix, data.metas(), strict=True))
        ]
    )

    def search(wanted: tuple[str, int] | None) -> Search:
        only = None
        if wanted is not None:
            only = MetadataFilters(filters=[MetadataFilter(key=wanted[0], value=wanted[1])])

        def found(query: np.ndarray) -> list[int]:
            request = VectorStoreQuery(
                query_embedding=query.tolist(), similarity_top_k=data.k, filters=only
            )
            return [int(name) for name in store.query(request).ids or []]

        return found

    return {case: search(wanted) for case, wanted in CASES.items()}


def haystack(data: Data) -> Searches:
    """InMemoryDocumentStore."""
    store = InMemoryDocumentStore(embedding_similarity_function="dot_product")
    store.write_documents(
        [
            HaystackDocument(id=str(row), content="", embedding=vector.tolist(), meta=meta)
            for row, (vector, meta) in enumerate(zip(data.matrix, data.metas(), strict=True))
        ]
    )

    def search(wanted: tuple[str, int] | None) -> Search:
        only = None
        if wanted is not None:
            only = {"field": f"meta.{wanted[0]}", "operator": "==", "value": wanted[1]}

        def found(query: np.ndarray) -> list[int]:
            answer = store.embedding_retrieval(query.tolist(), filters=only, top_k=data.k)
            return [int(document.id) for document in answer]

        return found

    return {case: search(wanted) for case, wanted in CASES.items()}
