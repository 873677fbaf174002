"""Shared by tests of the responses client: a prompt, and a server with scripted answers."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from traceback import format_exception
from typing import Any

import pytest

from fakes.llm_server import API_KEY, Answers
from fakes.responses_server import ResponsesServer
from lib.errors import LLMError
from lib.llm import Delta, Message, OpenAIClient, Reply, Text, ToolSpec, Usage

PROMPT = "the secret plan"
HI = [Message.user(PROMPT)]
HOST = "127.0.0.1"
SPEC = ToolSpec("search", "Search", {"type": "object", "properties": {}})
SSE = {"content-type": "text/event-stream"}
JSON = {"content-type": "application/json"}
ONE = Usage(input_tokens=1, output_tokens=1)


def handle(number: int) -> dict[str, Any]:
    return {"id": f"resp_{number}", "server": HOST}


def reply(text: str, number: int = 1) -> Reply:
    return Reply((Text(text),), ONE, "stop", "m", f"resp_{number}", handle(number))


@asynccontextmanager
async def connected(
    answers: Answers, server_options: dict[str, Any] | None = None, **options: Any
) -> AsyncGenerator[tuple[OpenAIClient, ResponsesServer]]:
    async with ResponsesServer(answers, **(server_options or {})) as server:
        arguments: dict[str, Any] = {"base_url": server.base_url, "api_key": API_KEY, **options}
        async with OpenAIClient("m", **arguments) as client:
            yield client, server


async def streamed(client: OpenAIClient, **options: Any) -> list[Delta | Reply]:
    return [piece async for piece in client.stream(options.pop("messages", HI), **options)]


async def complete(client: OpenAIClient, *, stream: bool, **options: Any) -> Reply:
    """Return the reply to a call, streamed or whole."""
    if not stream:
        return await client.complete(options.pop("messages", HI), **options)
    *deltas, last = await streamed(client, **options)
    assert isinstance(last, Reply)
    assert "".join(delta.text for delta in deltas if isinstance(delta, Delta)) == last.text
    return last


async def failure(client: OpenAIClient, *, stream: bool, **options: Any) -> LLMError:
    with pytest.raises(LLMError) as caught:
        await complete(client, stream=stream, **options)
    trace = "".join(format_exception(caught.value))
    assert API_KEY not in trace
    assert PROMPT not in str(caught.value)
    return caught.value


def facts(error: LLMError) -> tuple[type[LLMError], int | None, bool, bool]:
    return type(error), error.status, error.retryable, error.state_lost
