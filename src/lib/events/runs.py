"""The projection of a run: a fold of its events, written in the transaction of each append.

Pure: every store uses these functions, so all stores agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal, cast
from zlib import crc32

from lib.errors import Conflict, RunNotFound
from lib.events.event import Event, NewEvent
from lib.events.kinds import RUN_COMPLETED, RUN_STARTED, Outcome, is_signal
from lib.events.payloads import check_payload

RunStatus = Literal["open", "closed"]

MAX_RUN_ID_BYTES: Final = 512
"""As UTF-8; names of marks, which hold run ids in percent-encoding, fit into every index."""

MAX_LEASE_S: Final = 86_400.0
"""How long a lease lasts at most, in seconds, whatever is claimed."""

FARTHEST_LEASE: Final = timedelta(seconds=MAX_LEASE_S + 3_600)
"""A lease that ends later than this from now was taken by a wrong clock, and is void: no right
clock gives one, and right clocks differ by less than the hour in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInfo:
    """One run as its store lists it.

    Attributes:
        head: the `seq` of its last event.
        ready: whether a worker would find something to do.
        outcome: how it ended, None while it is open.
        owner: the worker with the lease, or the last one, or None.
        lease_until: when that lease ends or ended, by the store's clock; after it, the owner counts
            as dead. See `is_held`.
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
    outcome: Outcome | None = None
    ready: bool = True
    owner: str | None = None
    lease_until: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunQuery:
    """A filter for the list of runs, oldest first; None means any.

    Attributes:
        outcome: only runs that have ended so.
        roots: only runs without a parent.
        parent_id: only runs that this run has started.
        idle_since: only runs to which nothing has been appended since this time.
        after: only runs behind this run id's run, in the order of the list, for paging.
        newest_first: list them in the opposite order.
        limit: at most so many.
    """

    tenant: str | None = None
    user: str | None = None
    algorithm: str | None = None
    status: RunStatus | None = None
    outcome: Outcome | None = None
    root_id: str | None = None
    roots: bool = False
    parent_id: str | None = None
    since: datetime | None = None
    idle_since: datetime | None = None
    after: str | None = None
    newest_first: bool = False
    limit: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The right to drive a run until a time, for one owner at a time.

    A lease saves double work; safety comes from the expected sequence number of each append.

    Attributes:
        epoch: how often the run has been claimed; an older epoch has lost it.
        until: when it ends, by the store's clock.
        takeover: whether the owner before has not released it, and so may still drive the run.
    """

    run_id: str
    owner: str
    epoch: int
    until: datetime
    takeover: bool = False


def lease_length(ttl_s: float) -> timedelta:
    """Return how long a lease claimed for `ttl_s` seconds lasts."""
    return timedelta(seconds=min(ttl_s, MAX_LEASE_S))


def is_held(lease_until: datetime | None, now: datetime) -> bool:
    """Return True if there is a lease that ends at this time, and it is valid now."""
    return lease_until is not None and now < lease_until <= now + FARTHEST_LEASE


def check_batch(run_id: str, events: Sequence[NewEvent], expected: int | None) -> None:
    """Refuse a batch that no store may accept, whatever it holds.

    Raises:
        InvalidEvent: a payload lacks a field that readers of its kind rely on.
        ValueError: it is empty; or is appended without `expected` and is not all signals; or has
            a time without a zone or outside the range of UTC, or a name that is not Unicode text;
            or starts a run with an id of more than `MAX_RUN_ID_BYTES`.
    """
    if not run_id or not events:
        raise ValueError("an append needs a run id and at least one event")
    check_text(run_id)
    if expected == 0:  # runs started by an older release go on
        _check_length(run_id)
    for event in events:
        if expected is None and not is_signal(event.kind):
            raise ValueError(f"only signals are appended without expected=, not {event.kind!r}")
        if event.at.tzinfo is not UTC:
            _check_time(event.at)
        for text in (event.kind, event.tenant, event.user):
            if text is not None:
                check_text(text)
        check_payload(event.kind, event.data)


def _check_length(run_id: str) -> None:
    if len(run_id) * 4 > MAX_RUN_ID_BYTES and (found := len(run_id.encode())) > MAX_RUN_ID_BYTES:
        raise ValueError(f"a run id has at most {MAX_RUN_ID_BYTES} bytes as UTF-8, got {found}")


def _check_time(at: datetime) -> None:
    if at.tzinfo is None:
        raise ValueError(f"expected an event time with a zone, got {at!r}")
    try:
        at.astimezone(UTC)
    except OverflowError:
        raise ValueError(f"expected an event time in the range of UTC, got {at!r}") from None


def check_text(text: str) -> None:
    """Refuse a name that cannot be written as UTF-8.

    Raises:
        ValueError: it holds a lone surrogate.
    """
    if not text.isascii():
        text.encode()


