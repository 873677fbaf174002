"""Shared by tests of the chat client: a prompt, and a server with scripted answers."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from traceback import format_exception
from typing import Any

import pytest

from fakes.llm_server import API_KEY, Answer, ChatServer
from lib.errors import LLMError
from lib.llm import ChatClient, Delta, Message, Reply, Text, ToolSpec, Usage

PROMPT = "the secret plan"
HI = [Message.user(PROMPT)]
SPEC = ToolSpec("search", "Search", {"type": "object", "properties": {}})
SSE = {"content-type": "text/event-stream"}
JSON = {"content-type": "application/json"}
ONE = Usage(input_tokens=1, output_tokens=1)


def reply(text: str) -> Reply:
    return Reply((Text(text),), ONE, model="m", id="chatcmpl-1")


@asynccontextmanager
async def connected(
    answers: Sequence[Answer], **options: Any
) -> AsyncGenerator[tuple[ChatClient, ChatServer]]:
    async with ChatServer(answers) as server:
        arguments: dict[str, Any] = {"base_url": server.base_url, "api_key": API_KEY, **options}
        async with ChatClient("m", **arguments) as client:
            yield client, server


async def streamed(client: ChatClient, **options: Any) -> list[Delta | Reply]:
    return [piece async for piece in client.stream(HI, **options)]


async def failure(client: ChatClient, *, stream: bool) -> LLMError:
    with pytest.raises(LLMError) as caught:
        await (streamed(client) if stream else client.complete(HI))
    trace = "".join(format_exception(caught.value))
    assert API_KEY not in trace
    assert PROMPT not in str(caught.value)
    return caught.value


def facts(error: LLMError) -> tuple[type[LLMError], int | None, bool]:
    return type(error), error.status, error.retryable
