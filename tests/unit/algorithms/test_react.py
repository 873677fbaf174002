"""The fold of the basic agent, where the engine's own runs do not lead."""

from typing import Any

import pytest

from lib.algorithms import React
from lib.engine import Finish
from lib.engine.core.state import fold
from lib.events import Event
from lib.events import kinds as k
from lib.testing.clock import ManualClock

AT = ManualClock().now()


def log(*events: tuple[str, dict[str, Any]]) -> list[Event]:
    start = (k.RUN_STARTED, {"algorithm": "react", "input": [{"role": "user", "content": "hi"}]})
    return [Event("r", seq, kind, data, AT) for seq, (kind, data) in enumerate([start, *events], 1)]


def test_a_description_holds_only_values_that_differ_from_the_defaults() -> None:
    assert React().config() == {"max_steps": 50}
    assert React(system="s", tools=[], settings={"top_p": 1}, max_steps=3).config() == {
        "max_steps": 3,
        "system": "s",
        "settings": {"top_p": 1},
        "tools": [],
    }


def test_tools_other_than_a_list_of_names_are_refused() -> None:
    invalid: list[Any] = ["refund", [React()], React()]

    for tools in invalid:
        with pytest.raises(TypeError, match="are a list of names"):
            React(tools=tools)


def test_a_reply_that_a_guard_blocked_ends_the_run_as_blocked() -> None:
    error = {"type": "Blocked", "message": "not that"}
    failed = {"key": "llm/1", "reason": "blocked", "error": error}
    state = fold(React(), log((k.LLM_REQUESTED, {"key": "llm/1"}), (k.LLM_FAILED, failed)))

    assert React().decide(state.loop) == Finish(outcome="BLOCKED", reason="guard", error=error)


def test_a_result_for_no_call_changes_nothing() -> None:
    stray = {"key": "tool/9/x", "call_id": "x", "output": "?"}

    assert fold(React(), log((k.TOOL_COMPLETED, stray))).loop == fold(React(), log()).loop
