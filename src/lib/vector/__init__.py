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
    UnsupportedFilter,
)
from lib.vector.filter import EVERYTHING, F, Filter
from lib.vector.protocol import Embedder, HybridStore, VectorStore
from lib.vector.records import Doc, Hit, Match, Metric, Record, Vector

if TYPE_CHECKING:
    from lib.vector.embed.lsa import LSAEmbedder
    from lib.vector.embed.openai import OpenAIEmbedder
    from lib.vector.index import EmbeddingIndex
    from lib.vector.stores.memory import InMemoryVectorStore
    from lib.vector.stores.sqlite import SQLiteVectorStore
    from lib.vector.stores.sqlite import SQLiteVectorStore as FileVectorStore

__all__ = [
    "EVERYTHING",
    "DimensionMismatch",
    "Doc",
    "Embedder",
    "EmbeddingIndex",
    "F",
    "FileVectorStore",
    "Filter",
    "Hit",
    "HybridStore",
    "HybridUnavailable",
    "InMemoryVectorStore",
    "InvalidFilter",
    "InvalidMeta",
    "InvalidVector",
    "LSAEmbedder",
    "Match",
    "Metric",
    "MetricMismatch",
    "OpenAIEmbedder",
    "Record",
    "SQLiteVectorStore",
    "UnsupportedFilter",
    "Vector",
    "VectorStore",
]

_WHERE = {
    "EmbeddingIndex": "lib.vector.index:EmbeddingIndex",
    "FileVectorStore": "lib.vector.stores.sqlite:SQLiteVectorStore",
    "InMemoryVectorStore": "lib.vector.stores.memory:InMemoryVectorStore",
    "LSAEmbedder": "lib.vector.embed.lsa:LSAEmbedder",
    "OpenAIEmbedder": "lib.vector.embed.openai:OpenAIEmbedder",
    "SQLiteVectorStore": "lib.vector.stores.sqlite:SQLiteVectorStore",
}


def __getattr__(name: str) -> Any:
    """Load what is listed above as it is first used."""
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, attribute = _WHERE[name].partition(":")
    loaded = getattr(import_module(module), attribute)
    globals()[name] = loaded
    return loaded
