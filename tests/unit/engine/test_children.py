"""Agents call agents: each call is a run of its own, begun once, paid for once."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from lib.algorithms import React
from lib.engine import (
    Agent,
    Budget,
    ChildHandler,
    Engine,
    LLMHandler,
    Result,
    ToolHandler,
    UnknownAlgorithm,
)
from lib.engine.check import request_check
from lib.events import Event, EventStore, MemoryEventStore, RunInfo, RunQuery
from lib.events import kinds as k
from lib.events.verify import verify_store
from lib.llm import FunctionClient, Message, Reply, Text, ToolCall, ToolResult, Usage
from lib.resilience import RetryPolicy
from lib.testing.agents import kinds
from lib.testing.aio import run
from lib.tools import Tool, tool

BOSS, HELPER = React("boss", system="boss"), React("helper", system="helper", tools=["look"])
AGENT = Agent("helper", "Helps.", "helper")
USAGE = Usage(input_tokens=10, output_tokens=5, cost=0.25)

Think = Callable[[Sequence[Message]], Any]


def results(messages: Sequence[Message]) -> list[ToolResult]:
    return [part for m in messages for part in m.parts if isinstance(part, ToolResult)]


def delegate(*tasks: str, name: str = "helper") -> Reply:
    calls = [ToolCall(f"c{number}", name, {"task": task}) for number, task in enumerate(tasks)]
    return Reply(tuple(calls), USAGE, "tool_calls")


def say(text: str) -> Reply:
    return Reply((Text(text),), USAGE)


def boss_of(*tasks: str) -> Think:
    """Return a boss that hands out the tasks, and says what has come of them."""

    def think(messages: Sequence[Message]) -> Reply:
        told = results(messages)
        return say("|".join(result.content for result in told)) if told else delegate(*tasks)

    return think


def echo(messages: Sequence[Message]) -> Reply:
    return say(f"done: {messages[-1].text}")


def team(
    boss: Think,
    helper: Think = echo,
    *tools: Tool,
    store: EventStore | None = None,
    agents: Sequence[Agent] = (AGENT,),
    **options: Any,
) -> Engine:
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
    checks = [request_check([BOSS, HELPER])]
    assert (await verify_store(store, deep=True, checks=checks)).faults == []


async def children_of(store: EventStore, run_id: str) -> list[list[Event]]:
    return [await store.read(c.run_id) for c in await store.runs(RunQuery(parent_id=run_id))]


async def child_of(store: EventStore, run_id: str) -> RunInfo:
    """Wait until the run has started another one, and return that."""
    with store.wakeups.listen() as wake:
        while not (children := await store.runs(RunQuery(parent_id=run_id))):
            await wake.wait()
    return children[0]


def play(engine: Engine, **start: Any) -> tuple[Result, list[Event], list[list[Event]]]:
    async def main() -> tuple[Result, list[Event], list[list[Event]]]:
        async with engine:
            started = await engine.start("go", **start)
            result = await started.result()
            await verified(engine.store)
            log = await engine.store.read(started.id)
            return result, log, await children_of(engine.store, started.id)

    return run(main())


def test_a_model_calls_an_agent_like_a_tool_and_is_told_its_answer() -> None:
    result, log, (child,) = play(team(boss_of("count the sheep")), tenant="acme", user="ada")

    assert (result.outcome, result.output) == ("COMPLETED", "done: count the sheep")
    assert kinds(log) == [
        "run.started",
        *("llm.requested", "llm.completed", "child.requested", "child.completed"),
        *("llm.requested", "llm.completed", "run.completed"),
    ]
    asked, answered = log[3].data, log[4].data
    assert asked == {
        "key": "tool/1/c0",
        "call_id": "c0",
        "run_id": child[0].run_id,
        "name": "helper",
        "algorithm": "helper",
        "input": child[0].data["input"],
        "budget": {"depth": 7},
    }
    assert answered == {
        "key": "tool/1/c0",
        "call_id": "c0",
        "run_id": child[0].run_id,
        "outcome": "COMPLETED",
        "output": "done: count the sheep",
        "spend": {**answered["spend"], "tokens": 15, "cost": 0.25, "llm_calls": 1},
    }
    started = child[0]
    assert (started.tenant, started.user) == ("acme", "ada")
    assert started.data["parent"] == {"run_id": result.run_id, "key": "tool/1/c0"}
    assert started.data["root"] == result.run_id
    assert started.data["config"] == HELPER.config()


def test_what_a_child_spends_is_spent_by_its_parent_once() -> None:
    result, _, children = play(team(boss_of("a", "b")))

    assert len(children) == 2
    assert result.spend[:4] == (60, 1.0, 4, 2)


def test_a_child_that_was_started_already_is_not_started_again() -> None:
    gate = asyncio.Event()

    async def patient(messages: Sequence[Message]) -> Reply:
        await gate.wait()
        return echo(messages)

    async def main() -> tuple[Result, list[list[Event]]]:
        store = MemoryEventStore()
        async with team(boss_of("a"), patient, store=store) as engine:
            started = await engine.start("go")
            await child_of(store, started.id)
        gate.set()
        async with team(boss_of("a"), patient, store=store) as engine:
            result = await engine.run(started.id).result()
            await verified(store)
            return result, await children_of(store, started.id)

    result, children = run(main())

    assert result.output == "done: a"
    assert [kinds(child).count("run.started") for child in children] == [1]


def test_a_child_that_another_worker_drives_is_waited_for() -> None:
    store = MemoryEventStore()
    gate = asyncio.Event()

    async def patient(messages: Sequence[Message]) -> Reply:
        await gate.wait()
        return echo(messages)

    async def main() -> Result:
        async with team(boss_of("a"), patient, store=store) as first:
            started = await first.start("go")
            child = await child_of(store, started.id)
            assert child.root_id == started.id
            other = team(boss_of("a"), store=store)
            assert await other.resume(child.run_id) is False
            gate.set()
            return await started.result()

    assert run(main()).output == "done: a"


def test_an_engine_needs_the_algorithms_of_its_agents() -> None:
    with pytest.raises(UnknownAlgorithm, match="'nobody'"):
        team(echo, agents=[Agent("x", "Does x.", "nobody")])


def test_an_agent_and_a_tool_of_one_name_are_refused() -> None:
    @tool(name="helper")
    def helper() -> str:
        return "a tool"

    with pytest.raises(ValueError, match="two tools of one engine have the name 'helper'"):
        team(echo, echo, helper)
    with pytest.raises(ValueError, match="two agents have the name 'helper'"):
        ChildHandler([AGENT, AGENT])


def test_no_depth_is_handed_down_beyond_the_budget() -> None:
    result, log, children = play(team(boss_of("a")), budget=Budget(depth=0))

    assert children == []
    assert "no depth is left" in result.output
    assert [e.data.get("unstarted") for e in log if e.kind == k.TOOL_REQUESTED] == [True]
    assert result.spend.tool_calls == 0
