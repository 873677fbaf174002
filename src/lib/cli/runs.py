"""The rows of `lib store runs`: each run's state, its spend, and its tree."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

from lib._util.clock import SYSTEM_CLOCK
from lib.cli.spend import EVENTS_PER_PAGE, RUNS_PER_PAGE
from lib.engine.api.waiting import waiting_for
from lib.engine.core.waiting import UnknownCalls, WaitingFor, condition
from lib.events import EventStore, RunInfo, RunQuery
from lib.events import kinds as k
from lib.events.paging import each_run, log_pages
from lib.llm import PriceBook
from lib.observe.spend import SpendFold, TotalSpend


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedRun:
    """A run, or with its descendants the tree below a root.

    Attributes:
        info: the run itself.
        state: its outcome, or what it does or waits for.
        runs: the number of runs that are counted.
        events: of all of them.
        unknown: how many calls have an outcome that is not known.
    """

    info: RunInfo
    state: str
    runs: int
    events: int
    unknown: int
    spend: TotalSpend


async def newest(store: EventStore, query: RunQuery) -> tuple[list[RunInfo], int]:
    """Return the newest runs that the query lists, the newest first, and how many it lists.

    Memory holds `query.limit` runs: the list goes from the oldest to the newest.
    """
    last: deque[RunInfo] = deque(maxlen=query.limit)
    listed = 0
    async for info in each_run(store, replace(query, limit=None), page=RUNS_PER_PAGE):
        last.append(info)
        listed += 1
    return list(reversed(last)), listed


async def listed_runs(
    store: EventStore, infos: list[RunInfo], *, trees: bool, prices: PriceBook | None
) -> AsyncIterator[ListedRun]:
    """Yield runs with their state and spend; reads their logs, and those of their trees.

    Args:
        store: may be written to meanwhile.
        infos: the runs; one that has been erased since is left out.
        trees: whether each includes all runs that descend from it.
        prices: for calls whose cost the log does not state.
    """
    for info in infos:
        now = await store.run(info.run_id)
        if now is None:
            continue
        counter = _LogCounter(prices)
        await counter.add(store, now.run_id)
        state = await _state(store, now, put_off=counter.put_off)
        if trees:
            async for each in each_run(store, RunQuery(root_id=now.run_id), page=RUNS_PER_PAGE):
                if each.run_id != now.run_id:
                    await counter.add(store, each.run_id)
        yield ListedRun(
            info=now,
            state=state,
            runs=counter.runs,
            events=counter.events,
            unknown=counter.unknown,
            spend=counter.spend,
        )


async def _state(store: EventStore, info: RunInfo, *, put_off: bool) -> str:
    waits = WaitingFor() if info.outcome else await waiting_for(store, info)
    return condition(info, waits, SYSTEM_CLOCK.now(), put_off=put_off)


class _LogCounter:
    """Adds up the logs of some runs, page by page."""

    def __init__(self, prices: PriceBook | None) -> None:
        self.runs = self.events = self.unknown = 0
        self.spend = TotalSpend()
        self.put_off = False
        self._prices = prices

    async def add(self, store: EventStore, run_id: str) -> None:
        spend, unknown, events_before = SpendFold(prices=self._prices), UnknownCalls(), self.events
        async for events in log_pages(store, run_id, page=EVENTS_PER_PAGE):
            spend.add(events)
            unknown.add(events)
            self.events += len(events)
            self.put_off = events[-1].kind == k.RUN_RESUMED and "error" in events[-1].data
        self.runs += self.events > events_before
        self.spend += spend.spend
        self.unknown += len(unknown.calls)
