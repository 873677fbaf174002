"""The client against a server that misbehaves, and at the edges of its own promises."""

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from traceback import format_exception
from types import ModuleType
from typing import Any, cast

import httpx2
import pytest

from lib.errors import InvalidReply, LLMError, UnsupportedModality
from lib.llm import (
    ChatClient,
    Delta,
    Image,
    Message,
    Reply,
    Text,
    ToolCall,
    ToolCallDelta,
    ToolResult,
    ToolSpec,
    Usage,
)
from lib.testing.aio import run
from lib.testing.clock import ManualClock
from lib.testing.llm_dialects import DIALECTS, event_stream
from lib.testing.llm_server import API_KEY, Answer, ChatServer, Drop, Hang, Raw, refused

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
        given: dict[str, Any] = {"base_url": server.base_url, "api_key": API_KEY, **options}
        async with ChatClient("m", **given) as client:
            yield client, server


async def streamed(client: ChatClient, **options: Any) -> list[Delta | Reply]:
    return [piece async for piece in client.stream(HI, **options)]


async def failure(client: ChatClient, *, stream: bool) -> LLMError:
    with pytest.raises(LLMError) as caught:
        await (streamed(client) if stream else client.complete(HI))
    told = "".join(format_exception(caught.value))
    assert API_KEY not in told
    assert PROMPT not in str(caught.value)
    return caught.value


def facts(error: LLMError) -> tuple[type[LLMError], int | None, bool]:
    return type(error), error.status, error.retryable


# -- what is sent ------------------------------------------------------------------------------


def test_a_request_carries_the_key_and_the_whole_conversation():
    conversation = [
        Message.system("Be brief"),
        Message.user("hi"),
        Message.assistant(ToolCall("c1", "search", {"q": "x"})),
        Message.tool(ToolResult("c1", "found")),
    ]

    async def main() -> None:
        async with connected(["hello"], headers={"X-Title": "demo"}) as (client, server):
            assert await client.complete(conversation, tools=[SPEC], model="big") == Reply(
                (Text("hello"),), ONE, model="big", id="chatcmpl-1"
            )
            (received,) = server.requests
            assert received.path == "/v1/chat/completions"
            assert received.headers["authorization"] == f"Bearer {API_KEY}"
            assert received.headers["accept-encoding"] == "identity"
            assert received.headers["x-title"] == "demo"
            assert received.body["model"] == "big"
            called = {"name": "search", "arguments": '{"q":"x"}'}
            call = {"id": "c1", "type": "function", "function": called}
            assert received.body["messages"] == [
                {"role": "system", "content": "Be brief"},
                {"role": "user", "content": "hi"},
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "c1", "content": "found"},
            ]

    run(main())


def test_the_same_conversation_is_the_same_bytes():
    sent: list[bytes] = []

    def handle(request: httpx2.Request) -> httpx2.Response:
        sent.append(request.content)
        return httpx2.Response(200, json={"choices": [{"message": {"content": "x"}}]})

    async def main() -> None:
        for arguments in ({"a": 1, "b": 2}, {"b": 2, "a": 1}):
            client = ChatClient("m", api_key="k", transport=httpx2.MockTransport(handle))
            call = ToolCall("c", "f", arguments)
            await client.complete([Message.user("ü\ud800"), Message.assistant(call)])
            await client.aclose()

    run(main())
    assert sent[0] == sent[1]
    assert json.loads(sent[0])["messages"][0]["content"] == "ü\ud800"


def test_a_modality_that_was_not_declared_is_refused_before_any_io():
    see = [Message.user(Image(data=b"x", media_type="image/png"))]

    async def main() -> None:
        async with connected([]) as (client, server):
            with pytest.raises(UnsupportedModality):
                await client.complete(see)
            with pytest.raises(UnsupportedModality):
                await anext(client.stream(see))
            assert server.connections == 0
        declared = frozenset({"text", "image"})
        async with connected(["a cat"], modalities=declared) as (client, server):
            assert (await client.complete(see)).text == "a cat"

    run(main())


