"""Input that a server may want during a call, where that is switched on."""

from __future__ import annotations

from typing import Any

import pytest

from fakes.mcp_servers.kit import CONTEXT, call, hostile_http, opened, over_http
from lib.errors import ToolError
from lib.llm import ScriptedClient
from lib.mcp.client.inputs import Elicitation
from lib.mcp.client.toolset import MCPTools


async def test_a_person_answers_a_question() -> None:
    questions: list[Elicitation] = []

    async def elicit(question: Elicitation) -> dict[str, Any]:
        questions.append(question)
        return {"password": "none of yours"}

    async with hostile_http("asks-once") as server:
        async with opened(over_http(server.url, elicit=elicit)) as toolset:
            assert await call(toolset, "act") == "done"

        answered = server.requests[-1][2]["params"]["inputResponses"]["k"]
        assert answered == {"action": "accept", "content": {"password": "none of yours"}}
        assert [question.message for question in questions] == ["Your password?"]


async def test_a_model_answers_a_request_to_sample() -> None:
    model = ScriptedClient(["Blue."])
    async with hostile_http("samples-once") as server:
        toolset = over_http(server.url, sampling=True).open_tools([model])
        await toolset.refresh()
        assert await toolset.tools[0].call({}, CONTEXT) == "done"
        await toolset.aclose()

        answered = server.requests[-1][2]["params"]["inputResponses"]["k"]
        assert answered["content"] == {"type": "text", "text": "Blue."}
        assert model.calls[0].settings == {"max_tokens": 2_000}
        assert "written by strangers" in model.calls[0].messages[-1].text


async def test_a_server_that_samples_for_ever_is_refused() -> None:
    model = ScriptedClient(["Blue."] * 20)
    async with hostile_http("samples") as server:
        toolset = over_http(server.url, sampling=True).open_tools([model])
        await toolset.refresh()
        with pytest.raises(ToolError):
            await toolset.tools[0].call({}, CONTEXT)
        await toolset.aclose()

    assert len(model.calls) <= 8


def test_a_description_shows_no_secrets() -> None:
    server = MCPTools(
        "https://example.com/mcp?key=secret", headers={"authorization": "Bearer secret"}
    )
    assert "secret" not in repr(server)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({}, ValueError),
        ({"url": "https://a.example/mcp", "command": ["x"]}, ValueError),
        ({"command": "uvx server"}, TypeError),
        ({"command": []}, TypeError),
        ({"command": ["x"], "include": "one"}, TypeError),
        ({"command": ["x"], "effects": {"a": "twice"}}, ValueError),
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        MCPTools(**options)
