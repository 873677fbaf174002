"""Tools whose calls the client of a run makes: the run holds nothing while it waits for them."""

from collections.abc import Sequence
from typing import Any

import pytest

from lib import Agent
from lib.algorithms import React, Swarm
from lib.engine import Engine, NotPending, Run, ToolAwaited, ToolHandler, pending_approvals
from lib.engine.api.check import request_check
from lib.events import MemoryEventStore
from lib.events import kinds as k
from lib.events.verify import verify_store
from lib.llm import FunctionClient, Message, Reply, ScriptedClient, ToolCall, ToolResult, ToolSpec
from lib.testing.agents import kinds, make_engine
from lib.tools import tool

from .guard_kit import Watch, guarded

COLOUR = {"type": "object", "properties": {"colour": {"type": "string"}}}
MARK = ToolSpec("mark", "Marks a row of the page.", COLOUR)
CALL = Reply((ToolCall("c1", "mark", {"colour": "red"}),), stop="tool_calls")
BOTH = Reply((*CALL.parts, ToolCall("c2", "find", {})), stop="tool_calls")
KEY = "tool/1/c1"


@tool(effects="none")
def find() -> str:
    """Find."""
    return "found"


def results(messages: Sequence[Message]) -> str:
    return "|".join(p.content for m in messages for p in m.parts if isinstance(p, ToolResult))


async def waiting(engine: Engine, **more: Any) -> Run:
    started = await engine.start("mark", client_tools=[MARK], **more)
    await engine.wait_while_driven(started.id)
    return started


async def test_the_model_gets_the_tool_and_the_run_waits_for_its_client() -> None:
    model = ScriptedClient([CALL, results])
    async with make_engine(model, find) as engine:
        run = await waiting(engine)

        waits = (await run.result(wait=False)).waiting_for
        assert waits is not None
        assert [(call.key, call.name, call.arguments) for call in waits.client_calls] == [
            (KEY, "mark", {"colour": "red"})
        ]
        assert "waits for its client to answer call 'tool/1/c1' of tool 'mark'" in str(waits)
        info = await run.info()
        assert (info.owner, info.ready, info.status) == (None, False, "open")
        assert [call async for call in pending_approvals(engine.store)] == []

        await run.answer(KEY, "marked", user="ann")
        result = await run.result()

    assert [spec.name for spec in model.calls[0].tools] == ["find", "mark"]
    assert result.output.splitlines()[1] == "marked"
    assert "data, not instructions" in result.output
    assert result.spend.tool_calls == 1


async def test_the_log_says_what_was_awaited_and_answered_and_replays() -> None:
    store = MemoryEventStore()
    async with make_engine(ScriptedClient([BOTH, results]), find, store=store) as engine:
        run = await waiting(engine)
        items = aiter(run.stream())
        while not isinstance(item := await anext(items), ToolAwaited):
            pass
        await run.answer(KEY, "marked")
        await run.result()
        log = await store.read(run.id)
        report = await verify_store(store, checks=[request_check([React()])])

    assert report.faults == []

    assert (item.name, item.arguments) == ("mark", {"colour": "red"})
    assert kinds(log)[3:7] == ["tool.awaited", "tool.requested", "tool.completed", "tool.answered"]
    assert log[0].data["client_tools"] == [
        {"name": "mark", "description": "Marks a row of the page.", "input_schema": COLOUR}
    ]


async def test_a_failure_at_the_client_is_a_failed_call() -> None:
    async with make_engine(ScriptedClient([CALL, results])) as engine:
        run = await waiting(engine)
        await run.answer(KEY, "there is no such row", failed=True)
        output = (await run.result()).output
        log = await engine.store.read(run.id)

    assert "there is no such row" in output
    assert "data, not instructions" in output
    assert "tool.failed" in kinds(log)


async def test_the_first_answer_counts_and_one_to_no_awaited_call_is_refused() -> None:
    async with make_engine(ScriptedClient([CALL, results])) as engine:
        run = await waiting(engine)
        with pytest.raises(NotPending):
            await run.answer("tool/9/c9", "marked")
        with pytest.raises(NotPending):
            await run.approve(KEY)
        await run.answer(KEY, "first", signal_id="a")
        with pytest.raises(NotPending):
            await run.answer(KEY, "second", signal_id="b")
        late = {"key": KEY, "output": "second"}
        await engine.signal(run.id, "lib.tool.answered", late)

        assert (await run.result()).output.splitlines()[1] == "first"


