"""`QdrantVectorStore`: one collection of a Qdrant server, or of Qdrant's in-process client."""

from __future__ import annotations

from lib.vector.stores.qdrant.store import QdrantVectorStore

__all__ = ["QdrantVectorStore"]
