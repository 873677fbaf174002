"""Reads what runs wait for, such as a person or a worker, and which calls have unknown outcomes."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from lib.engine.core.result import PendingApproval, WaitingCall, WaitingFor
from lib.engine.core.session import SESSION
from lib.engine.logs import log_run
from lib.events import Event, EventStore, RunInfo, RunQuery
from lib.events import kinds as k
from lib.events.paging import each_run, log_pages
from lib.events.payloads import fits
from lib.events.runs import is_held


async def pending_approvals(
    store: EventStore, *, tenant: str | None = None, after: str | None = None
) -> AsyncGenerator[WaitingCall]:
    """Yield what waits for a person in any open run, the oldest run first. Writes nothing.

    The logs of open runs are read, except of runs that no worker has begun and of sessions,
    whose turns are runs of their own. Memory holds a page of runs and a page of events.

    Args:
        store: the logs, set up.
        tenant: only runs of this tenant, None for all.
        after: only runs created after this run id's run, to go on where a page has ended.

    Raises:
        RunNotFound: the run of `after` does not exist, or no longer.
    """
    async for info in each_run(store, RunQuery(status="open", tenant=tenant, after=after)):
        if info.head > 1 and info.algorithm != SESSION:
            for event in await _open_approvals(store, info.run_id):
                yield WaitingCall.of(event)


async def _open_approvals(store: EventStore, run_id: str) -> list[Event]:
    """Return the open approval requests of a run; none if it has been erased meanwhile."""
    waiting: dict[str, Event] = {}
    async for events in log_pages(store, run_id):
        collect_pending(waiting, events)
    return list(waiting.values())


async def unknown_in(store: EventStore, run_id: str) -> dict[str, UnknownCall]:
    """Return the calls of one run whose outcome is unknown, by key."""
    found = UnknownCalls()
    async for events in log_pages(store, run_id):
        found.add(events)
    return found.calls


async def unknown_calls(
    store: EventStore, *, tenant: str | None = None, after: str | None = None
) -> AsyncGenerator[UnknownCall]:
    """Yield the calls of all runs whose outcome is unknown, the oldest run first.

    The log of every run is read, page by page.

    Args:
        store: the logs, set up.
        tenant: only runs of this tenant, None for all.
        after: only runs created after this run id's run, to go on where a page has ended.

    Raises:
        RunNotFound: the run of `after` does not exist, or no longer.
    """
    async for info in each_run(store, RunQuery(tenant=tenant, after=after)):
        for call in (await unknown_in(store, info.run_id)).values():
            yield call


async def waiting_for(store: EventStore, info: RunInfo) -> WaitingFor:
    """Return what an open run waits for; the logs of it and of its open child runs are read.

    Args:
        store: the logs.
        info: the run, as its store lists it.
    """
    children: tuple[str, ...] | None = None
    approvals: list[WaitingCall] = []
    client_calls: list[WaitingCall] = []
    level, seen = [info], {info.run_id}
    while level:
        below: list[RunInfo] = []
        for each in level:
            opened = await _read_open(store, each)
            approvals += map(WaitingCall.of, opened.approvals.values())
            client_calls += map(WaitingCall.of, opened.awaited.values())
            started = [*opened.children.values()]
            found = [await store.run(run_id) for run_id in started if run_id not in seen]
            below += [child for child in found if child is not None and child.status == "open"]
            seen.update(started)
            if children is None:
                children = tuple(child.run_id for child in below)
        level = below
    return WaitingFor(
        approvals=tuple(approvals),
        client_calls=tuple(client_calls),
        children=children or (),
        owner=info.owner,
        lease_until=info.lease_until,
        ready=info.ready,
    )


@dataclass(frozen=True, slots=True)
class _Open:
    """The calls of one run that wait for a person or its client, and the runs it waits for."""

    approvals: dict[str, Event] = field(default_factory=dict[str, Event])
    awaited: dict[str, Event] = field(default_factory=dict[str, Event])
    children: dict[str, str] = field(default_factory=dict[str, str])


async def _read_open(store: EventStore, info: RunInfo) -> _Open:
    opened = _Open()
    async for events in log_pages(store, info.run_id):
        for event in events:
            if not fits(event.kind, event.data):
                continue
            if event.kind in k.SPAWNS_RUN:
                opened.children[event.data["key"]] = event.data["run_id"]
            elif event.kind in k.RESULTS:
                opened.children.pop(event.data["key"], None)
        collect_pending(opened.approvals, events)
        collect_awaited(opened.awaited, events)
    return opened


class WaitingLog:
    """Logs once for each reason why a caller of `Run.result` waits, and until when.

    A log is read only when its run has changed since.
    """

    def __init__(self, store: EventStore, *, drives: bool) -> None:
        """Begin with nothing logged.

        Args:
            store: the logs.
            drives: True if the caller's engine drives runs; else other processes always do.
        """
        self._store = store
        self._drives = drives
        self._seen: tuple[object, ...] = ()
        self._lines: set[str] = set()

    async def note(self, info: RunInfo) -> None:
        """Log why an open run that is not driven here waits, unless that was logged."""
        if info.ready and info.owner is None and self._drives:
            return  # it is about to be driven
        seen = (info.owner, info.owner is None and info.head)
        if seen == self._seen:
            return
        self._seen = seen
        found = await waiting_for(self._store, info)
        reason = str(found) if info.owner is None else f"worker {info.owner!r}"
        if reason in self._lines:
            return
        self._lines.add(reason)
        needed = bool(found.approvals or found.client_calls) or (
            found.owner is not None and self._drives
        )
        level = logging.WARNING if needed else logging.INFO
        log_run(level, info.run_id, "%s", found)


# -- folds of logs -------------------------------------------------------------------------


def pending_in(log: Iterable[Event]) -> list[PendingApproval]:
    """Return the calls of a log that wait for a person, oldest first."""
    waiting: dict[str, Event] = {}
    collect_pending(waiting, log)
    return [PendingApproval.of(event) for event in waiting.values()]


def awaited_in(log: Iterable[Event]) -> list[PendingApproval]:
    """Return the calls of a log that the client of the run is to make, oldest first."""
    awaited: dict[str, Event] = {}
    collect_awaited(awaited, log)
    return [PendingApproval.of(event) for event in awaited.values()]


def collect_awaited(awaited: dict[str, Event], events: Iterable[Event]) -> None:
    """Keep the awaited calls that the next events of a log leave without an answer, by key."""
    for event in events:
        if not fits(event.kind, event.data):
            continue
        if event.kind == k.TOOL_AWAITED:
            awaited[event.data["key"]] = event
        elif event.kind in (k.TOOL_ANSWERED, k.TOOL_REQUESTED):
            awaited.pop(event.data["key"], None)


def collect_pending(waiting: dict[str, Event], events: Iterable[Event]) -> None:
    """Keep the requests for an approval that the next events of a log leave open, by key."""
    for event in events:
        if not fits(event.kind, event.data):
            continue
        if event.kind == k.APPROVAL_REQUESTED:
            waiting[event.data["key"]] = event
        elif event.kind in (k.APPROVAL_DECIDED, k.TOOL_REQUESTED):
            waiting.pop(event.data["key"], None)


def condition(info: RunInfo, waits: WaitingFor, now: datetime, *, put_off: bool = False) -> str:
    """Return in a few words what becomes of a run now: its outcome, or why it goes on or waits.

    Args:
        info: the run, as its store lists it.
        waits: what it waits for, if it is open.
        now: the time against which leases count.
        put_off: whether its last worker failed at it, and others try again after a while.
    """
    if info.outcome is not None:
        return info.outcome
    held = info.owner is not None
    if held and info.lease_until is not None and not is_held(info.lease_until, now):
        return "owner dead"
    party = "a person" if waits.approvals else "its client" if waits.client_calls else ""
    if party and (not held or waits.children):
        return f"waiting for {party}"
    if held:
        return "working"
    if info.ready:
        return "waiting for time" if put_off else "waiting for a worker"
    return "waiting for a child run" if waits.children else "waiting for a signal"


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownCall:
    """A tool call that was made, and may or may not have had its effect.

    Attributes:
        key: names the call in its run.
        since: when its outcome became unknown.
    """

    run_id: str
    tenant: str | None
    key: str
    call_id: str
    name: str
    arguments: Mapping[str, Any]
    since: datetime


class UnknownCalls:
    """A fold of a log that comes in pages: the calls whose outcome is unknown, by key."""

    def __init__(self) -> None:
        """Begin with no event."""
        self.calls: dict[str, UnknownCall] = {}
        self._open: dict[str, Event] = {}

    def __bool__(self) -> bool:
        """Return True while a call has no result yet, or the outcome of one is unknown."""
        return bool(self._open or self.calls)

    def add(self, events: Iterable[Event]) -> None:
        """Fold the next events."""
        for event in events:
            key = event.data.get("key", "") if fits(event.kind, event.data) else ""
            if not key:
                continue
            if event.kind == k.TOOL_REQUESTED:
                self._open[key] = event
            elif event.kind == k.CALL_SETTLED:
                self.calls.pop(key, None)
            elif event.kind in (k.TOOL_FAILED, k.TOOL_COMPLETED):
                request = self._open.pop(key, None)
                if request is not None and _is_unknown(request, event):
                    self.calls[key] = _call(request, event)


def _is_unknown(request: Event, result: Event) -> bool:
    """Return True if a failed call may have had its effect: cut off, timed out, or cancelled."""
    if result.kind == k.TOOL_COMPLETED or request.data.get("unstarted"):
        return False
    reason = result.data.get("reason")
    effects = request.data.get("effects", "once")
    return reason == "unknown" or (reason == "cancelled" and effects != "none")


def _call(request: Event, failed: Event) -> UnknownCall:
    data = request.data
    return UnknownCall(
        run_id=request.run_id,
        tenant=request.tenant,
        key=data["key"],
        call_id=data.get("call_id", ""),
        name=data.get("name", ""),
        arguments=data.get("args", {}),
        since=failed.at,
    )
