"""A boss and a helper in one line: for tests of agents that call agents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lib.algorithms import React
from lib.engine import AgentTool, ChildHandler, Engine, LLMHandler, ToolHandler
from lib.engine.api.check import request_check
from lib.events import Event, EventStore, MemoryEventStore, RunInfo, RunQuery
from lib.events.verify import verify_store
from lib.llm import FunctionClient, Message, Reply, Text, ToolCall, ToolResult, Usage
from lib.resilience import RetryPolicy
from lib.tools import Tool

BOSS, HELPER = React("boss", system="boss"), React("helper", system="helper")
AGENT = AgentTool("helper", "Helps.", "helper")
USAGE = Usage(input_tokens=10, output_tokens=5, cost=0.25)
"""What each call of a model costs here."""

Think = Callable[[Sequence[Message]], Any]


def tool_results(messages: Sequence[Message]) -> list[ToolResult]:
    """Return the results of all calls in a conversation."""
    return [part for m in messages for part in m.parts if isinstance(part, ToolResult)]


def say(text: str) -> Reply:
    """Return an answer."""
    return Reply((Text(text),), USAGE)


def call(*calls: ToolCall) -> Reply:
    """Return a reply that makes these calls."""
    return Reply(calls, USAGE, "tool_calls")


def task(number: int, text: str, *, name: str = "helper") -> ToolCall:
    """Return a call of an agent."""
    return ToolCall(f"c{number}", name, {"task": text})


def boss_of(*calls: ToolCall) -> Think:
    """Return a model that makes the calls, and then answers with their results."""

    def think(messages: Sequence[Message]) -> Reply:
        results = tool_results(messages)
        return say("|".join(result.content for result in results)) if results else call(*calls)

    return think


def echo(messages: Sequence[Message]) -> Reply:
    """Answer with the last message."""
    return say(f"done: {messages[-1].text}")


def team(
    boss: Think,
    helper: Think = echo,
    *tools: Tool,
    store: EventStore | None = None,
    agents: Sequence[AgentTool] = (AGENT,),
    **options: Any,
) -> Engine:
    """Return an engine whose default algorithm is a boss that may call a helper.

    Args:
        boss: the boss's model.
        helper: the helper's.
        tools: what both may call.
        store: the logs; a new `MemoryEventStore` by default.
        agents: what both may call, too.
        options: passed to `Engine`.
    """

    def think(messages: Sequence[Message]) -> Any:
        return (boss if messages[0].text == "boss" else helper)(messages)

    handlers = [
        LLMHandler(FunctionClient(think), retries=RetryPolicy(attempts=1)),
        ChildHandler(agents),
        ToolHandler(tools),
    ]
    settings: dict[str, Any] = {"poll_s": 0.01, "grace_s": 0.5, **options}
    return Engine(store or MemoryEventStore(), handlers, algorithms=[BOSS, HELPER], **settings)


async def verified(store: EventStore) -> None:
    """Hold every log against every rule, and every request against the decision."""
    checks = [request_check([BOSS, HELPER])]
    faults = (await verify_store(store, deep=True, checks=checks)).faults
    assert faults == [], faults


async def children_of(store: EventStore, run_id: str) -> list[list[Event]]:
    """Return the logs of the runs that this one has started."""
    return [await store.read(c.run_id) for c in await store.runs(RunQuery(parent_id=run_id))]


async def child_of(store: EventStore, run_id: str) -> RunInfo:
    """Wait until the run has started another one, and return that."""
    with store.wakeups.listen() as wake:
        while not (children := await store.runs(RunQuery(parent_id=run_id))):
            await wake.wait()
    return children[0]


async def until(store: EventStore, run_id: str, kind: str) -> Event:
    """Wait until the run's log has an event of this kind, and return that."""
    with store.wakeups.listen(run_id) as wake:
        while True:
            for event in await store.read(run_id):
                if event.kind == kind:
                    return event
            await wake.wait()