def test_tools_can_be_kept_out_of_streams():
    call = ToolCall("c1", "search", {"q": "x"})

    async def main() -> None:
        answers = [Reply((call,)), "no tools"]
        async with connected(answers, stream_tools=False) as (client, server):
            with_tools = await streamed(client, tools=[SPEC])
            assert with_tools == [
                Delta(tool_call=ToolCallDelta(0, "c1", "search")),
                Delta(tool_call=ToolCallDelta(0, arguments='{"q":"x"}')),
                Reply((call,), ONE, "tool_calls", "m", "chatcmpl-1"),
            ]
            assert (await streamed(client))[-1] == reply("no tools")
            assert ["stream" in received.body for received in server.requests] == [False, True]

    run(main())


OUTPUT = {"type": "object", "properties": {"total": {"type": "integer"}}}


def test_an_output_is_asked_for_by_its_schema():
    async def main() -> None:
        async with connected([Reply((Text('{"total": 3}'),))]) as (client, server):
            assert (await client.complete(HI, output=OUTPUT)).text == '{"total": 3}'
            asked = server.requests[0].body["response_format"]["json_schema"]
            closed = {"required": ["total"], "additionalProperties": False}
            assert asked == {"name": "output", "strict": True, "schema": {**OUTPUT, **closed}}

    run(main())


@pytest.mark.parametrize("stream_tools", [False, True])
def test_an_output_can_be_asked_for_by_way_of_a_tool(*, stream_tools: bool):
    final = ToolCall("c2", "final_answer", {"total": 3})
    search = ToolCall("c1", "search")
    answers = [
        Reply((search, final)),
        Reply((Text("Here it is."), final)),
        Reply((final,)),
        Reply((Text('{"total": 4}'),)),
        Reply((ToolCall("c3", "final_answer", invalid='{"total"'),), stop="length"),
    ]

    async def main() -> None:
        async with connected(answers, output_tool=True, stream_tools=stream_tools) as (
            client,
            server,
        ):
            replies = [
                await client.complete(HI, tools=[SPEC], output=OUTPUT),
                await client.complete(HI, output=OUTPUT, settings={"tool_choice": "auto"}),
                (await streamed(client, output=OUTPUT))[-1],
                (await streamed(client, tools=[SPEC], output=OUTPUT))[-1],
                (await streamed(client, output=OUTPUT))[-1],
            ]
            named: Any = {"model": "m", "id": "chatcmpl-1"}
            assert replies == [
                Reply((search,), ONE, "tool_calls", **named),
                Reply((Text('{"total":3}'),), ONE, **named),
                Reply((Text('{"total":3}'),), ONE, **named),
                Reply((Text('{"total": 4}'),), ONE, **named),
                Reply((Text('{"total"'),), ONE, "length", **named),
            ]
            forced = {"type": "function", "function": {"name": "final_answer"}}
            assert [received.body["tool_choice"] for received in server.requests] == [
                "required",
                "auto",
                forced,
                "required",
                forced,
            ]
            assert [
                [tool["function"]["name"] for tool in received.body["tools"]]
                for received in server.requests[:2]
            ] == [["search", "final_answer"], ["final_answer"]]
            assert not any("response_format" in received.body for received in server.requests)
            final_tool = server.requests[1].body["tools"][0]["function"]
            assert final_tool["parameters"] == OUTPUT

    run(main())


def test_an_id_that_the_conversation_has_is_not_given_to_another_call():
    again = Reply((ToolCall("c1", "search", {}),))
    before = [*HI, Message.assistant(ToolCall("c1", "search")), Message.tool(ToolResult("c1", ""))]

    async def main() -> None:
        async with connected([again]) as (client, _):
            (call,) = (await client.complete(before)).tool_calls
            assert call.id.startswith("call_")
            assert len(call.id) == 29

    run(main())


