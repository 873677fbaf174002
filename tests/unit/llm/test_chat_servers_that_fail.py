"""Servers that answer badly, late, or not at all, and what the client makes of it."""

import asyncio
from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from traceback import format_exception
from typing import Any, cast

import httpx2
import pytest

from fakes.llm_dialects import DIALECTS, event_stream
from fakes.llm_server import API_KEY, Answer, Drop, Raw, refused
from lib.errors import InvalidReply, LLMError
from lib.llm import ChatClient, Delta, Reply, Text
from lib.testing.clock import ManualClock

from .chat_kit import HI, JSON, SSE, connected, facts, failure, reply, streamed

PAGE = b"<!doctype html><title>502 Bad Gateway</title>"
GOOD = b"".join(event_stream(reply("hello"), DIALECTS["openai"]))
FIRST, *_ = event_stream(reply("hello"), DIALECTS["openai"])
CHUNK = b'data: {"choices": [{"delta": {"content": "hello"}, "finish_reason": "stop"}]}\n\n'
BAD_ANSWERS: dict[str, tuple[Answer, tuple[type[LLMError], int | None, bool]]] = {
    "an error page": (Raw(body=PAGE, status=502), (LLMError, 502, True)),
    "a page in place of the API": (
        Raw(body=PAGE, headers={"content-type": "text/html; charset=utf-8"}),
        (InvalidReply, None, False),
    ),
    "a redirect": (Raw(status=307, headers={"location": "http://x.test"}), (LLMError, 307, False)),
    "an error page that is cut": (Raw(body=PAGE, status=503, cut=True), (LLMError, 503, True)),
    "an endless error page": (Raw(body=b"x" * 200_000, status=500), (LLMError, 500, True)),
    "an error in a good answer": (
        Raw(body=b'{"error": {"code": 429, "message": "slow"}}', headers=JSON),
        (LLMError, 429, True),
    ),
    "no JSON": (Raw(body=b"Hello!", headers=JSON), (InvalidReply, None, True)),
    "half of a JSON": (Raw(body=b'{"choices": [', headers=JSON, cut=True), (LLMError, None, True)),
    "too much": (Raw(body=b'"' + b"x" * 70_000, headers=JSON), (InvalidReply, None, False)),
    "nothing": (Raw(headers=JSON), (InvalidReply, None, True)),
    "a closed connection": (Drop(), (LLMError, None, True)),
    "a connection closed in a header": (Drop(b"HTTP/1.1 200 OK\r\nx"), (LLMError, None, True)),
    "no HTTP": (Drop(b"* OK IMAP4rev1 ready\r\n"), (LLMError, None, True)),
}
BAD_STREAMS: dict[str, tuple[Answer, tuple[type[LLMError], int | None, bool]]] = {
    "no end": (Raw(body=FIRST, headers=SSE), (InvalidReply, None, True)),
    "cut": (Raw(body=FIRST, headers=SSE, cut=True), (LLMError, None, True)),
    "cut in an event": (Raw(body=GOOD[:80], headers=SSE, cut=True), (LLMError, None, True)),
    "half an event at the end": (Raw(body=GOOD[:80], headers=SSE), (InvalidReply, None, True)),
    "an error in the middle": (
        Raw(body=FIRST + b'data: {"error": {"type": "server_error"}}\n\n', headers=SSE),
        (LLMError, None, True),
    ),
    "an error event": (
        Raw(body=FIRST + b'event: error\ndata: {"type": "overloaded", "code": 529}\n\n'),
        (LLMError, 529, True),
    ),
    "llama.cpp's old error field": (
        Raw(body=b'error: {"code":400,"type":"invalid_request_error"}\n\ndata: [DONE]\n\n'),
        (LLMError, 400, False),
    ),
    "a line without end": (
        Raw(body=b"data: " + b"x" * 70_000, headers=SSE),
        (InvalidReply, None, False),
    ),
    "no JSON in an event": (Raw(body=b"data: hello\n\n", headers=SSE), (InvalidReply, None, True)),
    "a call without a name": (
        Raw(
            body=b'data: {"choices": [{"delta": {"tool_calls": [{"index": 0}]}}]}\n\ndata: [DONE]',
            headers=SSE,
        ),
        (InvalidReply, None, True),
    ),
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", BAD_ANSWERS)
async def test_a_bad_answer_is_a_typed_error(name: str, *, stream: bool):
    answer, expected = BAD_ANSWERS[name]

    async with connected([answer], max_reply_bytes=65_536) as (client, _):
        assert facts(await failure(client, stream=stream)) == expected


@pytest.mark.parametrize("name", BAD_STREAMS)
async def test_a_bad_stream_is_a_typed_error(name: str):
    answer, expected = BAD_STREAMS[name]

    async with connected([answer], max_reply_bytes=65_536) as (client, _):
        assert facts(await failure(client, stream=True)) == expected


GOOD_STREAMS: dict[str, Raw] = {
    "without [DONE]": Raw(body=CHUNK, headers=SSE),
    "without a media type": Raw(body=CHUNK),
    "cut after the reason to stop": Raw(body=CHUNK + b"data: {", headers=SSE, cut=True),
    "cut after [DONE]": Raw(body=CHUNK + b"data: [DONE]\n\n", headers=SSE, cut=True),
    "with talk after [DONE]": Raw(
        body=CHUNK + b"data: [DONE]\n\n" + b": bye\n\n" * 50_000, headers=SSE
    ),
    "without blank lines": Raw(body=CHUNK.rstrip() + b"\ndata: [DONE]\n", headers=SSE),
    "with empty data": Raw(body=b"data:\n\n" + CHUNK + b"data: \n\n", headers=SSE),
    "with JSON over several lines": Raw(
        body=b'data: {"choices":\ndata: [{"delta": {"content": "hello"}}]}\n\ndata: [DONE]\n\n',
        headers=SSE,
    ),
    "with an empty list of choices": Raw(body=b'data: {"choices": []}\n\n' + CHUNK, headers=SSE),
}


@pytest.mark.parametrize("name", GOOD_STREAMS)
async def test_a_stream_that_says_enough_is_a_reply(name: str):
    async with connected([GOOD_STREAMS[name]]) as (client, _):
        assert await streamed(client) == [Delta(text="hello"), Reply((Text("hello"),))]


async def test_an_answer_of_just_the_allowed_size_is_read():
    body = b'{"choices": [{"message": {"content": "hello"}}]}'

    for size in (len(body), len(body) - 1):
        answer = Raw(body=body, headers=JSON)
        async with connected([answer], max_reply_bytes=size) as (client, _):
            if size == len(body):
                assert (await client.complete(HI)).text == "hello"
            else:
                error = await failure(client, stream=False)
                assert str(error) == f"the server's answer is larger than {size} bytes"


async def test_what_came_before_the_failure_was_shown():
    seen: list[Delta | Reply] = []

    async def main() -> None:
        half = Raw(body=GOOD[: 2 * len(FIRST)], headers=SSE, cut=True)
        async with connected([half]) as (client, _):
            async for piece in client.stream(HI):
                seen.append(piece)  # noqa: PERF401 - up to the failure

    with pytest.raises(LLMError):
        await main()
    assert seen == [Delta(text="hello")]


class Silence(httpx2.AsyncBaseTransport):
    """A server that says nothing, or nothing more after the start of its answer."""

    def __init__(self, start: bytes | None) -> None:
        self.start = start

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if self.start is None:
            await asyncio.Event().wait()
        return httpx2.Response(200, content=self.content(self.start or b""))

    async def content(self, start: bytes) -> AsyncGenerator[bytes]:
        yield start
        await asyncio.Event().wait()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("start", [None, b'data: {"choices": []}\n\n'])
async def test_a_server_that_falls_silent_runs_into_the_deadline(
    start: bytes | None, *, stream: bool
):
    client = ChatClient("m", api_key=API_KEY, transport=Silence(start), timeout_s=0.02)
    error = await failure(client, stream=stream)
    await client.aclose()
    assert facts(error) == (LLMError, None, True)
    assert str(error) == "no complete answer within 0.02 s"


async def test_a_reader_who_is_slow_does_not_run_into_the_deadline():
    """The deadline limits waiting for the network, never the code that takes the pieces."""

    def handle(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, content=CHUNK + CHUNK, headers=SSE)

    transport = httpx2.MockTransport(handle)
    client = ChatClient("m", api_key="k", transport=transport, timeout_s=0.02)
    pieces = client.stream(HI)
    assert await anext(pieces) == Delta(text="hello")
    never = asyncio.get_running_loop().create_future()
    await asyncio.wait([never], timeout=0.04)
    assert await anext(pieces) == Delta(text="hello")
    await cast(Any, pieces).aclose()
    await client.aclose()


async def test_a_refused_connection_is_retryable_and_named():
    client = ChatClient("m", base_url="http://127.0.0.1:1/v1", api_key=API_KEY)
    error = await failure(client, stream=False)
    assert facts(error) == (LLMError, None, True)
    assert str(error) == "the connection to the server failed: ConnectError"
    await client.aclose()


async def test_a_wait_until_a_date_counts_from_the_clock():
    clock = ManualClock(datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC))
    busy = refused(429, "slow", headers={"retry-after": "Sat, 21 Nov 2026 12:01:30 GMT"})

    async with connected([busy], clock=clock) as (client, _):
        assert (await failure(client, stream=False)).retry_after_s == 90.0


async def test_a_server_that_echoes_the_key_is_not_quoted():
    async with connected([], api_key="sk-wrong-key") as (client, server):
        error = await failure(client, stream=True)
        assert facts(error) == (LLMError, 401, False)
        assert "sk-" not in "".join(format_exception(error))
        assert len(server.requests) == 1
