"""Tools that others define and may change while runs go on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from lib import Agent, Run, ToolError, tool
from lib.engine.handlers.tool import CHANGED
from lib.events import Event
from lib.events import kinds as k
from lib.llm import LLMClient, Reply, ScriptedClient, ToolCall
from lib.tools import OpenToolset, Tool, ToolContext

PAY = Reply((ToolCall("c1", "pay", {"amount": 7}),))


class Shop:
    """A toolset with one tool, whose definition a test changes."""

    def __init__(self, **options: Any) -> None:
        self.options: dict[str, Any] = {"description": "Pay.", "version": "1", **options}
        self.names = ["pay"]
        self.calls: list[Mapping[str, Any]] = []
        self.refreshed = self.closed = 0
        self.models: Sequence[LLMClient] = ()

    def open_tools(self, models: Sequence[LLMClient]) -> OpenToolset:
        self.models = models
        return OpenShop(self)


class OpenShop:
    def __init__(self, shop: Shop) -> None:
        self.shop = shop
        self.tools: Sequence[Tool] = []

    async def refresh(self) -> None:
        self.shop.refreshed += 1
        self.tools = [
            Tool(name=name, input_schema={"type": "object"}, call=self.call, **self.shop.options)
            for name in self.shop.names
        ]

    async def aclose(self) -> None:
        self.shop.closed += 1

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> str:
        self.shop.calls.append(arguments)
        return "paid"


def named(log: Sequence[Event], kind: str) -> list[Mapping[str, Any]]:
    return [event.data for event in log if event.kind == kind]


async def questions(run: Run[Any], count: int) -> list[Mapping[str, Any]]:
    """Wait for so many questions to a person and return them."""
    found: list[Mapping[str, Any]] = []
    async for event in run.events():
        found += [event.data] if event.kind == k.APPROVAL_REQUESTED else []
        if len(found) == count:
            break
    return found


async def test_a_model_gets_the_tools_of_a_toolset_as_they_are_now() -> None:
    shop, client = Shop(), ScriptedClient([PAY, "Paid."])
    agent = Agent(client, tools=[shop])
    async with agent.engine() as engine:
        result = await (await agent.start(engine, "Pay.")).result(timeout_s=120)

    assert result.output == "Paid."
    assert [spec.name for spec in client.calls[0].tools] == ["pay"]
    assert shop.calls == [{"amount": 7}]
    assert shop.models == [client]
    assert (shop.refreshed, shop.closed) == (2, 1)  # once for each model call


async def test_a_tool_of_a_taken_name_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    @tool
    def pay(amount: int) -> str:
        """Pay at home."""
        return "at home"

    shop = Shop()
    agent = Agent(ScriptedClient([PAY, "Paid."]), tools=[pay, shop, Shop()])
    async with agent.engine() as engine:
        run = await agent.start(engine, "Pay.")
        await run.result(timeout_s=120)
        log = await engine.store.read(run.id)

    assert [data["output"] for data in named(log, k.TOOL_COMPLETED)] == ["at home"]
    assert caplog.text.count("a second tool named 'pay' is left out") == 1


async def test_a_toolset_cannot_take_the_name_of_an_agent() -> None:
    buyer = Agent(ScriptedClient(["Bought."]), name="pay")
    shop = Shop()
    call = Reply((ToolCall("c1", "pay", {"task": "7"}),))
    agent = Agent(ScriptedClient([call, "Paid."]), name="a", tools=[buyer.as_tool("pays"), shop])
    async with agent.engine() as engine:
        result = await (await agent.start(engine, "Pay.")).result(timeout_s=120)

    assert result.output == "Paid."
    assert shop.calls == []


async def test_a_call_that_was_approved_under_another_definition_goes_back_to_the_person(
    tmp_path: Path,
) -> None:
    shop = Shop(approval=True)
    agent = Agent(ScriptedClient([PAY, "Paid."]), tools=[shop])
    async with agent.engine(tmp_path / "runs.db") as engine:
        run = await agent.start(engine, "Pay.")
        await questions(run, 1)
    shop.options |= {"description": "Pay twice.", "version": "2"}
    async with agent.engine(tmp_path / "runs.db") as engine:
        run = engine.run(run.id)
        (question,) = await questions(run, 1)
        await run.approve(question["key"])
        first, second = await questions(run, 2)

        assert (first["version"], second["version"]) == ("1", "2")
        assert second["reason"] == CHANGED
        assert shop.calls == []

        await run.approve(question["key"])
        result = await run.result(timeout_s=120)
        log = await engine.store.read(run.id)

    assert result.output == "Paid."
    assert [data["version"] for data in named(log, k.TOOL_REQUESTED)] == ["2"]
    assert len(shop.calls) == 1


async def test_an_approved_call_is_made_after_a_restart(tmp_path: Path) -> None:
    shop = Shop(approval=True)
    agent = Agent(ScriptedClient([PAY, "Paid."]), tools=[shop])
    async with agent.engine(tmp_path / "runs.db") as engine:
        run = await agent.start(engine, "Pay.")
        await questions(run, 1)
    async with agent.engine(tmp_path / "runs.db") as engine:
        run = engine.run(run.id)
        (question,) = await questions(run, 1)
        await run.approve(question["key"])

        assert (await run.result(timeout_s=120)).output == "Paid."
    assert len(shop.calls) == 1


async def test_a_call_that_cannot_tell_its_outcome_is_of_unknown_outcome() -> None:
    @tool(effects="once")
    def pay(amount: int) -> str:
        """Pay."""
        raise ToolError("unknown", "the line went dead")

    agent = Agent(ScriptedClient([PAY, "Perhaps."]), tools=[pay])
    async with agent.engine() as engine:
        run = await agent.start(engine, "Pay.")
        await run.result(timeout_s=120)
        (failed,) = named(await engine.store.read(run.id), k.TOOL_FAILED)

    assert (failed["reason"], failed["code"]) == ("unknown", "unknown")
