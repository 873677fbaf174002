"""`PineconeVectorStore`: one index of Pinecone's service, spoken to over HTTP."""

from __future__ import annotations

from lib.vector.stores.pinecone.store import PineconeVectorStore

__all__ = ["PineconeVectorStore"]
