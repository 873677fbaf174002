"""Tests decisions that the engine's own runs do not reach."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from lib.engine import Finish, LLMRequest, Request, ToolRequest, Wait
from lib.engine.core.conversation import History
from lib.engine.core.decide import WAIT, next_step
from lib.engine.core.settle import fail_pending
from lib.engine.core.state import MAX_RESUMES, evolve, fold
from lib.events import Event
from lib.events import kinds as k
from lib.llm import Message
from lib.testing.clock import ManualClock

AT = ManualClock().now()


@dataclass
class Says:
    """An algorithm that always decides the same."""

    decision: Sequence[Request] | Finish | Wait
    name: str = "says"

    def config(self) -> dict[str, Any]:
        return {}

    def initial(self, started: Event, history: Sequence[Message] = ()) -> int:
        return 0

    def evolve(self, state: int, event: Event) -> int:
        return state + 1

    def decide(self, state: int) -> Sequence[Request] | Finish | Wait:
        return self.decision


def log(*events: tuple[str, dict[str, Any]], **started: Any) -> list[Event]:
    data: dict[str, Any] = {"algorithm": "says", "input": [], **started}
    first = Event("r", 1, k.RUN_STARTED, data, AT)
    return [first, *[Event("r", n, kind, more, AT) for n, (kind, more) in enumerate(events, 2)]]


ASK = LLMRequest(key="llm/1", messages=History())
CALL = ToolRequest(key="tool/1/a", call_id="a", name="act", arguments={})
DONE = Finish(outcome="COMPLETED")


def test_an_end_waits_for_open_calls() -> None:
    says = Says(DONE)
    state = fold(says, log((k.LLM_REQUESTED, {"key": "llm/1"})))

    assert next_step(says, state) == WAIT
    answered = evolve(says, state, Event("r", 3, k.LLM_FAILED, {"key": "llm/1"}, AT))
    assert next_step(says, answered).finish == DONE


def test_nothing_comes_after_the_end() -> None:
    says = Says([ASK])
    state = fold(says, log((k.RUN_COMPLETED, {"outcome": "COMPLETED"})))

    assert next_step(says, state) == WAIT


def test_a_run_that_exhausted_its_budget_waits_for_open_calls() -> None:
    says = Says([CALL])
    opened = log((k.LLM_REQUESTED, {"key": "llm/1"}), budget={"tool_calls": 0})

    assert next_step(says, fold(says, opened)) == WAIT


def test_a_model_call_above_the_budget_leaves_no_event() -> None:
    says = Says([ASK])

    step = next_step(says, fold(says, log(budget={"llm_calls": 0})))

    assert (step.requests, step.settled) == ((), [])
    assert step.finish == Finish(outcome="LIMITED", reason="llm_calls")


def test_a_poisoned_run_ends_with_every_call_settled() -> None:
    says = Says([CALL])
    resumed = [(k.RUN_RESUMED, {"epoch": n}) for n in range(MAX_RESUMES)]
    state = fold(says, log((k.LLM_REQUESTED, {"key": "llm/1"}), *resumed))

    step = next_step(says, state)

    assert [(d.kind, d.data["key"]) for d in step.settled] == [
        (k.LLM_FAILED, "llm/1"),
        (k.TOOL_REQUESTED, "tool/1/a"),
        (k.TOOL_FAILED, "tool/1/a"),
    ]
    assert step.finish is not None
    assert (step.finish.outcome, step.finish.reason) == ("FAILED", "poison")


def test_a_cancelled_model_call_fails_under_its_key() -> None:
    request = Event("r", 2, k.LLM_REQUESTED, {"key": "llm/1"}, AT)

    assert fail_pending(request, "cancelled", "stopped").data == {
        "key": "llm/1",
        "reason": "cancelled",
        "error": {"type": "cancelled", "message": "stopped"},
    }


def test_the_first_cancellation_wins() -> None:
    says = Says(Wait())
    cancels = [(k.CANCEL_REQUESTED, {"reason": "one"}), (k.CANCEL_REQUESTED, {"reason": "two"})]

    assert fold(says, log(*cancels)).cancel_reason == "one"


def test_an_empty_log_is_not_a_run() -> None:
    with pytest.raises(ValueError, match="at least one event"):
        fold(Says(DONE), [])
