"""The test server of the responses API itself: what it refuses, keeps and forgets."""

from typing import Any

import pytest

from fakes.llm_server import API_KEY
from fakes.responses_server import ResponsesServer, problems
from fakes.responses_wire import RESPONSES_DIALECTS, items_of
from lib.errors import LLMError, ScriptError
from lib.llm import Image, Message, OpenAIClient, Reply, ToolCall, ToolResult

from .responses_kit import HI, connected, failure, handle, reply

USER = {"role": "user", "content": "hi"}
CALL = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "x"}
REASONING: dict[str, Any] = {"type": "reasoning", "id": "rs_1", "summary": []}
TOOLS = [{"type": "function", "name": "f"}]

GOOD: list[dict[str, Any]] = [
    {"input": [USER]},
    {"input": [USER, CALL, OUTPUT, USER]},
    {
        "input": [
            USER,
            REASONING,
            CALL,
            {**CALL, "call_id": "c2"},
            OUTPUT,
            {**OUTPUT, "call_id": "c2"},
        ]
    },
    {"input": [USER, REASONING, {"role": "assistant", "content": "x"}]},
    {"input": [USER, {"type": "web_search_call", "id": "ws_1"}, USER]},
    {"input": [USER], "tools": TOOLS, "tool_choice": "auto", "parallel_tool_calls": False},
]
BAD: list[tuple[dict[str, Any], str]] = [
    ({"model": None, "input": [USER]}, "must provide a model"),
    ({"input": []}, "'input' or 'previous_response_id' must be provided"),
    ({"input": [{"role": "robot", "content": "x"}]}, "'input[0].role'"),
    ({"input": [{"role": "user", "content": ""}]}, "'input[0].content'"),
    ({"input": [USER, CALL]}, "no tool output found for function call c1"),
    ({"input": [USER, CALL, USER, OUTPUT]}, "no tool output found for function call c1"),
    ({"input": [USER, OUTPUT]}, "no tool call found for function call output"),
    ({"input": [USER, OUTPUT, CALL]}, "no tool call found for function call output"),
    ({"input": [USER, CALL, OUTPUT, OUTPUT]}, "no tool call found for function call output"),
    ({"input": [USER, CALL, CALL, OUTPUT]}, "duplicate function call"),
    ({"input": [USER, {**CALL, "arguments": "{"}, OUTPUT]}, "invalid 'input[1]'"),
    ({"input": [USER, {**CALL, "arguments": None}, OUTPUT]}, "invalid 'input[1]'"),
    ({"input": [USER, {**CALL, "name": ""}, OUTPUT]}, "invalid 'input[1]'"),
    ({"input": [USER, CALL, {**OUTPUT, "output": None}]}, "invalid type for 'input[2].output'"),
    ({"input": [USER, REASONING]}, "without its required following item"),
    ({"input": [USER, REASONING, USER]}, "without its required following item"),
    ({"input": [USER, {**REASONING, "id": ""}, CALL, OUTPUT]}, "missing required parameter"),
    ({"input": [USER, {"type": "thought"}]}, "invalid value for 'input[1].type'"),
    ({"input": [USER], "max_tokens": 5}, "unknown parameter: 'max_tokens'"),
    ({"input": [USER], "tools": [{"type": "function", "function": {}}]}, "'tools[0].name'"),
    ({"input": [{"role": "user", "content": [{"type": "text"}]}]}, "'input[0].content[].type'"),
    ({"input": [USER], "tool_choice": "auto"}, "'tool_choice' is only allowed"),
    ({"input": [USER], "parallel_tool_calls": True}, "'parallel_tool_calls' is only allowed"),
]


@pytest.mark.parametrize("body", GOOD)
def test_a_request_in_order_is_not_refused(body: dict[str, Any]) -> None:
    assert [*problems({"model": "m", **body})] == []


@pytest.mark.parametrize(("body", "problem"), BAD)
def test_a_request_that_breaks_a_rule_is_refused_in_the_words_of_the_rule(
    body: dict[str, Any], problem: str
) -> None:
    assert problem in next(problems({"model": "m", **body}))


async def test_an_input_that_is_no_list_is_none() -> None:
    async with ResponsesServer([]) as server:
        assert server.refuse({"model": "m", "input": "hi"}) is not None
        assert server.sent == []


async def test_pairs_are_looked_for_in_what_is_kept_too() -> None:
    calling = Reply((ToolCall("c1", "look"),))
    state = {**handle(1), "covers": 2}
    found = Message.tool(ToolResult("c1", "x"))
    silent = [*HI, calling.message, Message.user("well?")]

    async with connected([calling, "seen"]) as (client, server):
        await client.complete(HI)
        error = await failure(client, stream=False, messages=silent, state=state)
        assert (error.status, error.state_lost) == (400, False)
        after = [*HI, calling.message, found]
        assert await client.complete(after, state=state) == reply("seen", 2)
        assert server.sent == [1, 1]


@pytest.mark.parametrize("status", [400, 404])
async def test_what_is_forgotten_is_not_known(status: int) -> None:
    talk = [*HI, Message.assistant("one"), Message.user("more")]
    state = {**handle(1), "covers": 2}

    async with connected(["one", "two"], {"lost_status": status}) as (client, server):
        await client.complete(HI)
        server.forget()
        error = await failure(client, stream=True, messages=talk, state=state)
        assert (error.status, error.state_lost, server.refused) == (status, True, 1)
        assert await client.complete(talk) == reply("two", 2)


async def test_a_function_sees_the_whole_conversation() -> None:
    def count(body: dict[str, Any]) -> str:
        return str(len(body["input"]))

    async with connected(count) as (client, _):
        first = await client.complete(HI)
        talk = [*HI, first.message, Message.user("more")]
        second = await client.complete(talk, state={**handle(1), "covers": 2})
        assert (first.text, second.text) == ("1", "3")


async def test_another_path_is_not_found() -> None:
    async with ResponsesServer([]) as server:
        address = f"{server.base_url}/v2"
        async with OpenAIClient("m", base_url=address, api_key=API_KEY) as client:
            with pytest.raises(LLMError) as caught:
                await client.complete(HI)
            assert caught.value.status == 404


async def test_a_question_too_many_is_refused_and_a_failure() -> None:
    async def main() -> None:
        async with connected([]) as (client, _):
            with pytest.raises(LLMError, match="script_exhausted"):
                await client.complete(HI)

    with pytest.raises(ScriptError, match="has 0 answers, got 1 requests"):
        await main()


def test_a_reply_that_no_model_can_give_is_refused() -> None:
    with pytest.raises(TypeError, match="a reply holds no Image"):
        items_of(Reply((Image(url="u"),)), RESPONSES_DIALECTS["openai"])