# -- servers that fail -------------------------------------------------------------------------

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
def test_a_bad_answer_is_a_typed_error(name: str, *, stream: bool):
    answer, expected = BAD_ANSWERS[name]

    async def main() -> None:
        async with connected([answer], max_reply_bytes=65_536) as (client, _):
            assert facts(await failure(client, stream=stream)) == expected

    run(main())


@pytest.mark.parametrize("name", BAD_STREAMS)
def test_a_bad_stream_is_a_typed_error(name: str):
    answer, expected = BAD_STREAMS[name]

    async def main() -> None:
        async with connected([answer], max_reply_bytes=65_536) as (client, _):
            assert facts(await failure(client, stream=True)) == expected

    run(main())


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
def test_a_stream_that_says_enough_is_a_reply(name: str):
    async def main() -> None:
        async with connected([GOOD_STREAMS[name]]) as (client, _):
            assert await streamed(client) == [Delta(text="hello"), Reply((Text("hello"),))]

    run(main())


def test_an_answer_of_just_the_allowed_size_is_read():
    body = b'{"choices": [{"message": {"content": "hello"}}]}'

    async def main() -> None:
        for size in (len(body), len(body) - 1):
            answer = Raw(body=body, headers=JSON)
            async with connected([answer], max_reply_bytes=size) as (client, _):
                if size == len(body):
                    assert (await client.complete(HI)).text == "hello"
                else:
                    error = await failure(client, stream=False)
                    assert str(error) == f"the server's answer is larger than {size} bytes"

    run(main())


def test_what_came_before_the_failure_was_shown():
    seen: list[Delta | Reply] = []

    async def main() -> None:
        half = Raw(body=GOOD[: 2 * len(FIRST)], headers=SSE, cut=True)
        async with connected([half]) as (client, _):
            async for piece in client.stream(HI):
                seen.append(piece)  # noqa: PERF401 - up to the failure

    with pytest.raises(LLMError):
        run(main())
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
def test_a_server_that_falls_silent_runs_into_the_deadline(start: bytes | None, *, stream: bool):
    async def main() -> None:
        client = ChatClient("m", api_key=API_KEY, transport=Silence(start), timeout_s=0.02)
        error = await failure(client, stream=stream)
        await client.aclose()
        assert facts(error) == (LLMError, None, True)
        assert str(error) == "no complete answer within 0.02 s"

    run(main())


def test_a_reader_who_is_slow_does_not_run_into_the_deadline():
    """The deadline limits waiting for the network, never the code that takes the pieces."""

    def handle(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, content=CHUNK + CHUNK, headers=SSE)

    async def main() -> None:
        transport = httpx2.MockTransport(handle)
        client = ChatClient("m", api_key="k", transport=transport, timeout_s=0.02)
        pieces = client.stream(HI)
        assert await anext(pieces) == Delta(text="hello")
        never = asyncio.get_running_loop().create_future()
        await asyncio.wait([never], timeout=0.04)
        assert await anext(pieces) == Delta(text="hello")
        await cast(Any, pieces).aclose()
        await client.aclose()

    run(main())


def test_nobody_listening_is_retryable_and_says_what_failed():
    async def main() -> None:
        client = ChatClient("m", base_url="http://127.0.0.1:1/v1", api_key=API_KEY)
        error = await failure(client, stream=False)
        assert facts(error) == (LLMError, None, True)
        assert str(error) == "the connection to the server failed: ConnectError"
        await client.aclose()

    run(main())


def test_a_wait_until_a_date_counts_from_the_clock():
    clock = ManualClock(datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC))
    busy = refused(429, "slow", headers={"retry-after": "Sat, 21 Nov 2026 12:01:30 GMT"})

    async def main() -> None:
        async with connected([busy], clock=clock) as (client, _):
            assert (await failure(client, stream=False)).retry_after_s == 90.0

    run(main())


def test_a_server_that_echoes_the_key_is_not_quoted():
    async def main() -> None:
        async with connected([], api_key="sk-wrong-key") as (client, server):
            error = await failure(client, stream=True)
            assert facts(error) == (LLMError, 401, False)
            assert "sk-" not in "".join(format_exception(error))
            assert len(server.requests) == 1

    run(main())


