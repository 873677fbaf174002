"""Real providers, named by the environment, with their keys where `open_client` looks for them.

    LIB_TEST_MODELS="anthropic:claude-sonnet-4-5 gemini:gemini-3-flash" pytest tests/live

With two or more, a conversation moves from each to the next. Without the variable nothing runs.
"""

import os
from collections.abc import Sequence
from typing import Any

import pytest

from lib.llm import Message, Reply, ToolResult, ToolSpec, open_client, parse_output

MODELS = os.environ.get("LIB_TEST_MODELS", "").split()
pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(not MODELS, reason="LIB_TEST_MODELS names no model"),
    pytest.mark.timeout(300),
]
ADD = ToolSpec(
    "add",
    "Add two integers and return the sum.",
    {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
    },
)
SUM = {"type": "object", "properties": {"total": {"type": "integer"}}, "required": ["total"]}


async def streamed(client: Any, talk: Sequence[Message], **options: Any) -> Reply:
    *_, reply = [piece async for piece in client.stream(talk, **options)]
    assert isinstance(reply, Reply)
    assert reply.usage.input_tokens
    assert reply.usage.output_tokens
    return reply


async def turn(client: Any, talk: list[Message]) -> None:
    """Have the model call the tool, give it the sum, and take its answer."""
    talk.append(Message.user("What is 31415 + 27182? Use the tool add."))
    first = await streamed(client, talk, tools=[ADD])
    sums = [
        ToolResult(call.id, str(call.arguments["a"] + call.arguments["b"]))
        for call in first.tool_calls
    ]
    assert sums
    talk += [first.message, Message.tool(*sums)]
    last = await streamed(client, talk, tools=[ADD])
    assert "58597" in last.text.replace(",", "").replace(".", "").replace(" ", "")
    talk.append(last.message)


@pytest.mark.parametrize("model", MODELS)
async def test_a_tool_is_called_and_an_output_has_its_shape(model: str) -> None:
    client: Any = open_client(model)
    await turn(client, [Message.system("You calculate.")])
    reply = await client.complete([Message.user("What is 3 + 4?")], output=SUM)
    await client.aclose()

    assert parse_output(reply, SUM) == {"total": 7}


async def test_a_conversation_moves_from_each_to_the_next() -> None:
    talk = [Message.system("You calculate.")]

    for model in (*MODELS, *MODELS[:1]):
        client: Any = open_client(model)
        await turn(client, talk)
        await client.aclose()
