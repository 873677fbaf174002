"""Reads runs and logs page by page while other tasks write and erase."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Final

from lib.errors import RunNotFound
from lib.events.event import Event
from lib.events.runs import RunInfo, RunQuery
from lib.events.store import EventStore

_KEPT_IDS: Final = 4096


async def each_run(
    store: EventStore,
    query: RunQuery | None = None,
    *,
    page: int = 256,
    kept_ids: int = _KEPT_IDS,
) -> AsyncGenerator[RunInfo]:
    """Yield every run that the query lists, once, in the order of their creation.

    Runs that are erased meanwhile neither end the list nor repeat a run. The information on a run
    may be as old as its page. Memory holds a page, and 8 bytes for each run.

    Args:
        store: the logs.
        query: which runs; its `limit` holds for all pages together.
        page: how many runs to read at once.
        kept_ids: how many of the last listed ids to keep, to go on after one that still exists.

    Raises:
        RunNotFound: the run of `query.after` does not exist, or no longer.
    """
    query = query or RunQuery()
    left, listed = query.limit, _Listed(store, query, kept_ids)
    while left is None or left > 0:
        size = page if left is None else min(left, page)
        runs = await listed.next_page(size)
        new = listed.add(runs)
        for info in new:
            yield info
        if len(runs) < size:
            return
        left = None if left is None else left - len(new)


async def log_pages(
    store: EventStore, run_id: str, *, after: int = 0, page: int = 512
) -> AsyncGenerator[list[Event]]:
    """Yield the log of a run in pages that are not empty; none if the run does not exist.

    A page is the caller's to change.

    Args:
        store: the logs.
        run_id: the run.
        after: the `seq` after which to begin.
        page: how many events to read at once.
    """
    size = page
    while size == page and (events := await store.read(run_id, after=after, limit=page)):
        size, after = len(events), events[-1].seq
        yield events


class _Listed:
    """The runs listed so far, and the next ones."""

    def __init__(self, store: EventStore, query: RunQuery, kept_ids: int) -> None:
        self._store, self._query = store, query
        self._last: deque[str] = deque(maxlen=kept_ids)
        self._hashes = array("q")
        self._seen: set[int] | None = None

    def add(self, page: list[RunInfo]) -> list[RunInfo]:
        """Add a page; return its runs that were on no page before."""
        self._last.extend(info.run_id for info in page)
        if self._seen is not None:
            page = [info for info in page if hash(info.run_id) not in self._seen]
        self._hashes.extend(hash(info.run_id) for info in page)
        return page

    async def next_page(self, size: int) -> list[RunInfo]:
        """Return the runs after the last one that still exists; from the start if none does."""
        query = replace(self._query, limit=size)
        while self._last:
            try:
                return await self._store.runs(replace(query, after=self._last[-1]))
            except RunNotFound:
                self._last.pop()
        if self._hashes:
            self._seen = set(self._hashes)
        return await self._store.runs(query)