# -- connections -------------------------------------------------------------------------------


def test_a_stream_that_is_left_in_the_middle_closes_its_connection():
    async def main() -> None:
        async with connected(["a long answer", "another"]) as (client, server):
            pieces = client.stream(HI)
            assert await anext(pieces) == Delta(text="a lon")
            await cast(Any, pieces).aclose()
            assert await client.complete(HI) == reply("another")
            assert server.connections == 2

    run(main())


def test_a_cancelled_call_leaves_the_client_usable():
    async def main() -> None:
        async with connected([Hang(), "hello"]) as (client, server):
            task = asyncio.create_task(client.complete(HI))
            while not server.requests:
                await asyncio.wait([task], timeout=0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await client.complete(HI) == reply("hello")

    run(main())


def test_many_calls_at_once_each_get_their_own_answer():
    def answer(body: dict[str, Any]) -> Reply:
        return reply(body["messages"][0]["content"])

    async def main() -> None:
        async with ChatServer(answer) as server:
            client = ChatClient("m", base_url=server.base_url, api_key=API_KEY)
            texts = [f"call {number}" for number in range(20)]
            replies = await asyncio.gather(
                *(client.complete([Message.user(text)]) for text in texts)
            )
            assert [one.text for one in replies] == texts
            await client.aclose()

    run(main())


def test_a_client_that_was_given_is_used_and_left_open():
    def handle(request: httpx2.Request) -> httpx2.Response:
        assert request.headers["x-gateway"] == "yes"
        return httpx2.Response(200, json={"choices": [{"message": {"content": "hello"}}]})

    http = httpx2.AsyncClient(
        transport=httpx2.MockTransport(handle), headers={"x-gateway": "yes"}, follow_redirects=True
    )

    async def main() -> None:
        client = ChatClient("m", api_key="k", http=http)
        assert (await client.complete(HI)).text == "hello"
        await client.aclose()
        assert not http.is_closed
        await http.aclose()

    run(main())


def test_a_closed_client_opens_anew():
    async def main() -> None:
        async with connected(["one", "two"]) as (client, server):
            assert await client.complete(HI) == reply("one")
            await client.aclose()
            await client.aclose()
            assert await client.complete(HI) == reply("two")
            assert server.connections == 2

    run(main())


def test_objects_of_the_older_package_are_taken_as_they_are(monkeypatch: pytest.MonkeyPatch):
    """`httpx` is the same library under its older name; its errors are classes of its own."""
    older: Any = ModuleType("httpx")

    class OlderError(Exception):
        pass

    class ConnectError(OlderError):
        pass

    class OlderTransport(httpx2.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
            raise ConnectError

    class OlderClient(httpx2.AsyncClient):
        pass

    for kind in (OlderTransport, OlderClient):
        kind.__module__ = "httpx._somewhere"
    older.HTTPError, older.AsyncClient = OlderError, OlderClient
    older.Timeout, older.Limits = httpx2.Timeout, httpx2.Limits
    monkeypatch.setitem(__import__("sys").modules, "httpx", older)

    async def main() -> None:
        client = ChatClient("m", api_key="k", transport=OlderTransport())
        error = await failure(client, stream=False)
        assert str(error) == "the connection to the server failed: ConnectError"
        await client.aclose()

    run(main())


# -- construction ------------------------------------------------------------------------------


def sent_by(client: ChatClient) -> httpx2.Request:
    """Return the request of a call."""
    return run(_sent_by(client))


async def _sent_by(client: ChatClient) -> httpx2.Request:
    requests: list[httpx2.Request] = []

    def handle(request: httpx2.Request) -> httpx2.Response:
        requests.append(request)
        return httpx2.Response(200, json={"choices": [{"message": {"content": "x"}}]})

    client._wire = type(client._wire)(  # pyright: ignore[reportPrivateUsage]
        transport=httpx2.MockTransport(handle),
        timeout_s=1,
        max_bytes=1000,
        failure=LLMError,
        unreadable=LLMError,
    )
    await client.complete(HI, settings={"max_tokens": 5})
    await client.aclose()
    return requests[0]


def test_key_and_address_come_from_the_environment_when_they_are_not_given(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv("OPENAI_API_KEY", " sk-env \n")
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)

    at_openai = sent_by(ChatClient("m"))
    monkeypatch.setenv("OPENAI_BASE_URL", "http://gateway.test/v1/")
    at_gateway = sent_by(ChatClient("m"))
    given = sent_by(ChatClient("m", api_key="sk-own", base_url="http://own.test/api/v1"))
    by_header = sent_by(ChatClient("m", headers={"Authorization": "Basic eDp5"}))

    assert str(at_openai.url) == "https://api.openai.com/v1/chat/completions"
    assert json.loads(at_openai.content)["max_completion_tokens"] == 5
    assert at_openai.headers["authorization"] == "Bearer sk-env"
    assert str(at_gateway.url) == "http://gateway.test/v1/chat/completions"
    assert json.loads(at_gateway.content)["max_tokens"] == 5
    assert str(given.url) == "http://own.test/api/v1/chat/completions"
    assert given.headers["authorization"] == "Bearer sk-own"
    assert by_header.headers.get_list("authorization") == ["Basic eDp5"]


def test_a_server_of_ones_own_needs_no_key(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)

    request = sent_by(ChatClient("m", base_url="http://own.test/v1", max_tokens_field="limit"))

    assert "authorization" not in request.headers
    assert json.loads(request.content)["limit"] == 5


@pytest.mark.parametrize(
    ("options", "provider"),
    [
        ({}, "openai"),
        ({"base_url": "https://API.Mistral.ai/v1"}, "mistral_ai"),
        ({"base_url": "https://mine.openai.azure.com/openai/v1"}, "azure.ai.openai"),
        ({"base_url": "https://api.openai.com.evil.test/v1"}, None),
        ({"base_url": "http://127.0.0.1:11434/v1"}, None),
        ({"base_url": "http://proxy.test/v1", "provider": "anthropic"}, "anthropic"),
        ({"provider": "aws.bedrock"}, "aws.bedrock"),
    ],
)
def test_who_is_paid_is_what_was_said_or_else_what_the_address_says(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], provider: str | None
):
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)

    assert ChatClient("m", api_key="k", **options).provider == provider


