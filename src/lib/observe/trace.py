"""One trace: a root run and everything below it, read from the store and turned into spans."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from lib.events import Event, EventStore, RunInfo, RunQuery
from lib.events.kinds import is_signal
from lib.observe.span import Span
from lib.observe.spans import interrupt, spans_from_events

_INLINE_EVENTS: Final = 16
"""A longer log is turned into spans in a thread: it takes some 12 microseconds an event."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capture:
    """Whether spans show content, and how many characters of each piece."""

    content: bool
    limit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """The spans of a root run and of the runs below it.

    Attributes:
        spans: the root first, every parent before its children.
        settled: the ids of those which will never change.
    """

    root_id: str
    spans: Sequence[Span]
    settled: frozenset[str]


async def read_trace(
    store: EventStore, root_id: str, *, now: datetime, capture: Capture
) -> Trace | None:
    """Return the trace of a root run as its logs tell it, None if the run is not here (any more).

    Args:
        store: the logs.
        root_id: the run.
        now: past a run's lease, its owner counts as dead.
        capture: what the spans may show.
    """
    runs = await store.runs(RunQuery(root_id=root_id))
    logs = [(info, await store.read(info.run_id)) for info in runs]
    logs = [(info, events) for info, events in logs if events]
    if not logs or logs[0][0].run_id != root_id:
        return None
    if sum(len(events) for _, events in logs) > _INLINE_EVENTS:
        return await asyncio.to_thread(_trace, root_id, logs, now, capture)
    return _trace(root_id, logs, now, capture)


def _trace(
    root_id: str,
    logs: Sequence[tuple[RunInfo, Sequence[Event]]],
    now: datetime,
    capture: Capture,
) -> Trace:
    by_run = {info.run_id: events for info, events in logs}
    spans: list[Span] = []
    settled: set[str] = set()
    for info, events in logs:
        own = spans_from_events(
            events,
            parent_events=by_run.get(info.parent_id or ""),
            capture_content=capture.content,
            content_limit=capture.limit,
        )
        settled.update(span.span_id for span in own if span.end is not None)
        spans += interrupt(own, _last_heard_of(events)) if is_dead(info, now) else own
    return Trace(root_id=root_id, spans=spans, settled=frozenset(settled))


def is_dead(info: RunInfo, now: datetime) -> bool:
    """Tell whether the run's owner has died: it is open, and its lease has ended unreturned."""
    lease = info.lease_until
    return info.status == "open" and info.owner is not None and lease is not None and lease <= now


def _last_heard_of(events: Sequence[Event]) -> datetime:
    """Return when the run's owner wrote its last event; signals come from anybody."""
    return next(event.at for event in reversed(events) if not is_signal(event.kind))
