"""The peers of `benchmarks/search.py`, each with what it offers that is fastest.

A peer is a function that is given the records and returns one search per case; a case that it
cannot answer is left out.
"""

from __future__ import annotations

import os
from importlib import import_module

from peers.search.data import CASES as CASES
from peers.search.data import Data as Data
from peers.search.data import Searches

PEERS = {
    "numpy": "libraries.numpy_best",
    "faiss-flat": "libraries.faiss_flat",
    "usearch-exact": "libraries.usearch_exact",
    "faiss-hnsw": "libraries.faiss_hnsw",
    "hnswlib": "libraries.hnswlib_index",
    "sqlite-vec": "databases.sqlite_vec_flat",
    "pgvector-exact": "databases.pgvector_exact",
    "pgvector-hnsw": "databases.pgvector_hnsw",
    "lancedb": "databases.lancedb_flat",
    "chroma": "databases.chroma",
    "qdrant-local": "databases.qdrant_local",
    "langchain": "frameworks.langchain",
    "llama-index": "frameworks.llama_index",
    "haystack": "frameworks.haystack",
}
SLOW = frozenset({"qdrant-local", "langchain", "llama-index", "haystack"})
"""Left out above 40 million floats: they take minutes to fill, and 12 kB for 384 of them."""

os.environ.setdefault("LANCEDB_LOG", "error")  # else a warning per query


def filled(name: str, data: Data) -> Searches:
    """Return the searches of a peer that holds the records."""
    module, _, function = PEERS[name].partition(".")
    return getattr(import_module(f"peers.search.{module}"), function)(data)
