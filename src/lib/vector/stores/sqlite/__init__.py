"""`SQLiteVectorStore`: exact search in one file, filters in SQL, keywords by FTS5."""

from __future__ import annotations

from lib.vector.stores.sqlite.store import SQLiteVectorStore

__all__ = ["SQLiteVectorStore"]
