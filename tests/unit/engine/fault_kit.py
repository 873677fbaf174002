"""Shared by tests of faults: an agent that never decides, one that asks another, and the end."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from lib.algorithms import React
from lib.engine import ChildHandler, Engine, LLMHandler, Result, ToolHandler
from lib.engine.core.state import MAX_RESUMES
from lib.engine.handlers.agent_tool import AgentTool
from lib.events import EventStore, MemoryEventStore
from lib.llm import FunctionClient, Message, Reply, ToolCall
from lib.tools import Tool


class Undecided(React):
    """Fails to decide, always."""

    def decide(self, state: Any) -> Any:
        raise ZeroDivisionError("a bug in decide")


def asks_helper(messages: Sequence[Message]) -> Reply | str:
    if len(messages) == 1:
        return Reply((ToolCall("c1", "helper", {"task": "x"}),))
    return "done without"


def with_helper(
    child: React,
    *tools: Tool,
    store: EventStore | None = None,
    answer: Any = asks_helper,
    **more: Any,
) -> Engine:
    """Return an engine whose first agent asks the other, a child, for help."""
    handlers = [
        LLMHandler(FunctionClient(answer)),
        ToolHandler(tools),
        ChildHandler([AgentTool("helper", "d", "child")]),
    ]
    agents = [React(tools=["helper"]), child]
    return Engine(store or MemoryEventStore(), handlers, algorithms=agents, poll_s=0.01, **more)


async def until_done(
    result: Callable[[], Awaitable[Result]], *, fault: type[Exception] = ZeroDivisionError
) -> Result:
    """Ask for a result until there is one, whatever failed before."""
    for _ in range(3 * MAX_RESUMES):
        try:
            return await result()
        except fault:
            pass
    raise AssertionError("it does not end")
