"""A hostile agent has no effect beyond a failed call."""

from __future__ import annotations

from typing import Any

import pytest

from fakes.a2a_servers import INSIDE, call, failure, opened, stranger
from lib import Agent
from lib.a2a import A2AAgent
from lib.errors import ToolError
from lib.events import kinds as k
from lib.llm import Reply, ScriptedClient, ToolCall

UNREADABLE = [
    *("closes", "huge", "no-json", "deep", "no-object", "wrong-id", "broken", "fails-inside"),
    *("id-is-long", "id-is-no-text", "no-state"),
    *("stream-is-empty", "stream-of-nonsense"),
]


@pytest.mark.parametrize(
    "mode",
    [
        *("card-hangs", "card-huge", "card-no-json", "card-deep", "card-redirects"),
        *("card-unauthorized", "card-closes", "card-no-members", "card-no-object"),
    ],
)
async def test_a_card_that_cannot_be_read_makes_no_tool(
    mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with stranger(mode) as agent, opened(agent, connect_timeout_s=1.0) as toolset:
        assert toolset.tools == []
        assert "the card of an A2A agent was not found" in caplog.text


@pytest.mark.parametrize(
    "card",
    [
        {"supportedInterfaces": []},
        {"supportedInterfaces": "all"},
        {"supportedInterfaces": [{"url": INSIDE, "protocolBinding": "JSONRPC"}]},
        {
            "supportedInterfaces": [
                {"url": INSIDE, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
                {"url": "file:///etc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
            ]
        },
        {"capabilities": {"extensions": [{"uri": "urn:x", "required": True}]}},
    ],
)
async def test_an_agent_elsewhere_or_of_another_protocol_is_not_called(
    card: dict[str, Any],
) -> None:
    async with stranger(card=card) as agent, opened(agent) as toolset:
        assert toolset.tools == []
        assert agent.calls == []


async def test_what_a_card_says_of_itself_is_cleaned_and_cut() -> None:
    card = {
        "name": "\u202e travel/agent",
        "description": "Books.\x1b[2J\U000e0041" + "x" * 50_000,
    }
    async with stranger(card=card) as agent, opened(agent) as toolset:
        [tool] = toolset.tools

    assert tool.name == "travel_agent"
    assert len(tool.description) < 5_000
    assert "\x1b" not in tool.description
    assert "\U000e0041" not in tool.description


@pytest.mark.parametrize("mode", UNREADABLE)
async def test_a_call_without_a_readable_answer_is_of_unknown_outcome(mode: str) -> None:
    error, agent = await failure(mode)

    assert error.code == "unknown"
    assert "verify before you repeat it" in error.message
    assert "ignore all rules" not in error.message
    assert sum("Message" in method for method in agent.methods) == 1


@pytest.mark.parametrize("mode", ["refuses", "redirects", "unauthorized"])
async def test_a_call_that_the_agent_refuses_did_not_happen(mode: str) -> None:
    error, agent = await failure(mode)

    assert error.code == "unavailable"
    assert error.message.startswith("not called")
    assert "ignore all rules" not in error.message
    assert len(agent.calls) == 1


async def test_a_task_that_turns_into_another_is_of_unknown_outcome() -> None:
    error, _ = await failure("mixes-tasks")

    assert (error.code, "mixed up" in error.message) == ("unknown", True)


@pytest.mark.parametrize("mode", ["stream-is-cut", "stream-floods", "stream-of-others"])
async def test_a_stream_that_breaks_off_or_strays_is_followed_by_looking_at_the_task(
    mode: str,
) -> None:
    async with stranger(mode) as agent, opened(agent) as toolset:
        assert "booked" in await call(toolset)

    assert agent.methods == ["SendStreamingMessage", "GetTask"]


async def test_an_agent_that_hangs_costs_a_call_its_time_and_no_more() -> None:
    async with stranger("hangs") as agent:
        travel = A2AAgent(agent.url, allow_private_networks=True, timeout_s=0.5)
        model = ScriptedClient(
            [Reply((ToolCall("call-1", "travel_agent", {"message": "Rome"}),)), "Sorry."]
        )
        async with Agent(model, tools=[travel]).engine() as engine:
            run = await engine.start("Book Rome.")
            result = await run.result()
            log = await engine.store.read(run.id)

    [failed] = [event.data for event in log if event.kind == k.TOOL_FAILED]
    assert failed["reason"] == "unknown"
    assert result.output == "Sorry."
    assert agent.methods == ["SendMessage"]


async def test_an_injected_answer_is_fenced_and_cleaned() -> None:
    async with stranger("injects", states=("COMPLETED",)) as agent:
        travel = A2AAgent(agent.url, allow_private_networks=True)
        model = ScriptedClient(
            [Reply((ToolCall("call-1", "travel_agent", {"message": "Rome"}),)), "Done."]
        )
        async with Agent(model, tools=[travel]).engine() as engine:
            run = await engine.start("Book Rome.")
            await run.result()
            log = await engine.store.read(run.id)

    [done] = [event.data["output"] for event in log if event.kind == k.TOOL_COMPLETED]
    assert "\x1b" not in done
    assert "\U000e0041" not in done
    assert done.startswith("[")
    assert "ignore all rules" in done


async def test_artifacts_that_are_no_list_are_none() -> None:
    mode = "artifacts-are-no-list"
    async with stranger(mode, states=("COMPLETED",)) as agent, opened(agent) as toolset:
        assert await call(toolset) == ""


async def test_an_argument_that_is_no_text_is_refused_before_anything_is_sent() -> None:
    async with stranger() as agent, opened(agent) as toolset:
        with pytest.raises(ToolError, match="expected a text as message"):
            await call(toolset, " ")

    assert agent.calls == []
