"""An agent is not offered to itself unless it lists its own name."""

from collections.abc import Sequence
from typing import Any

import pytest

from fakes.team import boss_of, call, say, task, tool_results
from lib.algorithms import React
from lib.engine import AgentTool, Budget, ChildHandler, Engine, LLMHandler
from lib.events import MemoryEventStore, RunQuery
from lib.events import kinds as k
from lib.llm import FunctionClient, Message, ToolSpec

HELPER = AgentTool("helper", "Helps.", "helper")


class Offered(FunctionClient):
    """Keeps the tools that each model was offered."""

    def __init__(self, answer: Any) -> None:
        super().__init__(answer)
        self.names: list[list[str]] = []

    async def complete(
        self, messages: Sequence[Message], *, tools: Sequence[ToolSpec] = (), **options: Any
    ) -> Any:
        self.names.append([spec.name for spec in tools])
        return await super().complete(messages, tools=tools, **options)


def engine_of(client: FunctionClient, *algorithms: React, drive: bool = True) -> Engine:
    handlers = [LLMHandler(client), ChildHandler([HELPER, AgentTool("other", "Helps.", "boss")])]
    store = MemoryEventStore()
    return Engine(store, handlers, algorithms=algorithms, poll_s=0.01, drive=drive)


async def test_an_agent_without_listed_tools_is_offered_all_agents_except_itself() -> None:
    def think(messages: Sequence[Message]) -> Any:
        if messages[0].text == "boss":
            return boss_of(task(0, "go"))(messages)
        if messages[-1].role == "user":
            return call(task(0, "again"))  # it was not offered itself, and makes the call up
        return say(tool_results(messages)[0].content)

    client = Offered(think)
    boss, helper = React("boss", system="boss"), React("helper", system="helper")
    async with engine_of(client, boss, helper) as engine:
        result = await (await engine.start("go")).result()
        runs = await engine.store.runs(RunQuery())
        log = await engine.store.read(runs[1].run_id)
    assert client.names == [["helper"], ["other"], ["other"], ["helper"]]
    assert len(runs) == 2
    assert "no tool is named 'helper'" in result.output
    assert [e.kind for e in log if e.kind in (k.CHILD_REQUESTED, k.TOOL_FAILED)] == [k.TOOL_FAILED]
    digests = {e.data["tools_digest"] for e in log if e.kind == k.LLM_REQUESTED}
    assert len(digests) == 1


async def test_an_agent_that_names_itself_calls_itself_until_no_depth_is_left() -> None:
    def think(messages: Sequence[Message]) -> Any:
        return call(task(0, "deeper")) if messages[-1].role == "user" else say("done")

    client = Offered(think)
    agents = [React("helper", tools=["helper"]), React("boss")]
    async with engine_of(client, *agents) as engine:
        result = await (await engine.start("go", budget=Budget(depth=2))).result()
        assert result.output == "done"
        assert len(await engine.store.runs(RunQuery())) == 3
    assert set(map(tuple, client.names)) == {("helper",)}


def test_an_agent_answers_and_ends_so_it_is_no_session() -> None:
    with pytest.raises(ValueError, match="would be a session"):
        ChildHandler([AgentTool("helper", "d", "session")])
