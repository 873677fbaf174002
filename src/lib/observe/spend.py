"""The spend of runs: a fold of their logs. Pure.

Every call counts once, in the log of the run that made it. A run's children have logs of their
own: the spend in `lib.child.completed` is not added, so that the spend of a tree is the
sum over its runs, and is what the root run counts against its budget. A request that another worker
has carried out again is still one request.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from decimal import Context, Decimal
from typing import Any, Final, TypeVar, cast

from lib.events import Event
from lib.events import kinds as k
from lib.llm.prices import PriceBook, as_cost

K = TypeVar("K", bound=Hashable)

_COUNTS: Final = (
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
)
_LONG: Final = "cache_write_1h_tokens"  # a part of the writes, with a price of its own
_EXACT: Final = Context(prec=1000)
"""Wide enough for any sum of costs that `as_cost` passes: no order of adding them loses a digit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpend:
    """The usage of the answered calls of one model.

    Attributes:
        calls: answers in the log: replies, and those to guards, summaries and memories that call
            a model.
        input_tokens: all of the input, read from a cache or not.
        output_tokens: all of the output, reasoning included.
        cache_read_tokens: the part of the input that the provider's cache held.
        cache_write_tokens: the part of the input that the provider put into its cache.
        reasoning_tokens: the part of the output that the model wrote for itself.
        known_cost: US dollars, for the calls with a cost.
        unpriced: calls without a cost or a price.
        failed: calls that were not answered, or whose answer was blocked.
    """

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    known_cost: Decimal = Decimal(0)
    unpriced: int = 0
    failed: int = 0

    @property
    def tokens(self) -> int:
        """Input and output."""
        return self.input_tokens + self.output_tokens

    @property
    def cost(self) -> Decimal | None:
        """US dollars for all of it; None if the cost of any call is unknown."""
        return None if self.unpriced else self.known_cost

    def __add__(self, other: ModelSpend) -> ModelSpend:
        mine, its = self.known_cost, other.known_cost
        counts: dict[str, int] = {
            name: getattr(self, name) + getattr(other, name) for name in _MODEL_COUNTS
        }
        return ModelSpend(**counts, known_cost=_EXACT.add(mine, its))


_MODEL_COUNTS: Final = tuple(each.name for each in fields(ModelSpend) if each.name != "known_cost")


@dataclass(frozen=True, slots=True, kw_only=True)
class TotalSpend:
    """The spend of one or many runs; `sum(spends, TotalSpend())` adds them up.

    Attributes:
        llm_calls: requested calls of models, answered or not.
        tool_calls: calls of tools and of agents that were made, whether they succeeded or not.
        guard_calls: checks by guards.
        models: what was used, by the model that answered as its provider names it, else by the
            model that was requested; None for calls whose log names none.
    """

    llm_calls: int = 0
    tool_calls: int = 0
    guard_calls: int = 0
    models: Mapping[str | None, ModelSpend] = field(default_factory=dict[str | None, ModelSpend])

    @property
    def total(self) -> ModelSpend:
        """The sum over all models."""
        return sum(self.models.values(), ModelSpend())

    def __add__(self, other: TotalSpend) -> TotalSpend:
        models = dict(self.models)
        for model, spend in other.models.items():
            models[model] = models.get(model, ModelSpend()) + spend
        return TotalSpend(
            llm_calls=self.llm_calls + other.llm_calls,
            tool_calls=self.tool_calls + other.tool_calls,
            guard_calls=self.guard_calls + other.guard_calls,
            models=models,
        )


