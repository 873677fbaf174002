"""A real OpenAI-compatible server, named by the environment.

    LIB_TEST_CHAT_URL=http://127.0.0.1:11434/v1 LIB_TEST_CHAT_MODEL=llama3.2 pytest tests/live

LIB_TEST_CHAT_KEY is its key, if it needs one. Without the address nothing runs.
"""

import os

import pytest
from pydantic import BaseModel

from lib.llm import ChatClient, Message, Reply, ToolResult, ToolSpec, parse_output

URL = os.environ.get("LIB_TEST_CHAT_URL")
pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(not URL, reason="LIB_TEST_CHAT_URL names no server"),
    pytest.mark.timeout(300),
]


class Sum(BaseModel):
    total: int


ADD = ToolSpec(
    "add",
    "Add two integers and return the sum.",
    {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
    },
)


def client() -> ChatClient:
    model = os.environ.get("LIB_TEST_CHAT_MODEL", "default")
    key = os.environ.get("LIB_TEST_CHAT_KEY") or "none"
    return ChatClient(model, base_url=URL, api_key=key, timeout_s=120)


async def test_a_text_comes_whole_and_in_pieces():
    question = [Message.user("Reply with the one word: pong")]

    chat = client()
    whole = await chat.complete(question)
    *deltas, last = [piece async for piece in chat.stream(question)]
    await chat.aclose()
    assert isinstance(last, Reply)
    shown = "".join([d.text for d in deltas if not isinstance(d, Reply)])
    assert "pong" in whole.text.lower()
    assert shown == last.text


async def test_a_tool_is_called_and_its_result_used():
    chat = client()
    talk = [Message.user("What is 31415 + 27182? Use the tool add.")]
    *_, first = [piece async for piece in chat.stream(talk, tools=[ADD])]
    assert isinstance(first, Reply)
    (call,) = first.tool_calls
    assert (call.name, call.arguments) == ("add", {"a": 31415, "b": 27182})
    talk += [first.message, Message.tool(ToolResult(call.id, "58597"))]
    answer = await chat.complete(talk, tools=[ADD])
    await chat.aclose()
    assert "58597" in answer.text.replace(",", "")


async def test_an_answer_has_the_requested_shape():
    chat = client()
    reply = await chat.complete([Message.user("What is 2 + 3?")], output=Sum)
    await chat.aclose()
    assert parse_output(reply, Sum) == Sum(total=5)
