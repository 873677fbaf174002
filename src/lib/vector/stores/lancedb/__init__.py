"""`LanceDBVectorStore`: exact search in a folder or an object store, without a server."""

from __future__ import annotations

from lib.vector.stores.lancedb.store import LanceDBVectorStore

__all__ = ["LanceDBVectorStore"]