class SpendFold:
    """Adds up events page by page; keeps the open calls and the sums."""

    def __init__(self, *, prices: PriceBook | None = None) -> None:
        """Begin with nothing.

        Args:
            prices: for calls whose cost the log does not state, at the time of the call.
        """
        self._prices = prices
        self._seen: dict[str, int] = {}
        self._open: dict[tuple[str, str], Mapping[str, Any]] = {}
        self._calls = {"llm_calls": 0, "tool_calls": 0, "guard_calls": 0}
        self._models: dict[str | None, ModelSpend] = {}

    @property
    def spend(self) -> TotalSpend:
        """The spend so far."""
        return TotalSpend(**self._calls, models=dict(self._models))

    def add(self, events: Iterable[Event]) -> None:
        """Take more events.

        Args:
            events: of one or more runs, each from its first event on and in the order of its log.
                An event that comes again counts once.
        """
        for event in events:
            if event.seq > self._seen.get(event.run_id, 0):
                self._seen[event.run_id] = event.seq
                self._add(event)

    def _add(self, event: Event) -> None:
        match event.kind:
            case k.LLM_REQUESTED:
                self._calls["llm_calls"] += 1
                self._open[event.run_id, str(event.data.get("key"))] = event.data
            case k.LLM_COMPLETED | k.LLM_FAILED:
                request = self._open.pop((event.run_id, str(event.data.get("key"))), None)
                if request is not None:
                    self._end(event, request)
            case k.TOOL_REQUESTED | k.CHILD_REQUESTED:
                self._calls["tool_calls"] += not event.data.get("unstarted")
            case (
                k.GUARD_VERDICT
                | k.CONTEXT_SUMMARY
                | k.CONTEXT_FAILED
                | k.MEMORY_COMPLETED
                | k.MEMORY_FAILED
            ):
                self._calls["guard_calls"] += event.kind == k.GUARD_VERDICT
                if event.data.get("usage"):  # most of them call no model
                    self._use(event, event.data)
            case _:
                pass

    def _end(self, event: Event, request: Mapping[str, Any]) -> None:
        """Add what came of a model call."""
        if event.kind == k.LLM_COMPLETED:
            self._use(event, _object(event.data.get("reply")), event.data, request)
            return
        if event.data.get("usage"):  # a reply that was blocked
            self._use(event, event.data, request)
        self._fail(event.data, request)

    def _fail(self, *payloads: Mapping[str, Any]) -> None:
        """Count a failure for the requested model, if the log names one."""
        if (model := _name(payloads, "model")) is not None:
            spend = self._models.get(model, ModelSpend()) + ModelSpend(failed=1)
            self._models[model] = spend

    def _use(self, event: Event, *payloads: Mapping[str, Any]) -> None:
        """Add one answer; the first of the payloads that names its model and provider counts."""
        usage = _object(payloads[0].get("usage"))
        counts = {name: _count(usage.get(name)) for name in _COUNTS}
        model, cost = _name(payloads, "model"), as_cost(usage.get("cost"))
        if cost is None and self._prices is not None and model is not None:
            parts = {**counts, _LONG: _count(usage.get(_LONG))}
            used = {name: count for name, count in parts.items() if count}
            priced = self._prices.price(_name(payloads, "provider"), model, used, event.at)
            cost = as_cost(priced)
        amount, unpriced = (Decimal(0), 1) if cost is None else (cost, 0)
        spend = ModelSpend(calls=1, **counts, known_cost=amount, unpriced=unpriced)
        self._models[model] = self._models.get(model, ModelSpend()) + spend


def spend_of(events: Iterable[Event], *, prices: PriceBook | None = None) -> TotalSpend:
    """Return the spend in some events; see `SpendFold.add`."""
    fold = SpendFold(prices=prices)
    fold.add(events)
    return fold.spend


def spend_by(
    group: Callable[[Event], K], events: Iterable[Event], *, prices: PriceBook | None = None
) -> dict[K, TotalSpend]:
    """Return what each group of runs has spent, such as `spend_by(lambda e: e.tenant, events)`.

    Args:
        group: names the group of an event, the same for all events of a run.
        events: see `SpendFold.add`.
        prices: see `SpendFold`.
    """
    folds: dict[K, SpendFold] = {}
    for event in events:
        folds.setdefault(group(event), SpendFold(prices=prices)).add([event])
    return {name: fold.spend for name, fold in folds.items()}


def _object(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _name(payloads: Iterable[Mapping[str, Any]], name: str) -> str | None:
    found = (each.get(name) for each in payloads)
    return next((value for value in found if isinstance(value, str) and value), None)


def _count(value: Any) -> int:
    return value if type(value) is int and value > 0 else 0
