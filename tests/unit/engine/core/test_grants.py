"""Tests that a run grants child runs no more than it has, and never twice."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.algorithms import React
from lib.engine import Budget, LLMRequest, Spend, ToolRequest
from lib.engine.core.budget import MAX_DEPTH, grant, remaining_beside
from lib.engine.core.conversation import History
from lib.engine.core.decide import remaining_after
from lib.engine.core.state import RunState, begin, fold
from lib.events import Event
from lib.events import kinds as k
from lib.llm import Reply, Usage, reply_to_json

AT = datetime(2026, 1, 1, tzinfo=UTC)
SHARED = ("tokens", "cost", "llm_calls", "tool_calls")
CALLS = [ToolRequest(key=f"tool/1/{n}", call_id=f"{n}", name="x", arguments={}) for n in range(3)]


def events(budget: Budget, *more: tuple[str, dict[str, Any]]) -> list[Event]:
    start: dict[str, Any] = {"algorithm": "react", "input": [], "budget": budget.to_json()}
    log = [(k.RUN_STARTED, start), *more]
    return [Event("run", seq, kind, data, AT) for seq, (kind, data) in enumerate(log, 1)]


def state(budget: Budget, *more: tuple[str, dict[str, Any]]) -> RunState[Any]:
    return fold(React(), events(budget, *more))


def child(number: int, budget: Budget | None = None) -> tuple[str, dict[str, Any]]:
    data: dict[str, Any] = {
        "key": f"tool/1/{number}",
        "call_id": f"{number}",
        "run_id": f"{number}",
    }
    return k.CHILD_REQUESTED, data if budget is None else {**data, "budget": budget.to_json()}


def test_the_remaining_budget_excludes_spend_and_grants() -> None:
    budget = Budget(tokens=100, cost=2.0, llm_calls=10, tool_calls=9, seconds=60)
    granted = Budget(tokens=30, cost=0.5, llm_calls=2, tool_calls=1, seconds=60, depth=7)

    left = remaining_after(state(budget, child(1, granted), child(2)), CALLS)

    # Two calls of agents are made, three tool calls are about to be, one is granted.
    assert left == Budget(
        tokens=70, cost=1.5, llm_calls=8, tool_calls=3, seconds=60, depth=MAX_DEPTH
    )
    requested = LLMRequest(key="llm/1", messages=History())
    assert remaining_after(state(Budget(llm_calls=1)), [requested]).llm_calls == 0
    assert remaining_after(state(Budget(depth=2)), []) == Budget(depth=2)


def test_the_remaining_budget_is_never_negative() -> None:
    reply = reply_to_json(Reply((), Usage(input_tokens=90, output_tokens=30)))
    requested = (k.LLM_REQUESTED, {"key": "llm/1", "upto": 1, "digest": "d"})
    answered = (k.LLM_COMPLETED, {"key": "llm/1", "reply": reply})

    left = remaining_after(state(Budget(tokens=100, tool_calls=1), requested, answered), CALLS)

    assert (left.tokens, left.tool_calls) == (0, 0)


def test_a_result_returns_the_unspent_part_of_a_grant() -> None:
    spend = {"tokens": 10, "cost": 0.25, "llm_calls": 1, "tool_calls": 2, "seconds": 5}
    ended = {"key": "tool/1/1", "call_id": "1", "run_id": "1", "outcome": "LIMITED"}
    requested = child(1, Budget(tokens=50, depth=1))

    before = state(Budget(tokens=100), requested)
    after = state(Budget(tokens=100), requested, (k.CHILD_COMPLETED, {**ended, "spend": spend}))

    assert before.granted == Spend(tokens=50)
    assert after.granted == Spend()
    assert after.spend == Spend(tokens=10, cost=0.25, llm_calls=1, tool_calls=3)
    assert remaining_after(after, []).tokens == 90


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (k.LLM_FAILED, {"key": "llm/1", "reason": "blocked", "error": {}}),
        (k.GUARD_VERDICT, {"key": "llm/1", "guard": "g", "stage": "output", "verdict": "allowed"}),
        (k.CONTEXT_SUMMARY, {"covers": "c", "text": "t"}),
        (k.MEMORY_COMPLETED, {"key": "memory/1"}),
    ],
)
def test_every_kind_of_model_call_counts_as_spend(kind: str, data: dict[str, Any]) -> None:
    usage = {"usage": {"input_tokens": 3, "output_tokens": 4, "cost": 0.5}}

    assert state(Budget(), (kind, {**data, **usage})).spend == Spend(tokens=7, cost=0.5)
    assert state(Budget(), (kind, data)).spend == Spend()


def test_a_grant_is_an_even_share_or_the_agents_own_ceiling() -> None:
    left = Budget(tokens=100, cost=1.0, llm_calls=7, seconds=30, depth=3)

    assert grant(left, None, sharers=2) == Budget(
        tokens=50, cost=0.5, llm_calls=3, seconds=30, depth=2
    )
    own = Budget(tokens=20, cost=5.0, tool_calls=4, seconds=60, depth=0)
    assert grant(left, own, sharers=2) == Budget(
        tokens=20, cost=0.5, llm_calls=3, tool_calls=4, seconds=30, depth=0
    )
    with pytest.raises(ValueError, match="no depth is left"):
        grant(Budget(depth=0), None, sharers=1)


def test_only_requests_that_start_a_run_take_a_grant() -> None:
    left = Budget(tokens=10, cost=1.0, depth=3)

    assert remaining_beside(left, k.TOOL_REQUESTED, {"budget": {"tokens": 5}}) == left
    assert remaining_beside(left, *child(1)) == left
    granted = Budget(tokens=4, cost=0.25, llm_calls=3, seconds=5, depth=2)
    assert remaining_beside(left, *child(1, granted)) == Budget(tokens=6, cost=0.75, depth=3)


ceilings = st.builds(
    Budget,
    tokens=st.none() | st.integers(0, 10**6),
    cost=st.none() | st.integers(0, 64).map(lambda eighths: eighths / 8),
    llm_calls=st.none() | st.integers(0, 100),
    tool_calls=st.none() | st.integers(0, 100),
    seconds=st.none() | st.integers(0, 64).map(float),
    depth=st.none() | st.integers(0, 9),
)


@given(ceilings, st.lists(st.none() | ceilings, max_size=6))
def test_the_grants_of_a_batch_fit_the_budget_and_none_is_zero(
    budget: Budget, wanted: list[Budget | None]
) -> None:
    first = left = remaining_after(begin(React(), events(budget)[0]), [])
    depth = left.depth or 0
    if not depth:
        return
    for number, own in enumerate(wanted):
        sharers = len(wanted) - number
        granted = grant(left, own, sharers=sharers)
        least = grant(first, own, sharers=len(wanted))
        for name in SHARED:
            has, wants = getattr(left, name), own and getattr(own, name)
            gets = getattr(granted, name)
            assert (gets is None) == (has is None and wants is None)
            if gets is not None:
                assert gets <= min(each for each in (has, wants) if each is not None)
                assert gets >= getattr(least, name) - 1e-9
        assert (granted.depth or 0) < depth
        left = remaining_beside(left, *child(number, granted))
    for name in SHARED:
        assert getattr(left, name) is None or getattr(left, name) >= 0


def test_stored_spend_omits_zeros_and_is_read_back() -> None:
    spend = Spend(tokens=5, llm_calls=2, seconds=0.5)

    assert spend.to_json() == {"tokens": 5, "llm_calls": 2, "seconds": 0.5}
    assert Spend.from_json({**spend.to_json(), "from a newer release": 1}) == spend
    assert Spend(cost=0.5).including(Spend()) == Spend(cost=0.5)
    assert Spend().including(Spend(cost=0.5, seconds=3)) == Spend(cost=0.5)
