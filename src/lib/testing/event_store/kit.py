"""Helpers of the tests of event stores."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from lib._util.clock import Clock
from lib.events import Event, EventStore, NewEvent
from lib.events import kinds as k
from lib.events.runs import partition_of
from lib.events.store import START
from lib.testing.aio import run
from lib.testing.clock import ManualClock

AT = datetime(2026, 5, 4, 3, 2, 1, 123456, tzinfo=UTC)
NOTE = "user.note"
"""A kind that any caller may append: it is not the library's own."""


RESUMED = NewEvent(k.RUN_RESUMED, {}, AT)
"""An event that only the owner of a run appends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreKind:
    """An event store and what it can do.

    Attributes:
        open: makes a store object, not set up yet, in a directory; all in one are one store.
        survives_close: whether `close()` and `setup()` of one object keep what it holds.
        shared: whether several objects on one place hold the same, at the same time.
    """

    open: Callable[[Path, Clock], EventStore]
    survives_close: bool
    shared: bool


@dataclass(frozen=True, slots=True)
class Using:
    """Runs the body of a test with stores on one place, under a clock that stands still."""

    kind: StoreKind
    place: Path
    clock: ManualClock

    def __call__(self, body: Callable[[EventStore], Coroutine[Any, Any, None]]) -> None:
        """Run the body with one store."""

        async def main() -> None:
            async with self.opened() as store:
                await body(store)

        run(main())

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[EventStore]:
        """Set up another store object on the same place."""
        store = self.kind.open(self.place, self.clock)
        await store.setup()
        try:
            yield store
        finally:
            await store.close()


class StoreTests:
    """Base of the parts of the contract; they need a fixture `kind` of their subclass."""

    @pytest.fixture
    def using(self, kind: StoreKind, tmp_path: Path) -> Using:
        """Return the runner of the body of a test."""
        return Using(kind, tmp_path, ManualClock())


def started(
    *, tenant: str | None = None, user: str | None = None, at: datetime = AT, **data: Any
) -> NewEvent:
    """Return the start of a run."""
    return NewEvent(k.RUN_STARTED, {"algorithm": "react", **data}, at, tenant, user)


def attached(*digests: str, size: int = 1) -> list[dict[str, Any]]:
    """Return the messages of a start with attachments that a blob store holds."""
    blobs = [{"$blob": digest, "size": size, "type": "text/plain"} for digest in digests]
    return [{"role": "user", "parts": [{"type": "file", "blob": blob} for blob in blobs]}]


def ended(outcome: str = "COMPLETED") -> NewEvent:
    """Return the end of a run."""
    return NewEvent(k.RUN_COMPLETED, {"outcome": outcome}, AT)


def note(text: str = "", *, at: datetime = AT, user: str | None = None) -> NewEvent:
    """Return an event with a text."""
    return NewEvent(NOTE, {"text": text}, at, user=user)


async def begin(
    store: EventStore, run_id: str, notes: int = 0, *, end: bool = False, **start: Any
) -> list[Event]:
    """Append a start, some notes and perhaps an end; return them as stored."""
    events = [started(**start), *(note(str(number)) for number in range(notes))]
    return await store.append(run_id, [*events, *([ended()] if end else [])], expected=0)


async def partition_events(store: EventStore, partition: int, *, limit: int = 3) -> list[Event]:
    """Return the whole feed of a partition, page by page."""
    events: list[Event] = []
    page = await store.feed(START, limit=limit, partition=partition)
    while page.events:
        events += page.events
        page = await store.feed(page.cursor, limit=limit, partition=partition)
    return events


async def all_events(store: EventStore, *, limit: int = 3) -> list[Event]:
    """Return the whole feed of every partition, one partition after the other."""
    feeds = [await partition_events(store, n, limit=limit) for n in range(store.partitions)]
    return [event for feed in feeds for event in feed]


def spread(store: EventStore, events: Iterable[Event], roots: Mapping[str, str]) -> list[Event]:
    """Return events as `all_events` does, from the order in which they were appended.

    Args:
        store: whose partitions are meant.
        events: of one partition in the order of their commits.
        roots: the root of each run that is not its own.
    """

    def partition(event: Event) -> int:
        return partition_of(roots.get(event.run_id, event.run_id), store.partitions)

    return sorted(events, key=partition)
