"""What an open run waits for, as its store tells: people, child runs, a lease, a worker."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from lib.engine.approvals import WaitingCall, waiting_in
from lib.engine.logs import log_run
from lib.events import Event, EventStore, RunInfo
from lib.events import kinds as k
from lib.events.paging import log_pages
from lib.events.payloads import fits
from lib.events.runs import is_held

_SHOWN: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingFor:
    """What an open run waits for; nothing of it is set for a run between two steps.

    Attributes:
        approvals: tool calls that wait for a person, those of its child runs included; each says
            in which run it is decided.
        children: the ids of the child runs, or the turn, that have not ended.
        owner: the worker that holds the run's lease.
        lease_until: when that lease ends unless the worker renews it; past it, the worker counts
            as dead and any other may take the run over.
        ready: whether a worker would find something to do.
    """

    approvals: tuple[WaitingCall, ...] = ()
    children: tuple[str, ...] = ()
    owner: str | None = None
    lease_until: datetime | None = None
    ready: bool = False

    def __str__(self) -> str:
        """Return it as one line, without arguments of calls."""
        return "; ".join(self._reasons()) or "waits for a signal, such as a message to a session"

    def _reasons(self) -> Iterator[str]:
        if self.approvals:
            shown = ", ".join(_shown(call) for call in self.approvals[:_SHOWN])
            more = len(self.approvals) - _SHOWN
            yield f"waits for a person to decide {shown}{f' and {more} more' if more > 0 else ''}"
        elif self.children:
            yield f"waits for {', '.join(map(repr, self.children[:_SHOWN]))} to end"
        if self.owner is not None and self.lease_until is not None:
            until = f"{self.lease_until.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
            yield (
                f"worker {self.owner!r} holds its lease until {until}, and renews it while it "
                "works: if that worker is dead, the run can be taken over then"
            )
        elif self.ready and not self.approvals:
            yield "waits for a worker"


def _shown(call: WaitingCall) -> str:
    return (
        f"call {call.key!r} of tool {call.name!r} in run {call.run_id!r} "
        f"(arguments {call.arguments_digest[:12]})"
        f"{f', because {call.reason}' if call.reason else ''}"
    )


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
    if waits.approvals and (not held or waits.children):
        return "waiting for a person"
    if held:
        return "working"
    if info.ready:
        return "waiting for time" if put_off else "waiting for a worker"
    return "waiting for a child run" if waits.children else "waiting for a signal"


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
            calls, started = await _look(store, each)
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


async def _look(store: EventStore, info: RunInfo) -> tuple[list[WaitingCall], list[str]]:
    """Return the calls of one run that wait for a person, and the runs that it waits for."""
    approvals: dict[str, Event] = {}
    children: dict[str, str] = {}
    async for events in log_pages(store, info.run_id):
        for event in events:
            if not fits(event.kind, event.data):
                continue
            if event.kind in k.DERIVING:
                children[event.data["key"]] = event.data["run_id"]
            elif event.kind in k.RESULTS:
                children.pop(event.data["key"], None)
        waiting_in(approvals, events)
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
            drives: whether the caller's engine drives runs; else it is normal that others do.
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
