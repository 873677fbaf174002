"""Agents call agents: each call is a run of its own, begun once, paid for once."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from fakes.team import (
    AGENT,
    HELPER,
    boss_of,
    call,
    child_of,
    children_of,
    echo,
    say,
    task,
    team,
    tool_results,
    until,
    verified,
)
from lib.engine import AgentTool, Budget, ChildHandler, Engine, Result, UnknownAlgorithm
from lib.errors import LLMError, RunErased
from lib.events import Event, MemoryEventStore
from lib.events import kinds as k
from lib.llm import Message, Reply, ToolCall
from lib.observe import spans_from_events, spend_of
from lib.testing.agents import kinds
from lib.tools import tool


async def play(engine: Engine, **start: Any) -> tuple[Result, list[Event], list[list[Event]]]:
    async def main() -> tuple[Result, list[Event], list[list[Event]]]:
        async with engine:
            started = await engine.start("go", **start)
            result = await started.result()
            await verified(engine.store)
            log = await engine.store.read(started.id)
            return result, log, await children_of(engine.store, started.id)

    return await main()


def outcomes(log: list[Event]) -> list[str]:
    return [event.data["outcome"] for event in log if event.kind == k.CHILD_COMPLETED]


async def test_a_model_calls_an_agent_like_a_tool_and_reads_its_answer() -> None:
    result, log, (child,) = await play(team(boss_of(task(0, "count"))), tenant="acme", user="ada")

    assert (result.outcome, result.output) == ("COMPLETED", "done: count")
    assert kinds(log) == [
        "run.started",
        *("llm.requested", "llm.completed", "child.requested", "child.completed"),
        *("llm.requested", "llm.completed", "run.completed"),
    ]
    requested, answered = log[3].data, log[4].data
    assert requested == {
        "key": "tool/1/c0",
        "call_id": "c0",
        "run_id": child[0].run_id,
        "name": "helper",
        "algorithm": "helper",
        "input": child[0].data["input"],
        "budget": {"depth": 7},
        "epoch": 1,
    }
    assert answered == {
        "key": "tool/1/c0",
        "call_id": "c0",
        "run_id": child[0].run_id,
        "outcome": "COMPLETED",
        "output": "done: count",
        "spend": {**answered["spend"], "tokens": 15, "cost": 0.25, "llm_calls": 1},
    }
    started = child[0]
    assert (started.tenant, started.user) == ("acme", "ada")
    assert started.data["parent"] == {"run_id": result.run_id, "key": "tool/1/c0"}
    assert started.data["root"] == result.run_id
    assert started.data["config"] == HELPER.config()


async def test_what_a_child_spends_is_spent_by_its_parent_once() -> None:
    result, log, children = await play(team(boss_of(task(0, "a"), task(1, "b"))))

    assert len(children) == 2
    assert result.spend[:4] == (60, 1.0, 4, 2)
    total = spend_of([*log, *children[0], *children[1]])
    assert (total.total.tokens, total.total.cost) == (60, 1)
    assert (total.llm_calls, total.tool_calls) == (4, 2)


async def test_the_span_of_a_child_is_below_the_call_that_requested_it() -> None:
    _, log, children = await play(team(boss_of(task(0, "a"), task(1, "b"))))

    boss, *spans = spans_from_events(log, capture_content=True)
    calls = {span.attributes["lib.key"]: span for span in spans if span.kind == "tool"}
    assert [span.name for span in calls.values()] == ["execute_tool helper"] * 2
    assert [span.output for span in calls.values()] == ["done: a", "done: b"]
    for child in children:
        own = spans_from_events(child, parent_events=log)[0]
        assert own.parent_id == calls[child[0].data["parent"]["key"]].span_id
        assert own.trace_id == boss.trace_id
    assert "done: a" in str(spans[-1].input)


async def test_a_child_that_was_started_already_is_not_started_again() -> None:
    gate = asyncio.Event()
    store = MemoryEventStore()

    async def patient(messages: Sequence[Message]) -> Reply:
        await gate.wait()
        return echo(messages)

    async def main() -> tuple[Result, list[list[Event]]]:
        async with team(boss_of(task(0, "a")), patient, store=store) as engine:
            started = await engine.start("go")
            child = await child_of(store, started.id)
            await until(store, child.run_id, k.LLM_REQUESTED)
        async with team(boss_of(task(0, "a")), patient, store=store) as engine:
            assert kinds(await store.read(child.run_id))[-1] == "llm.requested"  # not cancelled
            gate.set()
            result = await engine.run(started.id).result()
            await verified(store)
            return result, await children_of(store, started.id)

    result, children = await main()

    assert result.output == "done: a"
    assert [kinds(child).count("run.started") for child in children] == [1]
    assert "run.resumed" in kinds(children[0])


async def test_a_child_that_another_worker_drives_is_waited_for() -> None:
    store = MemoryEventStore()
    gate = asyncio.Event()

    async def patient(messages: Sequence[Message]) -> Reply:
        await gate.wait()
        return echo(messages)

    async def main() -> Result:
        never = AgentTool("helper", "Helps.", "helper", approval=True)
        engine = team(boss_of(task(0, "a")), patient, store=store, agents=[never])
        other = team(boss_of(), patient, store=store)
        async with engine:
            started = await engine.start("go")
            await engine.wait_while_driven(started.id)
            (waiting,) = await started.pending()
            real, engine.start_driving = engine.start_driving, _driven_by(other)
            await started.approve(waiting.key)
            child = await child_of(store, started.id)
            await until(store, child.run_id, k.LLM_REQUESTED)
            assert await engine.wait_while_driven(child.run_id) is None
            gate.set()
            engine.start_driving = real
            return await started.result()

    assert (await main()).output == "done: a"


def _driven_by(other: Engine) -> Any:
    async def start_driving(run_id: str, log: Sequence[Event]) -> bool:
        return await other.start_driving(run_id, log)

    return start_driving


def test_an_engine_needs_the_algorithms_of_its_agents() -> None:
    with pytest.raises(UnknownAlgorithm, match="'missing'"):
        team(echo, agents=[AgentTool("x", "Does x.", "missing")])


def test_an_agent_and_a_tool_of_one_name_are_refused() -> None:
    @tool(name="helper")
    def helper() -> str:
        return "a tool"

    with pytest.raises(ValueError, match="two tools of one engine have the name 'helper'"):
        team(echo, echo, helper)
    with pytest.raises(ValueError, match="two agents have the name 'helper'"):
        ChildHandler([AGENT, AGENT])


async def test_a_call_at_the_depth_limit_is_refused_and_the_model_reads_why() -> None:
    result, log, children = await play(team(boss_of(task(0, "a"))), budget=Budget(depth=0))

    assert children == []
    assert "no depth is left" in result.output
    assert [e.data.get("unstarted") for e in log if e.kind == k.TOOL_REQUESTED] == [True]
    assert result.spend.tool_calls == 0


async def test_agents_that_call_each_other_end_at_the_last_level() -> None:
    def again(messages: Sequence[Message]) -> Reply:
        results = tool_results(messages)
        other = "helper" if messages[0].text == "boss" else "boss"
        return say(results[0].content) if results else call(task(0, "again", name=other))

    async with team(again, again, agents=(AGENT, AgentTool("boss", "Leads.", "boss"))) as engine:
        result = await (await engine.start("go", budget=Budget(depth=3))).result()
        await verified(engine.store)
        runs = len(await engine.store.runs())

    assert "no depth is left" in result.output
    assert runs == 4
    assert result.spend.llm_calls == 8


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (ToolCall("c0", "helper", {"tusk": "a"}), "lacks the property 'task'"),
        (ToolCall("c0", "helper", {}, invalid="{"), "the arguments are no JSON object"),
    ],
)
async def test_arguments_that_do_not_fit_start_nothing(wrong: ToolCall, message: str) -> None:
    result, log, children = await play(team(boss_of(wrong)))

    assert children == []
    failed = next(event.data for event in log if event.kind == k.TOOL_FAILED)
    assert (failed["reason"], failed["code"]) == ("error", "invalid_arguments")
    assert message in result.output, result.output


async def test_arguments_of_a_custom_schema_reach_the_child_as_json() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    counter = AgentTool("helper", "Counts.", "helper", input_schema=schema)

    result, _, _ = await play(team(boss_of(ToolCall("c0", "helper", {"a": 1})), agents=[counter]))

    assert result.output == 'done: {"a":1}'


async def test_an_agent_that_is_not_on_offer_cannot_be_called() -> None:
    async def main() -> Result:
        async with team(boss_of(), boss_of(task(0, "a"))) as engine:
            return await (await engine.start("go", algorithm="helper")).result()

    def alone(messages: Sequence[Message]) -> Reply:
        return boss_of(task(0, "a"))(messages)

    from lib.algorithms import React
    from lib.engine import LLMHandler
    from lib.llm import FunctionClient

    async def limited() -> Result:
        handlers = [LLMHandler(FunctionClient(alone)), ChildHandler([AGENT])]
        algorithms = [React("boss", tools=[]), HELPER]
        async with Engine(MemoryEventStore(), handlers, algorithms=algorithms) as engine:
            return await (await engine.start("go")).result()

    assert (await main()).outcome == "COMPLETED"
    assert "no tool is named 'helper'" in (await limited()).output


@pytest.mark.parametrize(
    ("helper", "error"),
    [
        (LLMError("no more", status=500), "the agent ended as FAILED (llm: no more)"),
        (Reply(say("half").parts, stop="length"), "(length); what there is of its answer:\nhalf"),
    ],
)
async def test_a_child_that_does_not_complete_is_an_error_that_the_model_can_read(
    helper: Exception | Reply, error: str
) -> None:
    def think(_messages: Sequence[Message]) -> Reply:
        if isinstance(helper, Exception):
            raise helper
        return helper

    result, log, _ = await play(team(boss_of(task(0, "a")), think))

    assert result.outcome == "COMPLETED"
    assert error in result.output, result.output
    assert outcomes(log) != ["COMPLETED"]


async def test_a_call_of_an_agent_can_require_approval() -> None:
    careful = AgentTool("helper", "Helps.", "helper", approval=True)

    async def main(*, approve: bool) -> tuple[str, int]:
        async with team(boss_of(task(0, "a")), agents=[careful]) as engine:
            started = await engine.start("go")
            await engine.wait_while_driven(started.id)
            (waiting,) = await started.pending()
            assert (waiting.name, waiting.arguments) == ("helper", {"task": "a"})
            await (started.approve if approve else started.deny)(waiting.key)
            result = await started.result()
            assert await started.pending() == []
            await verified(engine.store)
            return result.output, len(await engine.store.runs())

    assert (await main(approve=True)) == ("done: a", 2)
    assert (await main(approve=False)) == ("not called: a person denied it", 1)


async def test_an_erased_child_is_a_failure_and_its_parent_goes_on() -> None:
    store = MemoryEventStore()

    async with team(boss_of(task(0, "a")), _never, store=store) as engine:
        started = await engine.start("go")
        child = await child_of(store, started.id)
        await until(store, child.run_id, k.LLM_REQUESTED)
    await store.setup()
    await store.erase(child.run_id)
    async with team(boss_of(task(0, "a")), echo, store=store) as engine:
        result = await engine.run(started.id).result()
        await verified(store)
        log = await store.read(started.id)

    assert "FAILED (erased" in result.output
    assert outcomes(log) == ["FAILED"]
    with pytest.raises(RunErased):
        raise RunErased("x")


async def _never(_messages: Sequence[Message]) -> Reply:
    await asyncio.Event().wait()
    return say("never")