def advance(
    info: RunInfo | None, run_id: str, events: Sequence[NewEvent], expected: int | None
) -> tuple[RunInfo, list[Event]]:
    """Return the run after the batch, and the batch as stored events.

    Raises:
        Conflict: the log is not at `expected`.
        RunNotFound: a signal to a run that does not exist.
        ValueError: an event is out of order: the first event, and only that, is the start; after
            the end there are signals only; the tenant is that of the run.
    """
    head = info.head if info else 0
    if expected is not None and expected != head:
        raise Conflict(run_id, expected=expected, actual=head)
    if info is None:
        if expected is None:
            raise RunNotFound(run_id)
        info = _begin(run_id, events[0])
    stored: list[Event] = []
    tenant, outcome = info.tenant, info.outcome
    for seq, event in enumerate(events, head + 1):
        _check_order(info, seq, event, outcome)
        if event.kind == RUN_COMPLETED:
            outcome = cast("Outcome", _text(event.data, "outcome"))
        at = event.at if event.at.tzinfo is UTC else event.at.astimezone(UTC)
        stored.append(Event(run_id, seq, event.kind, event.data, at, tenant, event.user))
    return _project(info, stored[-1], outcome), stored


def fold(events: Sequence[Event]) -> RunInfo:
    """Return the run of a whole log, without a lease.

    Raises:
        ValueError: there is no event, or one is out of order.
    """
    if not events:
        raise ValueError("a run has at least one event")
    log = [NewEvent(event.kind, event.data, event.at, event.tenant, event.user) for event in events]
    return advance(None, events[0].run_id, log, 0)[0]


def _begin(run_id: str, start: NewEvent) -> RunInfo:
    parent = start.data.get("parent")
    return RunInfo(
        run_id=run_id,
        root_id=_text(start.data, "root", run_id),
        parent_id=None if parent is None else _text(parent, "run_id"),
        algorithm=_text(start.data, "algorithm", ""),
        tenant=start.tenant,
        user=start.user,
        created_at=start.at.astimezone(UTC),
        updated_at=start.at,
        head=0,
    )


def _text(data: dict[str, Any] | Any, name: str, default: str | None = None) -> str:
    match data:
        case {**fields} if isinstance(value := fields.get(name, default), str):
            check_text(value)
            return value
        case _:
            raise ValueError(f"the payload of a start or an end lacks the text {name!r}")


def _check_order(info: RunInfo, seq: int, event: NewEvent, outcome: Outcome | None) -> None:
    if (event.kind == RUN_STARTED) != (seq == 1):
        raise ValueError(f"a log begins with {RUN_STARTED!r}, and only begins with it")
    if event.tenant is not None and event.tenant != info.tenant:
        raise ValueError("an event has the tenant of its run")
    if outcome is not None and not is_signal(event.kind):
        raise ValueError(f"a run that has ended takes only signals, not {event.kind!r}")


def _project(info: RunInfo, last: Event, outcome: Outcome | None) -> RunInfo:
    return RunInfo(  # written out: this runs for every append, `replace` takes twice as long
        run_id=info.run_id,
        root_id=info.root_id,
        parent_id=info.parent_id,
        algorithm=info.algorithm,
        tenant=info.tenant,
        user=info.user,
        created_at=info.created_at,
        updated_at=last.at,
        head=last.seq,
        status="open" if outcome is None else "closed",
        outcome=outcome,
        ready=outcome is None,
        owner=info.owner,
        lease_until=info.lease_until,
    )


def partition_of(root_id: str, partitions: int) -> int:
    """Return the partition of all runs of this tree."""
    return crc32(root_id.encode("utf-8", "surrogatepass")) % partitions


def check_partition(partition: int, partitions: int) -> None:
    """Refuse a partition that does not exist.

    Raises:
        ValueError: the partition is not from 0 to partitions - 1.
    """
    if not 0 <= partition < partitions:
        raise ValueError(f"expected a partition from 0 to {partitions - 1}, got {partition}")


def matches(info: RunInfo, query: RunQuery) -> bool:
    """Return True if the run matches the query, apart from its `after` and `limit`."""
    return (
        (query.tenant is None or info.tenant == query.tenant)
        and (query.user is None or info.user == query.user)
        and (query.algorithm is None or info.algorithm == query.algorithm)
        and (query.outcome is None or info.outcome == query.outcome)
        and (query.status is None or info.status == query.status)
        and (query.root_id is None or info.root_id == query.root_id)
        and (query.parent_id is None or info.parent_id == query.parent_id)
        and (query.since is None or info.created_at >= query.since)
        and (query.idle_since is None or info.updated_at < query.idle_since)
        and not (query.roots and info.parent_id is not None)
    )
