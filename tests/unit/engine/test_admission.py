"""Tests which handler admits a request, and the result of a refusal."""

from datetime import UTC, datetime
from typing import Any

import pytest

from fakes.team import AGENT
from lib.algorithms import React
from lib.engine import (
    Admission,
    Budget,
    ChildHandler,
    LLMHandler,
    LLMRequest,
    MissingHandler,
    Request,
    ToolHandler,
    ToolRequest,
)
from lib.engine.core.conversation import History
from lib.engine.core.settle import PendingEvent
from lib.engine.core.state import RunState, begin
from lib.engine.handlers.registry import HandlerRegistry
from lib.errors import ToolError
from lib.events import Event
from lib.events import kinds as k
from lib.llm import ScriptedClient
from lib.tools import tool

ASK_MODEL = LLMRequest(key="llm/1", messages=History())


@tool
def look() -> str:
    return "seen"


def state(budget: Budget | None = None) -> RunState[Any]:
    data: dict[str, Any] = {"algorithm": "react", "input": []}
    if budget is not None:
        data["budget"] = budget.to_json()
    return begin(React(), Event("run", 1, k.RUN_STARTED, data, datetime(2026, 1, 1, tzinfo=UTC)))


def call(number: int, name: str, **more: Any) -> ToolRequest:
    arguments = {"task": "a"} if name == "helper" else {}
    return ToolRequest(
        key=f"tool/1/{number}", call_id=f"{number}", name=name, arguments=arguments, **more
    )


def admitted(*requests: Request, budget: Budget | None = None) -> list[PendingEvent]:
    handlers = HandlerRegistry([ChildHandler([AGENT]), ToolHandler([look])])
    return handlers.admit(requests, state(budget))


def test_a_call_goes_to_its_handler_and_by_default_to_the_tools() -> None:
    drafts = admitted(call(1, "look"), call(2, "missing"), call(3, "helper"))

    assert [draft.kind for draft in drafts] == [k.TOOL_REQUESTED] * 2 + [k.CHILD_REQUESTED]
    (unknown,) = admitted(call(1, "helper", offered=["look"]))
    assert unknown.kind == k.TOOL_REQUESTED


def test_grants_share_the_budget_that_the_other_calls_leave() -> None:
    calls = [call(1, "helper"), call(2, "look"), call(3, "helper")]

    drafts = admitted(*calls, budget=Budget(tokens=9, tool_calls=8))

    assert [draft.data["call_id"] for draft in drafts] == ["2", "1", "3"]
    assert [draft.data["budget"] for draft in drafts[1:]] == [
        {"tokens": 4, "tool_calls": 2, "depth": 7},
        {"tokens": 5, "tool_calls": 3, "depth": 7},
    ]


def test_a_request_without_a_handler_is_an_error() -> None:
    with pytest.raises(MissingHandler, match=r"LLMRequest, .* such as LLMHandler"):
        admitted(ASK_MODEL)


def test_only_a_tool_request_can_be_refused() -> None:
    class Refusing(LLMHandler):
        def admit(self, request: Request, admission: Admission) -> PendingEvent:
            raise ToolError("denied", "no")

    with pytest.raises(ToolError, match="no"):
        HandlerRegistry([Refusing(ScriptedClient([]))]).admit([ASK_MODEL], state())
    requested, failed = admitted(call(1, "helper", invalid="{"))
    assert (requested.kind, requested.data["unstarted"]) == (k.TOOL_REQUESTED, True)
    assert (failed.kind, failed.data["code"]) == (k.TOOL_FAILED, "invalid_arguments")
