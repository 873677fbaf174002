"""`ChromaVectorStore`: Chroma in a folder, in memory or on a server, a collection a namespace."""

from __future__ import annotations

from lib.vector.stores.chroma.store import ChromaVectorStore

__all__ = ["ChromaVectorStore"]
