"""A model behind OpenRouter gets back what it has thought, whole and in order; no other does."""

import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from fakes.llm_server import API_KEY, ChatServer, Raw
from lib.llm import (
    ChatClient,
    Message,
    Reply,
    Thinking,
    ToolResult,
    ToolSpec,
    message_from_json,
    message_to_json,
)

SPEC = ToolSpec("search", "Search.", {"type": "object"})
CLAUDE = "anthropic-claude-v1"
CALL = {
    "index": 0,
    "id": "c1",
    "type": "function",
    "function": {"name": "search", "arguments": "{}"},
}
PIECES: Sequence[Mapping[str, Any]] = (
    {"reasoning": "Let ", "reasoning_details": [{"type": "reasoning.text", "text": "Let "}]},
    {"reasoning": "me.", "reasoning_details": [{"type": "reasoning.text", "text": "me."}]},
    {"reasoning_details": [{"type": "reasoning.text", "signature": "seal", "format": CLAUDE}]},
    {"reasoning_details": [{"type": "reasoning.encrypted", "data": "dark", "index": 1}]},
    {"tool_calls": [CALL]},
)
WHOLE = [
    {"type": "reasoning.text", "text": "Let me.", "signature": "seal", "format": CLAUDE},
    {"type": "reasoning.encrypted", "data": "dark", "index": 1},
]


@asynccontextmanager
async def serving(answers: Sequence[Any]) -> AsyncGenerator[tuple[ChatServer, ChatClient]]:
    async with ChatServer(answers) as server:
        client = ChatClient("m", base_url=server.base_url, api_key=API_KEY)
        async with client:
            yield server, client


def streamed(pieces: Sequence[Mapping[str, Any]]) -> Raw:
    chunks: list[Any] = [{"choices": [{"index": 0, "delta": piece}]} for piece in pieces]
    chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]})
    text = "".join(f"data: {json.dumps(each)}\n\n" for each in chunks) + "data: [DONE]\n\n"
    return Raw(body=text.encode(), headers={"content-type": "text/event-stream"})


def at_once(details: Sequence[Mapping[str, Any]]) -> Raw:
    message = {"role": "assistant", "content": None, "reasoning_details": details}
    choice = {"index": 0, "message": {**message, "tool_calls": [CALL]}}
    body = json.dumps({"choices": [{**choice, "finish_reason": "tool_calls"}]})
    return Raw(body=body.encode(), headers={"content-type": "application/json"})


def stored(talk: Sequence[Message]) -> list[Message]:
    """Return a talk as a log gives it back."""
    return [message_from_json(json.loads(json.dumps(message_to_json(each)))) for each in talk]


async def call(client: ChatClient, talk: Sequence[Message], *, stream: bool) -> Reply:
    if not stream:
        return await client.complete(talk, tools=[SPEC])
    *_, reply = [piece async for piece in client.stream(talk, tools=[SPEC])]
    assert isinstance(reply, Reply)
    return reply


def returned(server: ChatServer) -> Any:
    """Return the details on the model's message of the last request."""
    messages = server.requests[-1].body["messages"]
    return next(each for each in messages if each["role"] == "assistant").get("reasoning_details")


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_the_list_goes_back_as_one_with_the_message_that_it_came_with(
    *, stream: bool
) -> None:
    answer = streamed(PIECES) if stream else at_once(WHOLE)
    async with serving([answer, "Ok."]) as (server, client):
        talk = [Message.system("Be brief."), Message.user("Hi.")]
        reply = await call(client, talk, stream=stream)
        talk = stored([*talk, reply.message, Message.tool(ToolResult("c1", "found"))])
        await client.complete(talk, tools=[SPEC])

    assert [part.text for part in reply.parts if isinstance(part, Thinking)] == ["Let me."]
    assert returned(server) == WHOLE


@pytest.mark.parametrize(
    ("form", "instructions", "model", "goes"),
    [
        (CLAUDE, "Be brief.", "m", True),
        (CLAUDE, "Be long.", "m", False),
        ("google-gemini-v1", "Be long.", "m", True),
        (CLAUDE, "Be brief.", "another", False),
        ("google-gemini-v1", "Be brief.", "another", False),
    ],
)
async def test_it_goes_to_its_own_model_and_what_claude_has_signed_to_its_own_place(
    form: str, instructions: str, model: str, *, goes: bool
) -> None:
    details = [{"type": "reasoning.text", "text": "Hm.", "signature": "seal", "format": form}]
    async with serving([at_once(details), "Ok."]) as (server, client):
        talk = [Message.system("Be brief."), Message.user("Hi.")]
        talk.append((await client.complete(talk, tools=[SPEC])).message)
        talk = stored([*talk, Message.tool(ToolResult("c1", "found"))])
        talk[0] = Message.system(instructions)
        await client.complete(talk, tools=[SPEC], model=model)

    assert returned(server) == (details if goes else None)


async def test_another_server_gets_none_of_it() -> None:
    talk = [Message.user("Hi.")]
    async with serving([at_once(WHOLE)]) as (_, client):
        talk.append((await client.complete(talk, tools=[SPEC])).message)
    async with serving(["Ok."]) as (other, client):
        await client.complete([*talk, Message.tool(ToolResult("c1", "found"))], tools=[SPEC])

    assert returned(other) is None


async def test_odd_lists_are_no_reason_to_fail() -> None:
    deep: Any = "x"
    for _ in range(200):
        deep = [deep]
    details: list[Any] = [{"type": "reasoning.text", "text": deep}, {"no": "type"}, 7, WHOLE[1]]
    async with serving([at_once(details), "Ok."]) as (server, client):
        talk = [Message.user("Hi.")]
        talk.append((await client.complete(talk, tools=[SPEC])).message)
        await client.complete([*talk, Message.tool(ToolResult("c1", "x"))], tools=[SPEC])

    assert returned(server) == [WHOLE[1]]
