"""An agent of others is a tool: its card, its tasks, and what becomes of a call."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fakes.a2a_servers import QuickClock, call, opened, stranger
from lib import Agent
from lib.a2a import A2AAgent
from lib.errors import FetchBlocked, ToolError
from lib.events import kinds as k
from lib.llm import Reply, ScriptedClient, ToolCall
from lib.testing.clock import ManualClock


async def test_the_card_makes_the_tool_and_its_owner_may_name_it() -> None:
    async with stranger() as agent, opened(agent) as toolset:
        [tool] = toolset.tools
    async with stranger() as agent, opened(agent, name="rome", description="Go.") as toolset:
        [renamed] = toolset.tools

    assert (tool.name, tool.effects, tool.untrusted_output) == ("travel_agent", "once", True)
    assert tool.description == "Books journeys.\n- Book: Books."
    assert (renamed.name, renamed.description) == ("rome", "Go.")


@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
@pytest.mark.parametrize("mode", ["", "stream"])
async def test_a_call_sends_a_message_and_returns_the_answer_of_its_task(
    binding: str, mode: str
) -> None:
    interface = {"protocolBinding": binding, "protocolVersion": "1.0"}
    async with stranger(mode) as agent:
        agent.card = {"supportedInterfaces": [{**interface, "url": f"{agent.url}/a2a"}]}
        async with opened(agent) as toolset:
            text = await call(toolset)

    first, sent = agent.calls[0]
    assert text == 'booked\n{"seat":7}\n[a file, not shown]\n[link to https://a.b]'
    assert first == ("SendStreamingMessage" if mode else "SendMessage")
    assert sent["message"]["parts"] == [{"text": "To Rome, please."}]
    assert agent.methods[1:] == ["GetTask"]


async def test_a_call_that_is_made_again_sends_the_same_message_id() -> None:
    async with stranger() as agent, opened(agent) as toolset:
        await call(toolset)
        agent.states = ("COMPLETED",)
        await call(toolset)

    ids = [params["message"]["messageId"] for name, params in agent.calls if name == "SendMessage"]
    assert ids[0] == ids[1]


async def test_an_answer_without_a_task_is_an_answer() -> None:
    async with stranger("answers-with-a-message") as agent, opened(agent) as toolset:
        assert await call(toolset) == "hi"


async def test_a_task_that_waits_is_answered_by_another_call() -> None:
    async with stranger(states=("INPUT_REQUIRED",)) as agent, opened(agent) as toolset:
        text = await call(toolset)
        agent.states = ("WORKING", "WORKING", "COMPLETED")
        done = await call(toolset, "By train.", task="task-1")

    assert text.startswith("The agent waits for input. Answer it with task='task-1'.")
    assert "booked" in done
    sent = [params["message"] for name, params in agent.calls if name == "SendMessage"]
    assert [each.get("taskId") for each in sent] == [None, "task-1"]


@pytest.mark.parametrize("state", ["FAILED", "REJECTED", "CANCELED"])
async def test_a_task_that_does_not_complete_fails_the_call_with_fenced_words(state: str) -> None:
    async with stranger(states=(state,)) as agent, opened(agent) as toolset:
        with pytest.raises(ToolError) as caught:
            await call(toolset)

    assert caught.value.code == "failed"
    assert caught.value.message.startswith("[")
    assert "\x1b" not in caught.value.message


async def test_a_call_that_is_cancelled_cancels_its_task() -> None:
    clock = ManualClock()
    async with stranger(states=("WORKING",)) as agent, opened(agent, clock=clock) as toolset:
        calling = asyncio.create_task(call(toolset))
        while not clock.sleepers:  # between two looks at the task
            await asyncio.wait([calling], timeout=0.01)
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling

    assert agent.methods == ["SendMessage", "CancelTask"]
    assert agent.calls[-1][1]["id"] == "task-1"


@pytest.mark.parametrize("mode", ["", "stream-hangs"])
async def test_a_task_that_is_made_after_its_call_was_cancelled_is_cancelled_too(mode: str) -> None:
    async with stranger(mode) as agent, opened(agent) as toolset:
        agent.answers.clear()
        calling = asyncio.create_task(call(toolset))
        while not agent.calls:
            await asyncio.wait([calling], timeout=0.01)
        calling.cancel()
        await asyncio.wait([calling], timeout=0.01)
        agent.answers.set()
        await asyncio.wait([calling])

    assert calling.cancelled()
    assert agent.methods == ["SendStreamingMessage" if mode else "SendMessage", "CancelTask"]


async def test_an_agent_that_does_not_answer_holds_up_no_call_that_is_cancelled() -> None:
    async with stranger("hangs") as agent, opened(agent) as toolset:
        calling = asyncio.create_task(call(toolset))
        while not agent.calls:
            await asyncio.wait([calling], timeout=0.01)
        calling.cancel()
        await asyncio.wait([calling])

    assert calling.cancelled()
    assert agent.methods == ["SendMessage"]


async def test_headers_are_made_for_each_request_and_an_agent_uses_the_tool() -> None:
    made: list[int] = []

    async def headers() -> dict[str, str]:
        made.append(len(made))
        return {"authorization": "Bearer secret"}

    async with stranger() as agent:
        travel = A2AAgent(
            agent.url, allow_private_networks=True, headers=headers, clock=QuickClock()
        )
        model = ScriptedClient(
            [Reply((ToolCall("call-1", "travel_agent", {"message": "Rome"}),)), "It is booked."]
        )
        clerk = Agent(model, tools=[travel])
        async with clerk.engine() as engine:
            run = await clerk.start(engine, "Book Rome.")
            result = await run.result()
            log = await engine.store.read(run.id)

    assert result.output == "It is booked."
    assert len(made) == 1 + len(agent.calls)
    [done] = [event.data for event in log if event.kind == k.TOOL_COMPLETED]
    assert "booked" in done["output"]
    assert done["output"].startswith("[")
    assert "secret" not in repr(travel) + str(log)


async def test_an_agent_that_is_down_fails_the_call_and_not_the_engine(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with stranger() as agent:
        pass
    travel = A2AAgent(agent.url, name="travel", allow_private_networks=True)
    model = ScriptedClient([Reply((ToolCall("call-1", "travel", {"message": "Rome"}),)), "Sorry."])
    result = await Agent(model, tools=[travel]).run("Book Rome.")

    assert result.output == "Sorry."
    assert "the card of an A2A agent was not found" in caplog.text


@pytest.mark.parametrize(
    ("url", "options", "error"),
    [
        ("http://travel.example", {}, ValueError),
        ("ftp://travel.example", {}, FetchBlocked),
        ("https://travel.example", {"effects": "twice"}, ValueError),
        ("https://travel.example", {"poll_s": 0}, ValueError),
        ("https://travel.example", {"name": "no name"}, ValueError),
        ("https://travel.example", {"max_bytes": 0}, ValueError),
    ],
)
def test_a_description_that_means_nothing_is_refused(
    url: str, options: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        A2AAgent(url, **options)