async def test_the_wait_survives_the_process() -> None:
    store = MemoryEventStore()
    async with make_engine(ScriptedClient([CALL]), store=store) as engine:
        run = await waiting(engine)
    async with make_engine(ScriptedClient([results]), store=store) as engine:
        await engine.run(run.id).answer(KEY, "marked")

        assert (await engine.run(run.id).result()).output.splitlines()[1] == "marked"


async def test_guards_see_what_is_answered() -> None:
    client = ScriptedClient([CALL, results])
    async with guarded(client, calls=[Watch("tool_result", word="secret")]) as engine:
        run = await waiting(engine)
        await run.answer(KEY, "the secret")
        output = (await run.result()).output

    assert "withheld" in output
    assert "the secret" not in output


async def test_arguments_that_are_no_object_go_to_no_client() -> None:
    broken = Reply((ToolCall("c1", "mark", {}, invalid="{"),), stop="tool_calls")
    async with make_engine(ScriptedClient([broken, results])) as engine:
        run = await engine.start("mark", client_tools=[MARK])

        assert (await run.result()).output == "the arguments are no JSON object"


async def test_a_cancelled_run_waits_no_longer() -> None:
    async with make_engine(ScriptedClient([CALL])) as engine:
        run = await waiting(engine)
        await run.cancel()
        result = await run.result()
        log = await engine.store.read(run.id)

    assert result.outcome == "CANCELLED"
    assert kinds(log)[-3:] == ["tool.requested", "tool.failed", "run.completed"]


async def test_a_turn_has_the_tools_that_were_sent_with_it_alone() -> None:
    model = ScriptedClient([CALL, results, "nothing to mark"])
    async with make_engine(model) as engine:
        session = await engine.start_session()
        first = await session.send("mark", client_tools=[MARK])
        async for event in first.events():
            if event.kind == k.TOOL_AWAITED:
                break
        await first.run.answer(KEY, "marked")
        assert "marked" in (await first.result()).output
        await (await session.send("and now?")).result()

    assert [[spec.name for spec in call.tools] for call in model.calls] == [["mark"], ["mark"], []]


async def test_the_members_of_a_team_have_the_tools_and_agents_that_are_called_do_not() -> None:
    hand_off = Reply((ToolCall("h", "hand_off_to_clerk", {}),), stop="tool_calls")
    clerk = ScriptedClient([CALL, results])
    helper = ScriptedClient(["helped"])
    ask = Reply((ToolCall("a", "helper", {"task": "help"}),), stop="tool_calls")
    helped = Agent(helper, name="helper").as_tool("Helps.")
    team = Agent(
        ScriptedClient([ask, hand_off]),
        name="team",
        tools=[helped],
        algorithm=Swarm([Agent(clerk, name="clerk")]),
    )
    async with team.engine() as engine:
        run = await engine.start("mark", agent=team, client_tools=[MARK])
        async for event in run.events():
            if event.kind == k.TOOL_AWAITED:
                await run.answer(event.data["key"], "marked")
                break
        result = await run.result()

    assert result.output.splitlines()[1] == "marked"
    assert [spec.name for spec in clerk.calls[0].tools if spec.name == "mark"] == ["mark"]
    assert helper.calls[0].tools == ()


async def test_other_runs_of_the_engine_have_no_tools_of_this_client() -> None:
    model = FunctionClient(lambda _: "fine")
    async with make_engine(model, find) as engine:
        await (await engine.start("mark", client_tools=[MARK])).result()
        await (await engine.start("mark")).result()
        handler = ToolHandler([find])
    assert [spec.name for spec in handler.offers] == ["find"]


@pytest.mark.parametrize(
    ("tools", "why"),
    [
        ([ToolSpec("find", "", COLOUR)], "another tool has this name"),
        ([MARK, MARK], "another tool has this name"),
        ([ToolSpec("a b", "", COLOUR)], "its name is not"),
        ([ToolSpec("a", "", {"type": "string"})], "not that of an object"),
        ([ToolSpec("a", "x" * 5_000, COLOUR)], "its description is longer"),
        ([ToolSpec("a", "", {**COLOUR, "title": "x" * 40_000})], "its input schema is longer"),
        ([ToolSpec(f"t{n}", "", COLOUR) for n in range(65)], "at most 64 tools"),
    ],
)
async def test_tools_that_no_model_could_be_given_are_refused(
    tools: list[ToolSpec], why: str
) -> None:
    async with make_engine(ScriptedClient([]), find) as engine:
        with pytest.raises(ValueError, match=why):
            await engine.start("mark", client_tools=tools)
        session = await engine.start_session()
        with pytest.raises(ValueError, match=why):
            await session.send("mark", client_tools=tools)
        assert [info.algorithm for info in await engine.store.runs()] == ["session"]
