"""One vector contract, many stores: records, filters, exact and hybrid search.

`InMemoryVectorStore` and `SQLiteVectorStore` need nothing but this package. A filter means the
same in every store, or is refused by name; `lib.vector.filter` states its rules. Whatever loads
numpy or a driver is loaded when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lib._util.lazy import lazy_exports
from lib.errors import (
    DimensionMismatch,
    HybridUnavailable,
    InvalidFilter,
    InvalidMeta,
    InvalidVector,
    MetricMismatch,
    TenantViolation,
    UnsupportedFilter,
    UnsupportedFusion,
)
from lib.vector.contract import Embedder, HybridStore, KeywordStore, ScanStore, VectorStore
from lib.vector.filter import EVERYTHING, F, Filter
from lib.vector.records import Doc, Facet, Hit, Match, Metric, Record, Vector
from lib.vector.text.fusion import Fusion

if TYPE_CHECKING:
    from lib.vector.backend import BackedStore, Backend
    from lib.vector.composed import ComposedBackend
    from lib.vector.copy import copy_store
    from lib.vector.embed.cohere import CohereEmbedder
    from lib.vector.embed.lsa import LSAEmbedder
    from lib.vector.embed.openai import OpenAIEmbedder
    from lib.vector.embed.resilient import ResilientEmbedder
    from lib.vector.embed.sentence_transformer import SentenceTransformerEmbedder
    from lib.vector.embed.voyage import VoyageEmbedder
    from lib.vector.hybrid import HybridBackedStore
    from lib.vector.index import EmbeddingIndex
    from lib.vector.rerank.contract import Reranker
    from lib.vector.rerank.http import CohereReranker, VoyageReranker
    from lib.vector.rerank.http import CohereReranker as RerankerA
    from lib.vector.rerank.http import VoyageReranker as RerankerB
    from lib.vector.rerank.index import RerankingIndex
    from lib.vector.rerank.llm import LLMReranker
    from lib.vector.rerank.resilient import ResilientReranker
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
    "ComposedBackend",
    "DimensionMismatch",
    "Doc",
    "EmbeddedVectorStoreA",
    "EmbeddedVectorStoreB",
    "Embedder",
    "EmbeddingIndex",
    "F",
    "Facet",
    "FileVectorStore",
    "Filter",
    "Fusion",
    "Hit",
    "HostedVectorStore",
    "HybridBackedStore",
    "HybridStore",
    "HybridUnavailable",
    "InMemoryVectorStore",
    "InvalidFilter",
    "InvalidMeta",
    "InvalidVector",
    "KeywordStore",
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
    "ResilientEmbedder",
    "ResilientReranker",
    "SQLiteVectorStore",
    "ScanStore",
    "SentenceTransformerEmbedder",
    "ServerVectorStoreA",
    "TenantVectorStore",
    "TenantViolation",
    "UnsupportedFilter",
    "UnsupportedFusion",
    "Vector",
    "VectorStore",
    "VoyageEmbedder",
    "VoyageReranker",
    "copy_store",
    "open_vector_store",
]

if not TYPE_CHECKING:  # type checkers are to see misspelt names
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "BackedStore": "lib.vector.backend",
            "Backend": "lib.vector.backend",
            "Batch": "lib.vector.validate",
            "ChromaVectorStore": "lib.vector.stores.chroma",
            "CohereEmbedder": "lib.vector.embed.cohere",
            "CohereReranker": "lib.vector.rerank.http",
            "ComposedBackend": "lib.vector.composed",
            "EmbeddedVectorStoreA": "lib.vector.stores.lancedb:LanceDBVectorStore",
            "EmbeddedVectorStoreB": "lib.vector.stores.chroma:ChromaVectorStore",
            "EmbeddingIndex": "lib.vector.index",
            "FileVectorStore": "lib.vector.stores.sqlite:SQLiteVectorStore",
            "HostedVectorStore": "lib.vector.stores.pinecone:PineconeVectorStore",
            "HybridBackedStore": "lib.vector.hybrid",
            "InMemoryVectorStore": "lib.vector.stores.memory",
            "LLMReranker": "lib.vector.rerank.llm",
            "LSAEmbedder": "lib.vector.embed.lsa",
            "LanceDBVectorStore": "lib.vector.stores.lancedb",
            "OpenAIEmbedder": "lib.vector.embed.openai",
            "PineconeVectorStore": "lib.vector.stores.pinecone",
            "PostgresVectorStore": "lib.vector.stores.postgres",
            "QdrantVectorStore": "lib.vector.stores.qdrant",
            "RelationalVectorStore": "lib.vector.stores.postgres:PostgresVectorStore",
            "Reranker": "lib.vector.rerank.contract",
            "RerankerA": "lib.vector.rerank.http:CohereReranker",
            "RerankerB": "lib.vector.rerank.http:VoyageReranker",
            "RerankingIndex": "lib.vector.rerank.index",
            "SQLiteVectorStore": "lib.vector.stores.sqlite",
            "ResilientEmbedder": "lib.vector.embed.resilient",
            "ResilientReranker": "lib.vector.rerank.resilient",
            "SentenceTransformerEmbedder": "lib.vector.embed.sentence_transformer",
            "ServerVectorStoreA": "lib.vector.stores.qdrant:QdrantVectorStore",
            "TenantVectorStore": "lib.vector.tenant",
            "VoyageEmbedder": "lib.vector.embed.voyage",
            "VoyageReranker": "lib.vector.rerank.http",
            "copy_store": "lib.vector.copy",
            "open_vector_store": "lib.vector.urls",
        },
    )
