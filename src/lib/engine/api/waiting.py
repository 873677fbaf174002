"""Reads from the store what runs wait for: a person, child runs, a lease, a worker."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator

from lib.engine.core.session import SESSION
from lib.engine.core.waiting import (
    UnknownCall,
    UnknownCalls,
    WaitingCall,
    WaitingFor,
    collect_pending,
)
from lib.engine.logs import log_run
from lib.events import Event, EventStore, RunInfo, RunQuery
from lib.events import kinds as k
from lib.events.paging import each_run, log_pages
from lib.events.payloads import fits


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
    level, seen = [info], {info.run_id}
    while level:
        below: list[RunInfo] = []
        for each in level:
            calls, started = await _read_open(store, each)
            approvals += calls
            found = [await store.run(run_id) for run_id in started if run_id not in seen]
            below += [child for child in found if child is not None and child.status == "open"]
            seen.update(started)
            if children is None:
                children = tuple(child.run_id for child in below)
        level = below
    return WaitingFor(
        approvals=tuple(approvals),
        children=children or (),
        owner=info.owner,
        lease_until=info.lease_until,
        ready=info.ready,
    )


async def _read_open(store: EventStore, info: RunInfo) -> tuple[list[WaitingCall], list[str]]:
    """Return the calls of one run that wait for a person, and the runs that it waits for."""
    approvals: dict[str, Event] = {}
    children: dict[str, str] = {}
    async for events in log_pages(store, info.run_id):
        for event in events:
            if not fits(event.kind, event.data):
                continue
            if event.kind in k.SPAWNS_RUN:
                children[event.data["key"]] = event.data["run_id"]
            elif event.kind in k.RESULTS:
                children.pop(event.data["key"], None)
        collect_pending(approvals, events)
    calls = [WaitingCall.of(event) for event in approvals.values()]
    return calls, list(children.values())


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
        needed = bool(found.approvals) or (found.owner is not None and self._drives)
        level = logging.WARNING if needed else logging.INFO
        log_run(level, info.run_id, "%s", found)
