"""The rows of `lib store runs`: each run's state, its spend, and its tree."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Mapping
from dataclasses import asdict, dataclass, replace
from decimal import ROUND_FLOOR, ROUND_HALF_EVEN, localcontext
from typing import Any, Final, Literal

from lib._util.clock import SYSTEM_CLOCK
from lib.engine.api.waiting import UnknownCalls, condition, waiting_for
from lib.engine.core.result import WaitingFor
from lib.events import EventStore, RunInfo, RunQuery
from lib.events import kinds as k
from lib.events.paging import each_run, log_pages
from lib.llm import PriceBook
from lib.observe.spend import ModelSpend, SpendFold, TotalSpend


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


By = Literal["tenant", "model"]

RUNS_PER_PAGE: Final = 256
EVENTS_PER_PAGE: Final = 512
_CENTS: Final = 2
"""Digits after the point, at least: small costs are shown with two digits that are not zero."""


class Totals:
    """The spend of groups of runs; memory holds the groups."""

    def __init__(self, by: By) -> None:
        """Group by tenant, or by model."""
        self._by: By = by
        self._runs: dict[str | None, int] = {}
        self._spends: dict[str | None, TotalSpend] = {}

    def add(self, info: RunInfo, spend: TotalSpend) -> None:
        """Add a run."""
        parts: Mapping[str | None, TotalSpend] = {info.tenant: spend}
        if self._by == "model":
            parts = {model: TotalSpend(models={model: its}) for model, its in spend.models.items()}
        for name, part in parts.items():
            self._runs[name] = self._runs.get(name, 0) + 1
            self._spends[name] = self._spends.get(name, TotalSpend()) + part

    def rows(self) -> list[tuple[dict[str, Any], ModelSpend]]:
        """Return a row for each group, the dearest first, with what it has used."""
        totals = {name: spend.total for name, spend in self._spends.items()}
        order = sorted(totals, key=lambda name: (-totals[name].known_cost, name or ""))
        return [(self._row(name), totals[name]) for name in order]

    def _row(self, name: str | None) -> dict[str, Any]:
        row: dict[str, Any] = {self._by: name, "runs": self._runs[name]}
        spend = self._spends[name]
        if self._by == "model":
            return row | {"failed": spend.total.failed}
        return row | call_fields(spend)


def call_fields(spend: TotalSpend) -> dict[str, int]:
    """Return the calls as fields of a row."""
    names = ("llm_calls", "tool_calls", "guard_calls")
    return {name: getattr(spend, name) for name in names}


def used_fields(used: ModelSpend) -> dict[str, Any]:
    """Return what was used as fields of a row for programs; costs are numbers of US dollars."""
    counts = asdict(used)
    del counts["known_cost"], counts["failed"]  # a row of a model has `failed` itself
    cost = None if used.cost is None else float(used.cost)
    return {**counts, "known_cost": float(used.known_cost), "cost": cost}


def shown_fields(used: ModelSpend, *, ascii_only: bool = False) -> dict[str, Any]:
    """Return what was used as fields of a row for people."""
    return {
        "tokens in": used.input_tokens,
        "out": used.output_tokens,
        "cost": cost_text(used, ascii_only=ascii_only),
    }


def cost_text(used: ModelSpend, *, ascii_only: bool = False) -> str:
    """Return the cost for people: "$0.12", "≥ $0.12" if calls are without a price, "—" if all are.

    What is only the lower bound of a cost is rounded down.
    """
    cost = used.known_cost
    if used.unpriced == used.calls > 0:
        return "-" if ascii_only else "—"
    places = max(_CENTS, 1 - cost.adjusted()) if cost else _CENTS
    with localcontext(rounding=ROUND_FLOOR if used.unpriced else ROUND_HALF_EVEN):
        text = f"${cost:.{places}f}"
    at_least = (">= " if ascii_only else "≥ ") if used.unpriced else ""
    return at_least + text


async def runs_with_spend(
    store: EventStore, query: RunQuery, *, prices: PriceBook | None = None
) -> AsyncIterator[tuple[RunInfo, TotalSpend]]:
    """Yield runs with what each has spent; memory holds a page of runs and a page of events.

    The whole log of each run is read, and of no other run.

    Args:
        store: may be written to meanwhile.
        query: which runs; its `limit` None means all of them.
        prices: for calls whose cost the log does not state.
    """
    async for info in each_run(store, query, page=RUNS_PER_PAGE):
        spend = await _spend_of(store, info.run_id, prices)
        if spend is not None:
            yield info, spend


async def _spend_of(store: EventStore, run_id: str, prices: PriceBook | None) -> TotalSpend | None:
    """Return what a run has spent, None if it has been erased since it was listed."""
    fold, found = SpendFold(prices=prices), False
    async for events in log_pages(store, run_id, page=EVENTS_PER_PAGE):
        fold.add(events)
        found = True
    return fold.spend if found else None
