"""Tool calls that wait for a person: those of one run, and those of all runs of a store."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

from lib._util.json import canonical, digest
from lib.engine.core.session import SESSION
from lib.events import Event, EventStore, RunQuery
from lib.events import kinds as k
from lib.events.paging import each_run, log_pages
from lib.events.payloads import fits


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
        since: when the person was asked.
    """

    run_id: str
    tenant: str | None
    since: datetime

    @classmethod
    def of(cls, requested: Event) -> Self:
        """Return the call that a `lib.approval.requested` is about."""
        run_id, tenant, since = requested.run_id, requested.tenant, requested.at
        return cls(**_told(requested), run_id=run_id, tenant=tenant, since=since)


async def pending_approvals(
    store: EventStore, *, tenant: str | None = None
) -> AsyncGenerator[WaitingCall]:
    """Yield what waits for a person in any open run, the oldest run first. Writes nothing.

    The logs of open runs are read, but for those that nobody has begun to drive and of sessions,
    whose turns are runs of their own. Memory holds a page of runs and a page of events.

    Args:
        store: the logs, set up.
        tenant: only runs of this tenant, None for all.
    """
    async for info in each_run(store, RunQuery(status="open", tenant=tenant)):
        if info.head > 1 and info.algorithm != SESSION:
            for event in await _questions(store, info.run_id):
                yield WaitingCall.of(event)


def pending_in(log: Iterable[Event]) -> list[PendingApproval]:
    """Return the calls of a log that wait for a person, oldest first."""
    waiting: dict[str, Event] = {}
    waiting_in(waiting, log)
    return [PendingApproval(**_told(event)) for event in waiting.values()]


async def _questions(store: EventStore, run_id: str) -> list[Event]:
    """Return the questions of a run without an answer; none if it has been erased meanwhile."""
    waiting: dict[str, Event] = {}
    async for events in log_pages(store, run_id):
        waiting_in(waiting, events)
    return list(waiting.values())


def waiting_in(waiting: dict[str, Event], events: Iterable[Event]) -> None:
    """Keep the requests for an approval that the next events of a log leave open, by key."""
    for event in events:
        if not fits(event.kind, event.data):
            continue
        if event.kind == k.APPROVAL_REQUESTED:
            waiting[event.data["key"]] = event
        elif event.kind in (k.APPROVAL_DECIDED, k.TOOL_REQUESTED):
            waiting.pop(event.data["key"], None)


def _told(event: Event) -> dict[str, Any]:
    data = event.data
    return {
        "key": data["key"],
        "call_id": data["call_id"],
        "name": data["name"],
        "arguments": data["args"],
        "reason": data.get("reason", ""),
    }
