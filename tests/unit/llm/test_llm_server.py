"""The test server refuses wrong requests, and fails a test that leaves steps over."""

from typing import Any

import pytest

from fakes.llm_server import API_KEY, ChatServer
from lib.errors import LLMError, ScriptError
from lib.llm import ChatClient, Message, Reply
from lib.testing.providers import refusal

USER = {"role": "user", "content": "hi"}
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
CALLING = {"role": "assistant", "content": None, "tool_calls": [CALL]}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "x"}
TOOLS = [{"type": "function", "function": {"name": "f"}}]


def strict(schema: Any) -> dict[str, Any]:
    return {"response_format": {"json_schema": {"strict": True, "schema": schema}}}


GOOD: list[dict[str, Any]] = [
    {"messages": [USER]},
    {"messages": [USER, CALLING, RESULT, USER]},
    {"messages": [USER], "tools": TOOLS, "tool_choice": "auto", "parallel_tool_calls": False},
    {"messages": [USER], "stream": True, "stream_options": {"include_usage": True}},
    {"messages": [USER], **strict({"type": "object", "additionalProperties": False})},
    {"messages": [USER], "response_format": {"json_schema": {"strict": False, "schema": {}}}},
]
CLOSED: dict[str, Any] = {"type": "object", "additionalProperties": False, "required": ["a"]}
BAD: list[tuple[dict[str, Any], str]] = [
    ({"model": None, "messages": [USER]}, "must provide a model"),
    ({"messages": []}, "too short - 'messages'"),
    ({"messages": None}, "too short - 'messages'"),
    ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role"),
    ({"messages": [USER, CALLING]}, "must be followed by tool messages"),
    ({"messages": [USER, CALLING, USER, RESULT]}, "must be followed by tool messages"),
    ({"messages": [USER, RESULT]}, "must follow a message with its 'tool_calls'"),
    ({"messages": [USER, CALLING, RESULT, RESULT]}, "must follow a message with its 'tool_calls'"),
    ({"messages": [{"role": "user", "content": None}]}, "expected a string, got null"),
    ({"messages": [{"role": "assistant", "content": "x", "tool_calls": []}]}, "too short"),
    ({"messages": [{**CALLING, "tool_calls": [{**CALL, "id": ""}]}]}, "invalid 'messages[0]"),
    (
        {"messages": [{**CALLING, "tool_calls": [{**CALL, "function": {"arguments": "{"}}]}]},
        "invalid 'messages[0].tool_calls'",
    ),
    (
        {"messages": [{**CALLING, "tool_calls": [{**CALL, "function": {"arguments": None}}]}]},
        "invalid 'messages[0].tool_calls'",
    ),
    ({"messages": [USER], "tools": []}, "too short - 'tools'"),
    ({"messages": [USER], "tool_choice": "auto"}, "'tool_choice' is only allowed"),
    ({"messages": [USER], "parallel_tool_calls": True}, "'parallel_tool_calls' is only allowed"),
    ({"messages": [USER], "stream_options": {}}, "'stream_options' is only allowed"),
    ({"messages": [USER], **strict({"anyOf": [{"type": "object"}]})}, "must be false"),
    ({"messages": [USER], **strict(CLOSED)}, "must name every property"),
    ({"messages": [USER], **strict({"$ref": "#", "title": "x"})}, "$ref cannot have keywords"),
]


@pytest.mark.parametrize("body", GOOD)
def test_a_request_in_order_is_not_refused(body: dict[str, Any]):
    assert refusal({"model": "m", **body}) is None


@pytest.mark.parametrize(("body", "problem"), BAD)
def test_a_request_that_breaks_a_rule_is_refused_in_the_words_of_the_rule(
    body: dict[str, Any], problem: str
):
    error = refusal({"model": "m", **body})

    assert error is not None
    assert problem in error["error"]["message"]
    assert error["error"]["type"] == "invalid_request_error"


async def test_unused_answers_are_a_failure():
    with pytest.raises(ScriptError, match="has 1 answers, got 0 requests"):
        async with ChatServer(["one"]):
            pass
    with pytest.raises(KeyError):
        async with ChatServer(["one"]):
            raise KeyError


async def test_a_question_too_many_is_refused_and_a_failure():
    async def ask(server: ChatServer) -> Reply:
        client = ChatClient("m", base_url=server.base_url, api_key=API_KEY)
        try:
            return await client.complete([Message.user("hi")])
        finally:
            await client.aclose()

    async def main() -> None:
        async with ChatServer([]) as server:
            with pytest.raises(LLMError, match="script_exhausted") as caught:
                await ask(server)
            assert not caught.value.retryable

    with pytest.raises(ScriptError, match="has 0 answers, got 1 requests"):
        await main()


async def test_another_path_is_not_found():
    async with ChatServer([]) as server:
        client = ChatClient("m", base_url=f"{server.base_url}/v2", api_key=API_KEY)
        with pytest.raises(LLMError) as caught:
            await client.complete([Message.user("hi")])
        assert caught.value.status == 404
        await client.aclose()
