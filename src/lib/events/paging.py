"""Reads runs and logs page by page, while others write and erase."""

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
    store: EventStore, query: RunQuery | None = None, *, page: int = 256
) -> AsyncGenerator[RunInfo]:
    """Yield every run that the query lists, once, in the order of their creation.

    Runs that are erased meanwhile, by the caller or by others, end no list and repeat nothing.
    What was read of a run may be as old as its page. Memory holds a page, and 8 bytes for each run.

    Args:
        store: the logs.
        query: which; its `limit` holds for all pages together.
        page: how many runs to read at once.

    Raises:
        RunNotFound: the query goes on after a run that is not here (any more).
    """
    query = query or RunQuery()
    left, past = query.limit, _Past(store, query)
    while left is None or left > 0:
        size = page if left is None else min(left, page)
        listed = await past.following(size)
        fresh = past.take(listed)
        for info in fresh:
            yield info
        if len(listed) < size:
            return
        left = None if left is None else left - len(fresh)


async def log_pages(
    store: EventStore, run_id: str, *, after: int = 0, page: int = 512
) -> AsyncGenerator[list[Event]]:
    """Yield the log of a run in pages that are not empty; none if there is no such run (any more).

    A page is the caller's, who may empty it.

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


class _Past:
    """The runs that have been listed, to go on after them."""

    def __init__(self, store: EventStore, query: RunQuery) -> None:
        self._store, self._query = store, query
        self._last: deque[str] = deque(maxlen=_KEPT_IDS)
        self._hashes = array("q")
        self._again: set[int] | None = None

    def take(self, listed: list[RunInfo]) -> list[RunInfo]:
        """Take note of a page; return its runs that were in none before."""
        self._last.extend(info.run_id for info in listed)
        if self._again is not None:
            listed = [info for info in listed if hash(info.run_id) not in self._again]
        self._hashes.extend(hash(info.run_id) for info in listed)
        return listed

    async def following(self, size: int) -> list[RunInfo]:
        """Return the runs after the last one that is still here; from the start if none is."""
        query = replace(self._query, limit=size)
        while self._last:
            try:
                return await self._store.runs(replace(query, after=self._last[-1]))
            except RunNotFound:
                self._last.pop()
        if self._hashes:
            self._again = set(self._hashes)
        return await self._store.runs(query)
