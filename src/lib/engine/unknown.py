"""Tool calls whose outcome is not known, and what a person has found out about them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from lib.events import Event, EventStore, RunQuery
from lib.events import kinds as k
from lib.events.paging import each_run, log_pages
from lib.events.payloads import fits


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
    """A fold of a log that comes in pieces: the calls whose outcome is not known, by key."""

    def __init__(self) -> None:
        """Begin with no event."""
        self.calls: dict[str, UnknownCall] = {}
        self._open: dict[str, Event] = {}

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
    """Tell whether a failed call may have had its effect: cut off, timed out, or cancelled."""
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


async def unknown_in(store: EventStore, run_id: str) -> dict[str, UnknownCall]:
    """Return the calls of one run whose outcome is not known, by key."""
    found = UnknownCalls()
    async for events in log_pages(store, run_id):
        found.add(events)
    return found.calls


async def unknown_calls(
    store: EventStore, *, tenant: str | None = None
) -> AsyncGenerator[UnknownCall]:
    """Yield the calls of all runs whose outcome is not known, the oldest run first.

    The log of every run is read, page by page.

    Args:
        store: the logs, set up.
        tenant: only runs of this tenant, None for all.
    """
    async for info in each_run(store, RunQuery(tenant=tenant)):
        for call in (await unknown_in(store, info.run_id)).values():
            yield call
