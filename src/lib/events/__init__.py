"""Runs as append-only logs: events, the stores that keep them, and the bus that carries them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lib._util.lazy import lazy_exports
from lib.errors import (
    BlobMissing,
    Conflict,
    ContentTooLarge,
    MigrationNeeded,
    RunErased,
    RunNotFound,
    SchemaTooNew,
    StoreClosed,
    StoreCorrupt,
    StoreError,
    StoreReadOnly,
)
from lib.events.blobs import INLINE_LIMIT, BlobStore, DirectoryBlobStore, MemoryBlobStore
from lib.events.event import Event, NewEvent
from lib.events.runs import Lease, RunInfo, RunQuery
from lib.events.store import (
    Erasure,
    EventStore,
    Feed,
    FeedPage,
    Leases,
    Log,
    Marks,
    Tombstone,
)
from lib.events.stores.memory import MemoryEventStore
from lib.events.urls import open_store

if TYPE_CHECKING:
    from lib.events.stores.postgres import PostgresEventStore
    from lib.events.stores.redis import RedisEventStore
    from lib.events.stores.sqlite import SQLiteEventStore

__all__ = [
    "INLINE_LIMIT",
    "BlobMissing",
    "BlobStore",
    "Conflict",
    "ContentTooLarge",
    "DirectoryBlobStore",
    "Erasure",
    "Event",
    "EventStore",
    "Feed",
    "FeedPage",
    "Lease",
    "Leases",
    "Log",
    "Marks",
    "MemoryBlobStore",
    "MemoryEventStore",
    "MigrationNeeded",
    "NewEvent",
    "PostgresEventStore",
    "RedisEventStore",
    "RunErased",
    "RunInfo",
    "RunNotFound",
    "RunQuery",
    "SQLiteEventStore",
    "SchemaTooNew",
    "StoreClosed",
    "StoreCorrupt",
    "StoreError",
    "StoreReadOnly",
    "Tombstone",
    "open_store",
]

if not TYPE_CHECKING:  # type checkers are to see misspelt names
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "PostgresEventStore": "lib.events.stores.postgres",
            "RedisEventStore": "lib.events.stores.redis",
            "SQLiteEventStore": "lib.events.stores.sqlite",
        },
    )
