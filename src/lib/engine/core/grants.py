"""Budget grants: the part of its remaining budget that a run gives to each child run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from lib.engine.core.algorithm import LLMRequest, Request, ToolRequest
from lib.engine.core.budget import UNLIMITED, Budget
from lib.engine.core.state import RunState
from lib.events import kinds as k

MAX_DEPTH: Final = 8
"""How many levels of runs may hang below a root whose budget names no depth."""

_ALL: Final = Budget(depth=MAX_DEPTH)
_SHARED: Final = ("tokens", "cost", "llm_calls", "tool_calls")


def remaining_after(state: RunState[Any], requests: Sequence[Request]) -> Budget:
    """Return what a run may still spend or grant once it has made these requests.

    What it has granted to runs that are still open is not there any more. None is unlimited, as
    everywhere, but for `depth`, which always has a limit.
    """
    if state.budget == UNLIMITED:
        return _ALL
    spend = state.spend.including(state.granted)
    used = {
        "tokens": spend.tokens,
        "cost": spend.cost or 0.0,
        "llm_calls": spend.llm_calls + sum(isinstance(each, LLMRequest) for each in requests),
        "tool_calls": spend.tool_calls + sum(isinstance(each, ToolRequest) for each in requests),
        "seconds": spend.seconds,
    }
    left: dict[str, Any] = {name: _less(getattr(state.budget, name), used[name]) for name in used}
    depth = state.budget.depth
    return Budget(**left, depth=MAX_DEPTH if depth is None else depth)


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
