"""`PostgresVectorStore`: one table of a PostgreSQL with the extension pgvector."""

from __future__ import annotations

from lib.vector.stores.postgres.store import PostgresVectorStore

__all__ = ["PostgresVectorStore"]
