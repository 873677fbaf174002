"""Tool calls that need a person: those that wait for a decision, those whose outcome is unknown.

Both are folded from the logs as these grow: this process reads no event twice.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Final

from lib.engine import UnknownCall, WaitingCall
from lib.engine.api.waiting import UnknownCalls, collect_pending
from lib.engine.core.session import SESSION
from lib.errors import RunNotFound
from lib.events import Event, EventStore, RunInfo, RunQuery
from lib.events import kinds as k
from lib.events.paging import each_run, log_pages
from lib.events.store import START

MOST_KEPT: Final = 10_000
"""How many open runs are kept."""
_PAGE: Final = 512
_OF_CALLS: Final = frozenset({k.TOOL_REQUESTED, k.TOOL_COMPLETED, k.TOOL_FAILED, k.CALL_SETTLED})


@dataclass(slots=True)
class _Pending:
    """The open approval requests of a run, as far as its log has been read."""

    head: int = 0
    requests: dict[str, Event] = field(default_factory=dict[str, Event])


class PendingApprovals:
    """The calls that wait for a person, from the logs of open runs."""

    def __init__(self, *, most: int = MOST_KEPT) -> None:
        """Begin with none.

        Args:
            most: how many runs are kept.
        """
        self._most = most
        self._runs = OrderedDict[str, _Pending]()

    async def calls(
        self,
        store: EventStore,
        *,
        tenant: str | None = None,
        after: str | None = None,
        limit: int | None = None,
    ) -> AsyncGenerator[WaitingCall]:
        """Yield them, those of the oldest run first.

        Args:
            store: the logs, as the caller sees them.
            tenant: only runs of this tenant, None for all.
            after: only runs created after this run id's run, to go on where a page has ended.
            limit: of so many open runs at most.

        Raises:
            RunNotFound: the run of `after` does not exist, or no longer.
        """
        query = RunQuery(status="open", tenant=tenant, after=after, limit=limit)
        async for info in each_run(store, query):
            if info.head > 1 and info.algorithm != SESSION:
                for event in await self._requests(store, info):
                    yield WaitingCall.of(event)

    async def _requests(self, store: EventStore, info: RunInfo) -> list[Event]:
        pending = self._runs.pop(info.run_id, None) or _Pending()
        if pending.head < info.head:
            async for events in log_pages(store, info.run_id, after=pending.head):
                collect_pending(pending.requests, events)
                pending.head = events[-1].seq
        self._runs[info.run_id] = pending
        while len(self._runs) > self._most:
            self._runs.popitem(last=False)
        return list(pending.requests.values())


class UnknownOutcomes:
    """The calls of all runs whose outcome is unknown, from the feed of the store.

    The first reading takes the whole feed, each further one what has come since. Kept are the calls
    that have no result yet, and those whose outcome is unknown.
    """

    def __init__(self, store: EventStore) -> None:
        """Begin at the start of the feed.

        Args:
            store: the logs of all tenants, set up.
        """
        self._store = store
        self._cursors = [START] * store.partitions
        self._runs: dict[str, UnknownCalls] = {}
        self._reading = asyncio.Lock()

    async def calls(
        self, store: EventStore, *, tenant: str | None = None, after: str | None = None
    ) -> AsyncGenerator[UnknownCall]:
        """Yield them, those of the oldest run first.

        Args:
            store: the logs, as the caller sees them.
            tenant: only runs of this tenant, None for all.
            after: only runs created after this run id's run, to go on where a page has ended.

        Raises:
            RunNotFound: the run of `after` does not exist, or no longer.
        """
        behind = None if after is None else await store.run(after)
        if after is not None and behind is None:
            raise RunNotFound(after)
        await self._read()
        for info in await self._infos(store, tenant):
            if behind is None or _place(info) > _place(behind):
                unknown = self._runs.get(info.run_id)
                for call in [] if unknown is None else list(unknown.calls.values()):
                    yield call

    async def _infos(self, store: EventStore, tenant: str | None) -> list[RunInfo]:
        """Return the runs with such calls that a caller may see, the oldest first.

        Nothing of a run that was erased is kept.
        """
        found: list[RunInfo] = []
        for run_id, unknown in list(self._runs.items()):
            of_tenant = [call for call in unknown.calls.values() if tenant in (None, call.tenant)]
            info = await store.run(run_id) if of_tenant else None
            if info is not None:
                found.append(info)
            elif of_tenant and await self._store.run(run_id) is None:
                self._runs.pop(run_id, None)
        return sorted(found, key=_place)

    async def _read(self) -> None:
        """Fold what has come since."""
        async with self._reading:
            for partition in range(len(self._cursors)):
                while await self._read_page(partition):
                    pass

    async def _read_page(self, partition: int) -> bool:
        """Fold the next page of a partition; return True if there may be more."""
        cursor = self._cursors[partition]
        page = await self._store.feed(cursor, limit=_PAGE, partition=partition)
        for event in page.events:
            self._add(event)
        self._cursors[partition] = page.cursor
        return len(page.events) == _PAGE

    def _add(self, event: Event) -> None:
        if event.kind not in _OF_CALLS:
            return
        unknown = self._runs.get(event.run_id) or UnknownCalls()
        unknown.add([event])
        if unknown:
            self._runs[event.run_id] = unknown
        else:
            self._runs.pop(event.run_id, None)


def _place(info: RunInfo) -> tuple[float, str]:
    return info.created_at.timestamp(), info.run_id
