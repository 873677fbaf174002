"""Folds of a log: what an open run waits for, and its calls of unknown outcome."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Self

from lib._util.json import canonical, digest
from lib.events import Event, RunInfo
from lib.events import kinds as k
from lib.events.payloads import fits
from lib.events.runs import is_held

_SHOWN: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingApproval:
    """A tool call that waits for a person.

    Attributes:
        key: names the call in its run; give it to `Run.approve` or `Run.deny`.
        reason: why the engine asks although the tool does not: the outcome of an equal call is
            unknown. "" where the tool asks for approval itself.
    """

    key: str
    call_id: str
    name: str
    arguments: Mapping[str, Any]
    reason: str = ""

    @property
    def arguments_digest(self) -> str:
        """SHA-256 of the arguments, which names them where they must not be shown."""
        return digest(canonical(dict(self.arguments)))


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingCall(PendingApproval):
    """A tool call of any run of a store that waits for a person.

    Attributes:
        run_id: the run, for `Engine.run`.
        tenant: whose run it is.
        since: when the approval was requested.
    """

    run_id: str
    tenant: str | None
    since: datetime

    @classmethod
    def of(cls, requested: Event) -> Self:
        """Return the call that a `lib.approval.requested` is about."""
        run_id, tenant, since = requested.run_id, requested.tenant, requested.at
        return cls(**_call_fields(requested), run_id=run_id, tenant=tenant, since=since)


def pending_in(log: Iterable[Event]) -> list[PendingApproval]:
    """Return the calls of a log that wait for a person, oldest first."""
    waiting: dict[str, Event] = {}
    collect_pending(waiting, log)
    return [PendingApproval(**_call_fields(event)) for event in waiting.values()]


def collect_pending(waiting: dict[str, Event], events: Iterable[Event]) -> None:
    """Keep the requests for an approval that the next events of a log leave open, by key."""
    for event in events:
        if not fits(event.kind, event.data):
            continue
        if event.kind == k.APPROVAL_REQUESTED:
            waiting[event.data["key"]] = event
        elif event.kind in (k.APPROVAL_DECIDED, k.TOOL_REQUESTED):
            waiting.pop(event.data["key"], None)


def _call_fields(event: Event) -> dict[str, Any]:
    data = event.data
    return {
        "key": data["key"],
        "call_id": data["call_id"],
        "name": data["name"],
        "arguments": data["args"],
        "reason": data.get("reason", ""),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingFor:
    """The reasons why an open run waits; none is set for a run between two steps.

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
