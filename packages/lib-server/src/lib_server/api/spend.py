"""`/v1/spend` and `/v1/budget`: what runs have used day by day, and what is left of today's."""

from __future__ import annotations

from collections import defaultdict
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

from starlette.types import ASGIApp

from lib.events import RunInfo, RunQuery
from lib.events.paging import each_run
from lib_server.bodies import (
    BudgetList,
    BudgetView,
    Empty,
    SpendByDay,
    SpendDay,
    SpendGroup,
    SpendQuery,
)
from lib_server.problems import Problem
from lib_server.routing import AnyRoute, Call, Route, answer
from lib_server.spending import DayCeiling
from lib_server.summaries import Summary

MOST_DAYS: Final = 92
MOST_RUNS: Final = 10_000
MOST_READS: Final = 500
"""How many logs are read for one answer; the next one finds them in memory, and reads others."""

_DEFAULT_DAYS: Final = 30
_MOST_GROUPS: Final = 50

_Group = tuple[str | None, bool]
"""The name of a group, and True for all that are not among the largest."""


@dataclass(slots=True)
class _Sum:
    runs: set[str] = field(default_factory=set[str])
    tokens: int = 0
    cost: Decimal = Decimal(0)
    unpriced: int = 0

    def add(self, other: _Sum) -> None:
        self.runs |= other.runs
        self.tokens += other.tokens
        self.cost += other.cost
        self.unpriced += other.unpriced


_Sums = dict[date, dict[str | None, _Sum]]


def _add(sums: _Sums, info: RunInfo, summary: Summary, by: str) -> None:
    """Add a run to the day on which it began."""
    groups = sums.setdefault(info.created_at.date(), defaultdict(_Sum))
    owner = {"agent": info.algorithm, "tenant": info.tenant, "user": info.user}
    if by != "model":
        groups[owner[by]].runs.add(info.run_id)
    for use in summary.models:
        group = groups[use.model if by == "model" else owner[by]]
        group.runs.add(info.run_id)
        group.tokens += use.tokens
        group.cost += use.cost
        group.unpriced += use.unpriced


def _largest(sums: _Sums) -> set[str | None]:
    totals = defaultdict[str | None, _Sum](_Sum)
    for groups in sums.values():
        for name, each in groups.items():
            totals[name].add(each)

    def size(name: str | None) -> tuple[Decimal, int, int]:
        each = totals[name]
        return each.cost, each.tokens, len(each.runs)

    return set(sorted(totals, key=size, reverse=True)[:_MOST_GROUPS])


def _days(sums: _Sums) -> list[SpendDay]:
    largest, days = _largest(sums), list[SpendDay]()
    for day, groups in sorted(sums.items()):
        shown = defaultdict[_Group, _Sum](_Sum)
        for name, each in groups.items():
            shown[(name, False) if name in largest else (None, True)].add(each)
        views = [_view(group, each) for group, each in shown.items()]
        days.append(SpendDay(day=day, groups=views))
    return days


def _view(group: _Group, each: _Sum) -> SpendGroup:
    name, rest = group
    return SpendGroup(
        name=name,
        rest=rest,
        runs=len(each.runs),
        tokens=each.tokens,
        cost=float(each.cost),
        unpriced=each.unpriced,
    )


def _span(query: SpendQuery, now: datetime) -> tuple[datetime, datetime]:
    """Return from when to when.

    Raises:
        Problem: `invalid`.
    """
    try:
        until = (query.until or now).astimezone(UTC)
        midnight = until.replace(hour=0, minute=0, second=0, microsecond=0)
        since = (query.since or midnight - timedelta(days=_DEFAULT_DAYS - 1)).astimezone(UTC)
    except OverflowError:  # in the first days of the year 1, or the last of 9999
        raise Problem("invalid", errors=[("until", "expected a time of this era")]) from None
    if not timedelta(0) <= until - since <= timedelta(days=MOST_DAYS):
        detail = f"expected a time before until, by at most {MOST_DAYS} days"
        raise Problem("invalid", errors=[("since", detail)])
    return since, until


async def _spend(call: Call[SpendQuery, None]) -> ASGIApp:
    since, until = _span(call.query, call.engine.clock.now())
    wanted = RunQuery(tenant=call.principal.tenant, since=since, newest_first=True, limit=MOST_RUNS)
    sums: _Sums = {}
    runs = reads = missing = listed = 0
    found: Any = each_run(call.store, wanted, page=500)
    async with aclosing(found):
        async for info in found:
            listed += 1
            if info.created_at >= until:
                continue
            summary = call.services.summaries.kept(info)
            if summary is None and reads < MOST_READS:
                reads += 1
                summary = await call.services.summaries.of(info)
            if summary is None:
                missing += 1
                continue
            runs += 1
            _add(sums, info, summary, call.query.by)
    view = SpendByDay(
        by=call.query.by,
        since=since,
        until=until,
        days=_days(sums),
        runs=runs,
        missing=missing,
        truncated=listed >= MOST_RUNS,
    )
    return answer(view)


async def _budgets(call: Call[Empty, None]) -> ASGIApp:
    ceilings = await call.services.spending.today(call.engine, call.principal)
    budgets = [_budget_view(each) for each in ceilings]
    return answer(BudgetList(budgets=budgets))


def _budget_view(ceiling: DayCeiling) -> BudgetView:
    left = max(0, ceiling.limit - ceiling.spent - ceiling.held)
    return BudgetView.model_validate({**ceiling._asdict(), "left": left})


ROUTES: list[AnyRoute] = [
    Route(
        method="GET",
        path="/v1/budget",
        handler=_budgets,
        summary="Look at what is left of the ceilings of the day, in UTC",
        tag="spend",
        right="any",
        answers={200: BudgetList},
    ),
    Route(
        method="GET",
        path="/v1/spend",
        handler=_spend,
        summary="Sum up what runs have used, by the day on which they began, in UTC",
        tag="spend",
        right="read",
        query=SpendQuery,
        answers={200: SpendByDay},
    ),
]
