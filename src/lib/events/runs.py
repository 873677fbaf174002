"""What a store knows of each run: a fold of its events, written in the same transaction.

Pure: every store projects with the functions of this file, so all agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

from lib.errors import Conflict, RunNotFound
from lib.events.event import Event, NewEvent
from lib.events.kinds import RUN_COMPLETED, RUN_STARTED, is_signal

RunStatus = Literal["open", "closed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInfo:
    """One run as its store lists it.

    Attributes:
        head: the `seq` of its last event.
        ready: whether a worker would find something to do.
        outcome: how it ended, None while it is open.
        owner: who holds the lease, if anybody does.
        lease_until: when that lease ends or ended; past it, the owner counts as dead.
    """

    run_id: str
    root_id: str
    parent_id: str | None
    algorithm: str
    tenant: str | None
    user: str | None
    created_at: datetime
    updated_at: datetime
    head: int
    status: RunStatus = "open"
    outcome: str | None = None
    ready: bool = True
    owner: str | None = None
    lease_until: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunQuery:
    """Which runs to list, oldest first; None means any.

    Attributes:
        roots: only runs without a parent.
        after: only runs created after this run id's run, for paging.
        limit: at most so many.
    """

    tenant: str | None = None
    status: RunStatus | None = None
    root_id: str | None = None
    roots: bool = False
    since: datetime | None = None
    after: str | None = None
    limit: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The right to drive a run until a time, given to one owner at once.

    It saves double work; safety comes from the expected sequence number of each append.

    Attributes:
        epoch: how often the run has been claimed; an older epoch has lost it.
        takeover: whether the owner before has not given it back, and so may still believe in it.
    """

    run_id: str
    owner: str
    epoch: int
    until: datetime
    takeover: bool = False


def check_batch(events: Sequence[NewEvent], expected: int | None) -> None:
    """Refuse a batch that no store may take.

    Raises:
        ValueError: it is empty, or is appended without `expected` and is not all signals.
    """
    if not events:
        raise ValueError("an append needs at least one event")
    if expected is not None:
        return
    for event in events:
        if not is_signal(event.kind):
            raise ValueError(f"only signals are appended without expected=, not {event.kind!r}")


def advance(
    info: RunInfo | None, run_id: str, events: Sequence[NewEvent], expected: int | None
) -> tuple[RunInfo, list[Event]]:
    """Return the run after the batch, and the batch as stored events.

    Raises:
        Conflict: the log is not at `expected`.
        RunNotFound: a signal to a run that does not exist.
        ValueError: the first event is not the start, a later one is, or the tenant differs.
    """
    head = info.head if info else 0
    if expected is not None and expected != head:
        raise Conflict(run_id, expected=expected, actual=head)
    if info is None:
        if expected is None:
            raise RunNotFound(run_id)
        info = _begin(run_id, events[0])
    stored: list[Event] = []
    closed = info.outcome
    for seq, event in enumerate(events, head + 1):
        if (event.kind == RUN_STARTED) != (seq == 1):
            raise ValueError(f"a log begins with {RUN_STARTED!r}, and only begins with it")
        if event.tenant is not None and event.tenant != info.tenant:
            raise ValueError("an event has the tenant of its run")
        if event.kind == RUN_COMPLETED:
            closed = event.data["outcome"]
        stored.append(Event(run_id, seq, event.kind, event.data, event.at, info.tenant, event.user))
    return _project(info, stored, closed), stored


def _begin(run_id: str, start: NewEvent) -> RunInfo:
    parent = start.data.get("parent")
    return RunInfo(
        run_id=run_id,
        root_id=start.data.get("root", run_id),
        parent_id=parent["run_id"] if parent else None,
        algorithm=start.data.get("algorithm", ""),
        tenant=start.tenant,
        user=start.user,
        created_at=start.at,
        updated_at=start.at,
        head=0,
    )


def _project(info: RunInfo, stored: Sequence[Event], outcome: str | None) -> RunInfo:
    last = stored[-1]
    return replace(
        info,
        head=last.seq,
        updated_at=last.at,
        status="open" if outcome is None else "closed",
        outcome=outcome,
        ready=outcome is None,
    )


def matches(info: RunInfo, query: RunQuery) -> bool:
    """Tell whether the query lists this run (paging by `after` and `limit` apart)."""
    return (
        (query.tenant is None or info.tenant == query.tenant)
        and (query.status is None or info.status == query.status)
        and (query.root_id is None or info.root_id == query.root_id)
        and (query.since is None or info.created_at >= query.since)
        and not (query.roots and info.parent_id is not None)
    )
