"""Budgets and spend of runs, and the part of its budget that a run grants to each child run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final, NamedTuple

from lib.events import kinds as k

_BEYOND: Final = 2**63


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """A ceiling for each resource; None is unlimited, 0 is none at all.

    A request that could not be paid for is not made; what is under way is never cut short, so a
    run may end above a ceiling by what its last calls cost.

    Attributes:
        tokens: input and output tokens.
        cost: in US dollars; a call without a stated cost counts as nothing, so give `LLMHandler`
            prices.
        llm_calls: model calls.
        tool_calls: tool calls.
        seconds: time in which the run worked; waiting for people and being dead do not count.
        depth: how many levels of child runs may hang below the run.
    """

    tokens: int | None = None
    cost: float | None = None
    llm_calls: int | None = None
    tool_calls: int | None = None
    seconds: float | None = None
    depth: int | None = None

    def __post_init__(self) -> None:
        """Refuse ceilings that are no numbers, negative, or that no log takes."""
        for name in _RESOURCES:
            value = getattr(self, name)
            if value is None:
                continue
            if not _has_type(name, value):
                what = "a number" if name in _FRACTIONAL else "a whole number"
                raise TypeError(f"expected {what} or None as budget {name}, got {value!r}")
            if not 0 <= value < _BEYOND:
                what = "is negative" if value < 0 else "is no number below 2**63"
                raise ValueError(f"budget {name}={value!r} {what}: 0 is none, None unlimited")

    def to_json(self) -> dict[str, Any]:
        """Return the ceilings that are set."""
        ceilings = ((name, getattr(self, name)) for name in _RESOURCES)
        return {name: ceiling for name, ceiling in ceilings if ceiling is not None}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Budget:
        """Return the budget that `to_json` has written; what is no ceiling is ignored."""
        found: dict[str, Any] = {name: value.get(name) for name in _RESOURCES}
        return cls(**{name: found[name] for name in _RESOURCES if _is_ceiling(name, found[name])})


class Spend(NamedTuple):
    """The tokens, cost and calls that a run has used so far.

    Attributes:
        cost: None as long as no client has stated a price.
        llm_calls: calls made, successful or not; likewise `tool_calls`.
        seconds: time in which something was under way.
    """

    tokens: int = 0
    cost: float | None = None
    llm_calls: int = 0
    tool_calls: int = 0
    seconds: float = 0.0

    def including(self, other: Spend) -> Spend:
        """Return this with what another run has spent: all but its time, which passes at once."""
        tokens, cost, llm_calls, tool_calls, seconds = self
        if other.cost is not None:
            cost = (cost or 0.0) + other.cost
        return Spend(
            tokens + other.tokens,
            cost,
            llm_calls + other.llm_calls,
            tool_calls + other.tool_calls,
            seconds,
        )

    def with_tool_call(self) -> Spend:
        """Return this after one more tool call."""
        tokens, cost, llm_calls, tool_calls, seconds = self
        return Spend(tokens, cost, llm_calls, tool_calls + 1, seconds)

    def later(self, seconds: float) -> Spend:
        """Return this after so much more time."""
        tokens, cost, llm_calls, tool_calls, before = self
        return Spend(tokens, cost, llm_calls, tool_calls, before + seconds)

    def to_json(self) -> dict[str, Any]:
        """Return what was used of each resource, nothing for what was not."""
        return {name: value for name, value in self._asdict().items() if value}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Spend:
        """Return the spend that `to_json` has written; what is no amount is ignored."""
        return cls(**{name: value[name] for name in cls._fields if _is_amount(value.get(name))})


def _is_amount(value: Any) -> bool:
    return isinstance(value, int | float) and value.__class__ is not bool and 0 <= value < _BEYOND


def _has_type(name: str, value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, _TYPES[name])


def _is_ceiling(name: str, value: Any) -> bool:
    return _has_type(name, value) and _is_amount(value)


_RESOURCES: Final = tuple(field.name for field in fields(Budget))
_FRACTIONAL: Final = frozenset({"cost", "seconds"})
_TYPES: Final = {name: (int, float) if name in _FRACTIONAL else (int,) for name in _RESOURCES}
UNLIMITED: Final = Budget()


def exhausted(budget: Budget, spend: Spend, *, llm_calls: int, tool_calls: int) -> str | None:
    """Return the first resource that does not allow so many more calls, or None.

    A ceiling that is not counted in calls stops the next call once it is reached.
    """
    used = {
        "tokens": (spend.tokens, 1),
        "cost": (spend.cost or 0.0, 0.0),
        "llm_calls": (spend.llm_calls, llm_calls),
        "tool_calls": (spend.tool_calls, tool_calls),
        "seconds": (spend.seconds, 0.0),
    }
    for name, (value, more) in used.items():
        ceiling = getattr(budget, name)
        if ceiling is None:
            continue
        counted_in_calls = name.endswith("_calls")
        if value + more > ceiling or (not counted_in_calls and value >= ceiling):
            return name
    return None


MAX_DEPTH: Final = 8
"""How many levels of runs may hang below a root whose budget names no depth."""

DEPTH_LIMITED: Final = Budget(depth=MAX_DEPTH)
_SHARED: Final = ("tokens", "cost", "llm_calls", "tool_calls")


def remaining(budget: Budget, spend: Spend) -> Budget:
    """Return what is left of a budget; None is unlimited, but `depth` always has a limit."""
    left: dict[str, Any] = {
        name: _less(getattr(budget, name), getattr(spend, name) or 0) for name in Spend._fields
    }
    return Budget(**left, depth=MAX_DEPTH if budget.depth is None else budget.depth)


def grant(left: Budget, ceiling: Budget | None, *, sharers: int) -> Budget:
    """Return the budget of a run that is about to be started.

    Nothing is granted twice: of tokens, cost and calls it gets an even share of what is left, or
    its own ceiling if that is lower. Seconds pass for all at once, so each may use what is left.

    Args:
        left: what the run that starts it may still spend.
        ceiling: what it needs at most, None for no limit of its own.
        sharers: how many runs what is left has to do for, this one included.

    Raises:
        ValueError: no depth is left.
    """
    own = ceiling or Budget()
    if not left.depth:
        raise ValueError("no depth is left for a run below this one")
    shares: dict[str, Any] = {
        name: _least(getattr(own, name), _share(getattr(left, name), sharers)) for name in _SHARED
    }
    seconds, depth = _least(own.seconds, left.seconds), _least(own.depth, left.depth - 1)
    return Budget(**shares, seconds=seconds, depth=depth)


def remaining_beside(left: Budget, kind: str, data: Mapping[str, Any]) -> Budget:
    """Return what is left beside what an event that is about to be appended grants."""
    if kind not in k.SPAWNS_RUN:
        return left
    granted = Budget.from_json(data.get("budget", {}))
    rest = {name: _less(getattr(left, name), getattr(granted, name) or 0) for name in _SHARED}
    return replace(left, **rest)


def _less(ceiling: float | None, used: float) -> float | None:
    return None if ceiling is None else max(ceiling - used, type(ceiling)(0))


def _share(left: float | None, sharers: int) -> float | None:
    if left is None:
        return None
    return left // sharers if isinstance(left, int) else left / sharers


def _least(*ceilings: float | None) -> Any:
    return min((each for each in ceilings if each is not None), default=None)
