"""The spending of callers in a day: accounts in the event store, which all its processes share.

An account is one mark: its day, what those of its runs spent that have been seen to end, and the
others. A run is entered before it is started, by the compare-and-set that finds room for it; what
it has spent is read from its log when the next run is to be entered. So no process has anything to
do at the end of a run, and a process that ends takes nothing with it.

A run whose budget has a ceiling below that of the day holds all of it until it has ended: runs that
are open at once cannot spend the same rest. Another run holds nothing, and counts with what it has
spent so far.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, Final, NamedTuple

from lib._util.clock import SYSTEM_CLOCK, Clock
from lib.engine import Budget, Engine, Spend
from lib.errors import RunNotFound, StoreError
from lib.events import RunQuery
from lib_server.auth.principal import Principal
from lib_server.limits import COUNTED_BY_DAY, Level, Limits
from lib_server.problems import Problem

RETRY_HELD_S: Final = 5
"""When to come back if open runs hold what is left."""

_MARK: Final = "server/spending/"
_MAX_SEEN: Final = 10_000
_DAY: Final = timedelta(days=1)

Amounts = Mapping[str, float]
"""Amounts by resource, as `Budget` names them."""


@dataclass(frozen=True, slots=True)
class Account:
    """The spending of the runs of one caller, one tenant or the server in a day.

    Attributes:
        day: in UTC; a run belongs to that of its start.
        spent: by the runs that have been seen to end.
        open: what each of the others holds.
    """

    day: date
    spent: Amounts = field(default_factory=dict[str, float])
    open: Mapping[str, Amounts] = field(default_factory=dict[str, Amounts])

    @property
    def start(self) -> datetime:
        """The begin of the day."""
        return datetime.combine(self.day, time(), UTC)

    def held(self, name: str) -> float:
        """Return how much of a resource the open runs hold."""
        return sum(holds.get(name, 0) for holds in self.open.values())

    def encode(self) -> str:
        """Return the value of its mark."""
        values = {"version": 1, "day": self.day.isoformat(), "spent": self.spent, "open": self.open}
        return json.dumps(values, allow_nan=False)

    @classmethod
    def of_day(cls, text: str | None, today: date) -> Account:
        """Return the account that a mark holds, a new one if that is of an earlier day.

        One of tomorrow was written by a process whose clock is ahead, and goes on.
        """
        if text is None:
            return cls(today)
        values: Any = json.loads(text)
        day = date.fromisoformat(values["day"])
        if not today <= day <= today + _DAY:
            return cls(today)
        return cls(day, values["spent"], values["open"])


class _Owner(NamedTuple):
    """The owner of an account.

    Attributes:
        level: what kind of owner.
        mark: the name of the mark of its account.
        tenant: to which all its runs belong; None for any.
        ceilings: of a day.
    """

    level: Level
    mark: str
    tenant: str | None
    ceilings: Amounts


class DayCeiling(NamedTuple):
    """A ceiling of a day, and how far it is used.

    Attributes:
        level: whose ceiling it is.
        resource: as `Budget` names it.
        limit: of the day.
        spent: by runs that have ended, and by open ones beyond what they hold.
        held: by open runs whose budget has a ceiling.
        ends_at: the end of the day.
    """

    level: Level
    resource: str
    limit: float
    spent: float
    held: float
    ends_at: datetime


class Spending:
    """The accounts of a server."""

    def __init__(self, limits: Limits, *, clock: Clock = SYSTEM_CLOCK) -> None:
        """Begin.

        Args:
            limits: with the ceilings of a day.
            clock: tells the day.
        """
        self._limits = limits
        self._clock = clock
        self._seen: dict[str, tuple[int, Amounts]] = {}

    def is_limited(self, principal: Principal) -> bool:
        """Return True if this caller has a ceiling of a day."""
        return bool(self._owners(principal))

    async def today(self, engine: Engine, principal: Principal) -> list[DayCeiling]:
        """Return the ceilings of the day that hold for a caller. Writes nothing.

        A caller of a tenant does not see those of the server: all tenants spend them together.

        Args:
            engine: of the server.
            principal: the caller.
        """
        found: list[DayCeiling] = []
        for owner in self._owners(principal):
            if owner.level == "server" and principal.tenant is not None:
                continue
            text = await engine.store.mark(owner.mark)
            account = Account.of_day(text, self._clock.now().date())
            account, spent = await self._settled(engine, owner, account)
            for name, ceiling in owner.ceilings.items():
                used, held = spent.get(name, 0), account.held(name)
                ends_at = account.start + _DAY
                found.append(DayCeiling(owner.level, name, ceiling, used, held, ends_at))
        return found

    @asynccontextmanager
    async def admitted(
        self, engine: Engine, principal: Principal, run_id: str, budget: Budget | None
    ) -> AsyncGenerator[None]:
        """Enter a run, which the block starts, into the accounts of its caller.

        A run that has been started or entered before is not counted again. If the block fails and
        has started no run, it does not count.

        Args:
            engine: of the server.
            principal: the caller.
            run_id: which the run will have.
            budget: of the run; None for no ceiling.

        Raises:
            Problem: `budget_spent`.
        """
        entered: dict[str, bool] = {}
        try:
            for owner in self._owners(principal):
                entered[owner.mark] = await self._enter(engine, owner, run_id, budget)
            yield
        except Exception:
            with suppress(StoreError):  # then it holds its ceiling until the end of the day
                marks = [mark for mark, is_new in entered.items() if is_new]
                if marks and await engine.store.run(run_id) is None:
                    for mark in marks:
                        await self._remove(engine, mark, run_id)
            raise

    def _owners(self, principal: Principal) -> list[_Owner]:
        return [
            _Owner(
                level,
                _MARK + hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:32],
                None if level == "server" else principal.tenant,
                quota.day.to_json(),
            )
            for level, name, quota in self._limits.quotas(principal)
            if quota.day is not None
        ]

    async def _enter(
        self, engine: Engine, owner: _Owner, run_id: str, budget: Budget | None
    ) -> bool:
        """Enter a run into an account; return False if it has been entered or started before."""
        store, chosen = engine.store, {} if budget is None else budget.to_json()
        holds = {
            name: chosen[name]
            for name, ceiling in owner.ceilings.items()
            if chosen.get(name, ceiling) < ceiling
        }
        while True:
            text = await store.mark(owner.mark)
            account = Account.of_day(text, self._clock.now().date())
            if run_id in account.open or await store.run(run_id) is not None:
                return False
            settled, spent = await self._settled(engine, owner, account)
            refusal = _refusal(owner, settled, spent, holds, self._clock.now())
            if refusal is None:
                settled = replace(settled, open={**settled.open, run_id: holds})
            elif settled is account:
                raise refusal
            if await store.compare_and_set_mark(owner.mark, expected=text, value=settled.encode()):
                if refusal is not None:
                    raise refusal
                return True

    async def _settled(
        self, engine: Engine, owner: _Owner, account: Account
    ) -> tuple[Account, Amounts]:
        """Return the account without the runs that have ended, and all that has been spent.

        What open runs hold is not in it, whether they have spent it or not.
        """
        if not account.open:
            return account, account.spent
        query = RunQuery(tenant=owner.tenant, status="open", since=account.start)
        heads = {info.run_id: info.head for info in await engine.store.runs(query)}
        ended, still, total = dict(account.spent), dict(account.open), dict(account.spent)
        for run_id, holds in account.open.items():
            if run_id in heads and holds.keys() >= owner.ceilings.keys():
                continue
            spent, has_ended = await self._spent(engine, run_id, heads.get(run_id))
            if has_ended:
                del still[run_id]
                _add(ended, spent)
                _add(total, spent)
            else:
                _add(total, {name: spent[name] for name in spent.keys() - holds.keys()})
        if len(still) < len(account.open):
            account = replace(account, spent=ended, open=still)
        return account, total

    async def _spent(self, engine: Engine, run_id: str, head: int | None) -> tuple[Amounts, bool]:
        """Return what a run has spent so far, and whether it has ended.

        Args:
            engine: of the server.
            run_id: the run. A turn that waits for the one before has no log, nor has a run that was
                erased: neither counts as ended.
            head: of the run if it is open, as far as the list of runs has it.
        """
        seen = self._seen.get(run_id)
        if seen is not None and seen[0] == head:
            return seen[1], False
        try:
            result = await engine.run(run_id).result(wait=False)
        except RunNotFound:
            return {}, False
        spent = _amounts(result.spend)
        if head is not None and result.outcome is None:
            if len(self._seen) >= _MAX_SEEN:
                self._seen.clear()
            self._seen[run_id] = head, spent
        return spent, result.outcome is not None

    async def _remove(self, engine: Engine, mark: str, run_id: str) -> None:
        while (text := await engine.store.mark(mark)) is not None:
            account = Account.of_day(text, self._clock.now().date())
            left = {each: holds for each, holds in account.open.items() if each != run_id}
            value = replace(account, open=left).encode()
            if await engine.store.compare_and_set_mark(mark, expected=text, value=value):
                return


def _amounts(spend: Spend) -> Amounts:
    return {name: value for name in COUNTED_BY_DAY if (value := getattr(spend, name))}


def _add(total: dict[str, float], more: Amounts) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def _refusal(
    owner: _Owner, account: Account, spent: Amounts, wanted: Amounts, now: datetime
) -> Problem | None:
    """Return why a run cannot be entered into an account, None if it can.

    Args:
        owner: of the account.
        account: without the runs that have ended.
        spent: by these, and by open runs beyond what they hold.
        wanted: what the run would hold.
        now: the time.
    """
    for name, ceiling in owner.ceilings.items():
        used = spent.get(name, 0)
        held = account.held(name)
        if _fits(used + held, wanted.get(name), ceiling):
            continue
        left = max(0, ceiling - used - held)
        detail = (
            f"expected at most {ceiling:.10g} {name} a day of the {owner.level}: "
            f"{used:.10g} are spent, open runs hold {held:.10g}"
        )
        if name in wanted and left:
            detail += f"; choose a budget of at most {left:.10g}, or wait"
        until_s = (account.start + _DAY - now).total_seconds()
        facts: dict[str, Any] = {"resource": name, "limit": ceiling, "spent": used, "held": held}
        fits_later = held and _fits(used, wanted.get(name), ceiling)
        return Problem(
            "budget_spent",
            detail,
            retry_after_s=RETRY_HELD_S if fits_later else until_s,
            level=owner.level,
            **facts,
        )
    return None


def _fits(used: float, wanted: float | None, ceiling: float) -> bool:
    return used < ceiling if wanted is None else used + wanted <= ceiling
