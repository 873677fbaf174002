"""Runs as append-only logs: events, the stores that keep them, and the bus that carries them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

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
from lib.events.store import EventStore, Feed, Tombstone
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
    "Event",
    "EventStore",
    "Feed",
    "Lease",
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


_STORES: Final = {
    "PostgresEventStore": "lib.events.stores.postgres",
    "RedisEventStore": "lib.events.stores.redis",
    "SQLiteEventStore": "lib.events.stores.sqlite",
}
"""Where the classes are that load a driver."""


def __getattr__(name: str) -> Any:
    if name in _STORES:
        return getattr(import_module(_STORES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
