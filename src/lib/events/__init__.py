"""Runs as append-only logs: events, the stores that keep them, and the bus that carries them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lib.errors import (
    BlobMissing,
    Conflict,
    ContentTooLarge,
    MigrationNeeded,
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
from lib.events.store import EventStore, Feed
from lib.events.stores.memory import MemoryEventStore

if TYPE_CHECKING:
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
    "RunInfo",
    "RunNotFound",
    "RunQuery",
    "SQLiteEventStore",
    "SchemaTooNew",
    "StoreClosed",
    "StoreCorrupt",
    "StoreError",
    "StoreReadOnly",
]


def __getattr__(name: str) -> Any:
    if name == "SQLiteEventStore":
        from lib.events.stores.sqlite import SQLiteEventStore  # noqa: PLC0415 - loads its driver

        return SQLiteEventStore
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
