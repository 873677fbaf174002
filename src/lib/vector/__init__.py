"""One vector contract, many stores: records, filters, exact and hybrid search.

`InMemoryVectorStore` and `SQLiteVectorStore` need nothing but this package. A filter means the
same in every store, or is refused by name; `lib.vector.filter` states its rules. Whatever loads
numpy or a driver is loaded when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from lib.errors import (
    DimensionMismatch,
    HybridUnavailable,
    InvalidFilter,
    InvalidMeta,
    InvalidVector,
    MetricMismatch,
    TenantViolation,
    UnsupportedFilter,
)
from lib.vector.filter import EVERYTHING, F, Filter
from lib.vector.protocol import Embedder, HybridStore, ScanStore, VectorStore
from lib.vector.records import Doc, Hit, Match, Metric, Record, Vector

if TYPE_CHECKING:
    from lib.vector.backed import BackedStore, Backend, HybridBackedStore
    from lib.vector.copy import copy_store
    from lib.vector.embed.cohere import CohereEmbedder
    from lib.vector.embed.lsa import LSAEmbedder
    from lib.vector.embed.openai import OpenAIEmbedder
    from lib.vector.embed.sentence_transformer import SentenceTransformerEmbedder
    from lib.vector.embed.voyage import VoyageEmbedder
    from lib.vector.index import EmbeddingIndex
    from lib.vector.rerank.cohere import CohereReranker
    from lib.vector.rerank.cohere import CohereReranker as RerankerA
    from lib.vector.rerank.index import RerankingIndex
    from lib.vector.rerank.llm import LLMReranker
    from lib.vector.rerank.protocol import Reranker
    from lib.vector.rerank.voyage import VoyageReranker
    from lib.vector.rerank.voyage import VoyageReranker as RerankerB
    from lib.vector.stores.chroma import ChromaVectorStore
    from lib.vector.stores.chroma import ChromaVectorStore as EmbeddedVectorStoreB
    from lib.vector.stores.lancedb import LanceDBVectorStore
    from lib.vector.stores.lancedb import LanceDBVectorStore as EmbeddedVectorStoreA
    from lib.vector.stores.memory import InMemoryVectorStore
    from lib.vector.stores.pinecone import PineconeVectorStore
    from lib.vector.stores.pinecone import PineconeVectorStore as HostedVectorStore
    from lib.vector.stores.postgres import PostgresVectorStore
    from lib.vector.stores.postgres import PostgresVectorStore as RelationalVectorStore
    from lib.vector.stores.qdrant import QdrantVectorStore
    from lib.vector.stores.qdrant import QdrantVectorStore as ServerVectorStoreA
    from lib.vector.stores.sqlite import SQLiteVectorStore
    from lib.vector.stores.sqlite import SQLiteVectorStore as FileVectorStore
    from lib.vector.tenant import TenantVectorStore
    from lib.vector.urls import open_vector_store
    from lib.vector.validate import Batch

__all__ = [
    "EVERYTHING",
    "BackedStore",
    "Backend",
    "Batch",
    "ChromaVectorStore",
    "CohereEmbedder",
    "CohereReranker",
    "DimensionMismatch",
    "Doc",
    "EmbeddedVectorStoreA",
    "EmbeddedVectorStoreB",
    "Embedder",
    "EmbeddingIndex",
    "F",
    "FileVectorStore",
    "Filter",
    "Hit",
    "HostedVectorStore",
    "HybridBackedStore",
    "HybridStore",
    "HybridUnavailable",
    "InMemoryVectorStore",
    "InvalidFilter",
    "InvalidMeta",
    "InvalidVector",
    "LLMReranker",
    "LSAEmbedder",
    "LanceDBVectorStore",
    "Match",
    "Metric",
    "MetricMismatch",
    "OpenAIEmbedder",
    "PineconeVectorStore",
    "PostgresVectorStore",
    "QdrantVectorStore",
    "Record",
    "RelationalVectorStore",
    "Reranker",
    "RerankerA",
    "RerankerB",
    "RerankingIndex",
    "SQLiteVectorStore",
    "ScanStore",
    "SentenceTransformerEmbedder",
    "ServerVectorStoreA",
    "TenantVectorStore",
    "TenantViolation",
    "UnsupportedFilter",
    "Vector",
    "VectorStore",
    "VoyageEmbedder",
    "VoyageReranker",
    "copy_store",
    "open_vector_store",
]

_WHERE = {
    "BackedStore": "lib.vector.backed:BackedStore",
    "Backend": "lib.vector.backed:Backend",
    "Batch": "lib.vector.validate:Batch",
    "ChromaVectorStore": "lib.vector.stores.chroma:ChromaVectorStore",
    "CohereEmbedder": "lib.vector.embed.cohere:CohereEmbedder",
    "CohereReranker": "lib.vector.rerank.cohere:CohereReranker",
    "EmbeddedVectorStoreA": "lib.vector.stores.lancedb:LanceDBVectorStore",
    "EmbeddedVectorStoreB": "lib.vector.stores.chroma:ChromaVectorStore",
    "EmbeddingIndex": "lib.vector.index:EmbeddingIndex",
    "FileVectorStore": "lib.vector.stores.sqlite:SQLiteVectorStore",
    "HostedVectorStore": "lib.vector.stores.pinecone:PineconeVectorStore",
    "HybridBackedStore": "lib.vector.backed:HybridBackedStore",
    "InMemoryVectorStore": "lib.vector.stores.memory:InMemoryVectorStore",
    "LLMReranker": "lib.vector.rerank.llm:LLMReranker",
    "LSAEmbedder": "lib.vector.embed.lsa:LSAEmbedder",
    "LanceDBVectorStore": "lib.vector.stores.lancedb:LanceDBVectorStore",
    "OpenAIEmbedder": "lib.vector.embed.openai:OpenAIEmbedder",
    "PineconeVectorStore": "lib.vector.stores.pinecone:PineconeVectorStore",
    "PostgresVectorStore": "lib.vector.stores.postgres:PostgresVectorStore",
    "QdrantVectorStore": "lib.vector.stores.qdrant:QdrantVectorStore",
    "RelationalVectorStore": "lib.vector.stores.postgres:PostgresVectorStore",
    "Reranker": "lib.vector.rerank.protocol:Reranker",
    "RerankerA": "lib.vector.rerank.cohere:CohereReranker",
    "RerankerB": "lib.vector.rerank.voyage:VoyageReranker",
    "RerankingIndex": "lib.vector.rerank.index:RerankingIndex",
    "SQLiteVectorStore": "lib.vector.stores.sqlite:SQLiteVectorStore",
    "SentenceTransformerEmbedder": (
        "lib.vector.embed.sentence_transformer:SentenceTransformerEmbedder"
    ),
    "ServerVectorStoreA": "lib.vector.stores.qdrant:QdrantVectorStore",
    "TenantVectorStore": "lib.vector.tenant:TenantVectorStore",
    "VoyageEmbedder": "lib.vector.embed.voyage:VoyageEmbedder",
    "VoyageReranker": "lib.vector.rerank.voyage:VoyageReranker",
    "copy_store": "lib.vector.copy:copy_store",
    "open_vector_store": "lib.vector.urls:open_vector_store",
}


def __getattr__(name: str) -> Any:
    """Load what is listed above as it is first used."""
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, attribute = _WHERE[name].partition(":")
    loaded = getattr(import_module(module), attribute)
    globals()[name] = loaded
    return loaded
