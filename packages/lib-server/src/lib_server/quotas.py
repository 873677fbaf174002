"""Holds callers to their quotas: each refusal says what, how much, and when again."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any, Final, NamedTuple

from starlette.types import ASGIApp, Receive, Scope, Send

from lib._util.clock import SYSTEM_CLOCK, Clock
from lib.engine import Budget
from lib.errors import StoreError
from lib.events import EventStore, RunQuery
from lib.events.rates import Rate, Rates, RateState, SharesRates
from lib_server.auth.principal import Principal
from lib_server.limits import Level, Limits
from lib_server.problems import Problem

_log: Final = logging.getLogger("lib_server")

RETRY_RUNS_S: Final = 5
RETRY_STREAMS_S: Final = 5


class Policy(NamedTuple):
    """A rate that a request was counted under, and what is left of it."""

    level: Level
    rate: Rate
    state: RateState


class Quotas:
    """The quotas of one server, and what counts against them in this process.

    Attributes:
        limits: of the server.
    """

    def __init__(self, limits: Limits, *, clock: Clock = SYSTEM_CLOCK) -> None:
        """Begin with nothing in use.

        Args:
            limits: see above.
            clock: for rates that no store counts.
        """
        self.limits = limits
        self._rates = Rates(clock=clock)
        self._shared: SharesRates | None = None
        self._sharing = True
        self._streams: Counter[str] = Counter()

    def attach(self, store: EventStore) -> None:
        """Count rates in this store if it can; it is set up."""
        self._shared = store if isinstance(store, SharesRates) else None

    # -- rates -----------------------------------------------------------------------------

    async def count_request(self, principal: Principal) -> Sequence[Policy]:
        """Count a request against the rates of its caller, and return what is left of them."""
        found: list[tuple[Level, str, Rate]] = [
            (level, name, quota.requests)
            for level, name, quota in self.limits.quotas(principal)
            if quota.requests is not None
        ]
        if not found:
            return ()
        states = await self._take([(name, rate) for _, name, rate in found])
        return [
            Policy(level, rate, state)
            for (level, _, rate), state in zip(found, states, strict=True)
        ]

    async def _take(self, wanted: Sequence[tuple[str, Rate]]) -> list[RateState]:
        """Count in the store; in this process if there is none, or while it does not answer."""
        if self._shared is not None:
            try:
                states = await self._shared.take_rates(wanted)
            except StoreError:
                if self._sharing:
                    _log.exception("each process counts requests for itself: the store cannot")
                self._sharing = False
            else:
                self._sharing = True
                return states
        return self._rates.take(wanted)

    # -- streams ---------------------------------------------------------------------------

    def check_streams(self, principal: Principal) -> None:
        """Refuse a stream that would be one too many.

        Raises:
            Problem: `stream_cap`.
        """
        for level, name, quota in self.limits.quotas(principal):
            ceiling = quota.open_streams
            if ceiling is not None and self._streams[name] >= ceiling:
                detail = f"expected at most {ceiling} open streams of the {level}: close some"
                raise Problem(
                    "stream_cap", detail, retry_after_s=RETRY_STREAMS_S, level=level, limit=ceiling
                )

    def counted(self, principal: Principal, stream: ASGIApp) -> ASGIApp:
        """Return a stream that counts against the quotas of its caller while it is open."""
        names = [name for _, name, _ in self.limits.quotas(principal)]

        async def counted(scope: Scope, receive: Receive, send: Send) -> None:
            self._streams.update(names)
            try:
                await stream(scope, receive, send)
            finally:
                for name in names:
                    self._streams[name] -= 1
                    if not self._streams[name]:
                        del self._streams[name]

        return counted

    @property
    def streams(self) -> int:
        """The number of open streams."""
        return self._streams["server"]

    # -- runs ------------------------------------------------------------------------------

    async def check_open_runs(
        self, principal: Principal, store: EventStore, agents: Sequence[str]
    ) -> None:
        """Refuse a run that would be one too many.

        Processes that check at the same time may admit one run each.

        Args:
            principal: the caller.
            store: of all tenants.
            agents: whose runs count; an open session that no turn is in does not.

        Raises:
            Problem: `open_runs_cap`.
        """
        for level, _, quota in self.limits.quotas(principal):
            ceiling = quota.open_runs
            if ceiling is None:
                continue
            tenant = principal.tenant if level == "tenant" else None
            if await _open_runs(store, tenant, agents, ceiling) >= ceiling:
                detail = f"expected at most {ceiling} open runs of the {level}: wait for one to end"
                raise Problem(
                    "open_runs_cap", detail, retry_after_s=RETRY_RUNS_S, level=level, limit=ceiling
                )

    def run_budget(
        self, principal: Principal, wanted: Budget | None, own: Budget | None, *, pointer: str
    ) -> Budget | None:
        """Return the budget of a run: what the caller has chosen, and ceilings for the rest.

        Args:
            principal: the caller.
            wanted: the caller's choice; None for none.
            own: of the agent, another ceiling.
            pointer: to the choice, in the body of the request.

        Raises:
            Problem: `budget_ceiling`: the caller has chosen more than a ceiling.
        """
        quotas = [quota for _, _, quota in self.limits.quotas(principal)]
        ceilings = [budget for quota in quotas for budget in (quota.run, quota.day)]
        lowest = _lowest([each.to_json() for each in (own, *ceilings) if each is not None])
        chosen = {} if wanted is None else wanted.to_json()
        above = [name for name in chosen if chosen[name] > lowest.get(name, chosen[name])]
        if above:
            errors = [
                (f"{pointer}/{name}", f"expected at most {lowest[name]}, got {chosen[name]}")
                for name in above
            ]
            raise Problem("budget_ceiling", "choose less, or leave it out", errors=errors)
        budget = lowest | chosen
        return Budget(**budget) if budget else None


def _lowest(ceilings: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for each in ceilings:
        for name, ceiling in each.items():
            found[name] = min(ceiling, found.get(name, ceiling))
    return found


async def _open_runs(
    store: EventStore, tenant: str | None, agents: Sequence[str], enough: int
) -> int:
    """Return how many runs of these agents are open, as far as `enough`."""
    found = 0
    for agent in agents:
        if found >= enough:
            break
        query = RunQuery(tenant=tenant, status="open", algorithm=agent, limit=enough - found)
        found += len(await store.runs(query))
    return found


# -- headers ---------------------------------------------------------------------------------------


def rate_headers(policies: Sequence[Policy]) -> list[tuple[bytes, bytes]]:
    """Return the headers that tell a client its rates and what is left of them.

    Source: draft-ietf-httpapi-ratelimit-headers-11, May 2026.
    """
    if not policies:
        return []
    rates = [
        f'"{level}";q={rate.count};w={max(1, round(rate.window_s))}' for level, rate, _ in policies
    ]
    left = [
        f'"{level}";r={state.remaining};t={ceil(state.reset_s)}' for level, _, state in policies
    ]
    return [
        (b"ratelimit-policy", ", ".join(rates).encode()),
        (b"ratelimit", ", ".join(left).encode()),
    ]


def check_rates(policies: Sequence[Policy]) -> None:
    """Refuse a request that was not counted.

    Raises:
        Problem: `rate_limited`.
    """
    slowest = max(policies, key=lambda each: each.state.retry_after_s, default=None)
    if slowest is None or not slowest.state.retry_after_s:
        return
    level, rate, state = slowest
    detail = f"expected at most {rate.count} requests of the {level} in {rate.window_s:g} seconds"
    raise Problem(
        "rate_limited",
        detail,
        retry_after_s=state.retry_after_s,
        level=level,
        limit=rate.count,
        window_s=rate.window_s,
    )