@pytest.mark.parametrize(
    "address", ["http://u:sec/ret@own.test/v1", "http://u:sec℀ret@own.test/v1"]
)
def test_an_address_that_is_none_is_not_repeated(address: str):
    with pytest.raises(ValueError, match="base_url is an http or https address") as caught:
        ChatClient("m", base_url=address)

    assert "sec" not in "".join(format_exception(caught.value))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, "OpenAI needs a key"),
        ({"base_url": "localhost:8000/v1"}, "base_url is an http or https address"),
        ({"base_url": "http://127.0.0.1:70000/v1"}, "base_url is an http or https address"),
        ({"base_url": "http://[::1/v1"}, "base_url is an http or https address"),
        ({"base_url": "http://127.0.0.1:0/v1"}, "base_url is an http or https address"),
        ({"base_url": "https://"}, "base_url is an http or https address"),
        ({"api_key": "sk-1 sk-2"}, "the API key holds characters that no key has"),
        ({"api_key": "sk-ü"}, "the API key holds characters that no key has"),
        ({"api_key": "sk-1\r\nx: y"}, "the API key holds characters that no key has"),
        ({"api_key": "k", "http": object(), "transport": object()}, "give http or transport"),
    ],
)
def test_what_cannot_work_fails_at_construction(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], told: str
):
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)

    with pytest.raises(ValueError, match=told) as caught:
        ChatClient("m", **options)

    assert "sk-" not in str(caught.value)
