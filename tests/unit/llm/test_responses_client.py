"""Tests what the responses client sends, what it makes of a handle, and how it is made."""

import json
from typing import Any

import httpx2
import pytest

from fakes.llm_server import API_KEY
from lib.errors import UnsupportedModality
from lib.llm import (
    Delta,
    Image,
    LLMClient,
    Message,
    OpenAIClient,
    Reply,
    Text,
    Thinking,
    ToolCall,
    ToolCallDelta,
    ToolResult,
)
from lib.testing.aio import run

from .responses_kit import HI, HOST, ONE, SPEC, complete, connected, handle, reply, streamed

client_is_one: type[LLMClient] = OpenAIClient
ADDRESSES = ("OPENAI_API_KEY", "OPENAI_BASE_URL")


# -- what is sent --------------------------------------------------------------------------------


async def test_a_request_carries_the_key_and_the_whole_conversation() -> None:
    conversation = [
        Message.system("Be brief"),
        Message.user("hi"),
        Message.assistant(ToolCall("c1", "search", {"q": "x"})),
        Message.tool(ToolResult("c1", "found")),
    ]

    async with connected(["hello"], headers={"X-Title": "demo"}) as (client, server):
        assert await client.complete(conversation, tools=[SPEC], model="big") == Reply(
            (Text("hello"),), ONE, "stop", "big", "resp_1", handle(1)
        )
        (received,) = server.requests
        assert received.path == "/v1/responses"
        assert received.headers["authorization"] == f"Bearer {API_KEY}"
        assert received.headers["accept-encoding"] == "identity"
        assert received.headers["x-title"] == "demo"
        assert received.body["model"] == "big"
        assert len(received.body["input"]) == 4
        assert API_KEY not in json.dumps(received.body)


async def test_the_same_conversation_is_the_same_bytes() -> None:
    sent: list[bytes] = []

    def handler(request: httpx2.Request) -> httpx2.Response:
        sent.append(request.content)
        return httpx2.Response(200, json={"output": [], "status": "completed"})

    for arguments in ({"a": 1, "b": 2}, {"b": 2, "a": 1}):
        transport = httpx2.MockTransport(handler)
        async with OpenAIClient("m", api_key="k", transport=transport) as client:
            call = ToolCall("c", "f", arguments)
            assert (await client.complete([*HI, Message.assistant(call)])).parts == ()
    assert sent[0] == sent[1]


async def test_a_modality_that_was_not_declared_is_refused_before_any_io() -> None:
    see = [Message.user(Image(data=b"x", media_type="image/png"))]

    async with connected([]) as (client, server):
        for stream in (False, True):
            with pytest.raises(UnsupportedModality):
                await complete(client, stream=stream, messages=see)
        assert server.connections == 0
    declared = frozenset({"text", "image"})
    async with connected(["a cat"], modalities=declared) as (client, server):
        assert (await client.complete(see)).text == "a cat"


async def test_a_stream_shows_what_is_written_and_then_the_reply() -> None:
    call = ToolCall("c1", "search", {"q": "x"})
    sealed = Thinking("I search", "responses/127.0.0.1/rs_1/seal")

    async with connected([Reply((sealed, call))]) as (client, server):
        assert await streamed(client, tools=[SPEC]) == [
            Delta(thinking="I sea"),
            Delta(thinking="rch"),
            Delta(tool_call=ToolCallDelta(0, "c1", "search")),
            Delta(tool_call=ToolCallDelta(0, arguments='{"q":')),
            Delta(tool_call=ToolCallDelta(0, arguments=' "x"}')),
            Reply((sealed, call), ONE, "tool_calls", "m", "resp_1", handle(1)),
        ]
        assert server.requests[0].body["stream"] is True


async def test_who_stops_in_the_middle_leaves_a_usable_client() -> None:
    async with connected(["one two three four", "five"]) as (client, _):
        pieces: Any = client.stream(HI)
        assert await anext(pieces) == Delta(text="one t")
        await pieces.aclose()
        assert await client.complete(HI) == reply("five", 2)


async def test_an_id_that_the_conversation_has_is_not_given_to_another_call() -> None:
    """Its own ids would not pair with those that the server keeps, so there is no handle."""
    again = Reply((ToolCall("c1", "search", {}),))
    before = [*HI, Message.assistant(ToolCall("c1", "search")), Message.tool(ToolResult("c1", ""))]

    async with connected([again, Reply((ToolCall("", "search", {}),))]) as (client, _):
        replies = [await client.complete(before) for _ in range(2)]
        for each in replies:
            (call,) = each.tool_calls
            assert call.id.startswith("call_")
            assert each.state is None


# -- handles -------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
async def test_a_call_with_a_handle_sends_only_what_is_new(*, stream: bool) -> None:
    call = ToolCall("c1", "search", {"q": "x"})
    answers = [Reply((Thinking("hm"), call)), "found it"]

    async with connected(answers) as (client, server):
        first = await complete(client, stream=stream, messages=HI, tools=[SPEC])
        assert first.state == handle(1)
        after = [*HI, first.message, Message.tool(ToolResult("c1", "x"))]
        state = {**handle(1), "covers": 2}
        second = await complete(client, stream=stream, messages=after, tools=[SPEC], state=state)
        assert second == reply("found it", 2)
        assert server.requests[1].body["previous_response_id"] == "resp_1"
        assert server.requests[1].body["input"] == [
            {"type": "function_call_output", "call_id": "c1", "output": "x"}
        ]


@pytest.mark.parametrize(
    "state",
    [
        {},
        {"id": "resp_1", "covers": 2},
        {"id": "resp_1", "server": "elsewhere.test", "covers": 2},
        {"id": "", "server": HOST, "covers": 2},
        {"id": 7, "server": HOST, "covers": 2},
        {"id": "resp_1", "server": HOST},
        {"id": "resp_1", "server": HOST, "covers": "2"},
        {"id": "resp_1", "server": HOST, "covers": 0},
        {"id": "resp_1", "server": HOST, "covers": 3},
        {"id": "resp_1", "server": HOST, "covers": 4},
    ],
)
async def test_a_handle_that_does_not_fit_is_left_alone(state: dict[str, Any]) -> None:
    talk = [*HI, Message.assistant("yes"), Message.user("more")]

    async with connected(["hello"]) as (client, server):
        assert (await client.complete(talk, state=state)).text == "hello"
        assert "previous_response_id" not in server.requests[0].body
        assert len(server.requests[0].body["input"]) == 3


async def test_a_client_that_lets_nothing_be_kept_has_no_handles_and_takes_none() -> None:
    talk = [*HI, Message.assistant("yes"), Message.user("more")]

    async with connected(["hello"] * 2, store=False) as (client, server):
        for stream in (False, True):
            state = {**handle(1), "covers": 2}
            answer = await complete(client, stream=stream, messages=talk, state=state)
            assert answer.state is None
        assert [each.body["store"] for each in server.requests] == [False, False]
        assert server.sent == [3, 3]


async def test_a_server_that_says_that_it_keeps_nothing_gives_no_handle() -> None:
    async with connected(["hello"]) as (client, server):
        server.keeps = False
        assert (await client.complete(HI)).state is None


@pytest.mark.parametrize("stop", ["length", "content_filter", "other"])
async def test_an_incomplete_reply_gives_no_handle(stop: Any) -> None:
    async with connected([Reply((Text("so fa"),), stop=stop)]) as (client, _):
        answer = await client.complete(HI)
        assert (answer.stop, answer.state, answer.id) == (stop, None, "resp_1")


# -- construction --------------------------------------------------------------------------------


def sent_by(client: OpenAIClient, transport: "Recorder") -> httpx2.Request:
    async def main() -> None:
        async with client:
            await client.complete(HI)

    run(main())
    return transport.requests[0]


class Recorder(httpx2.AsyncBaseTransport):
    def __init__(self) -> None:
        self.requests: list[httpx2.Request] = []

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request)
        return httpx2.Response(200, json={"output": [], "status": "completed"})


def test_key_and_address_come_from_the_environment_when_they_are_not_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def sent(**options: Any) -> tuple[str, str]:
        transport = Recorder()
        request = sent_by(OpenAIClient("m", transport=transport, **options), transport)
        return str(request.url), request.headers.get("authorization", "")

    monkeypatch.setenv("OPENAI_API_KEY", " sk-env \n")
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    assert sent() == ("https://api.openai.com/v1/responses", "Bearer sk-env")
    assert sent(headers={"Authorization": "Basic eDp5"})[1] == "Basic eDp5"
    monkeypatch.setenv("OPENAI_BASE_URL", "http://gateway.test/v1/")
    assert sent(api_key="sk-own") == ("http://gateway.test/v1/responses", "Bearer sk-own")
    monkeypatch.delenv("OPENAI_API_KEY")
    assert sent(base_url="http://own.test/v1") == ("http://own.test/v1/responses", "")


def test_it_says_what_it_is_and_who_is_paid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    client = OpenAIClient("m", api_key="k")

    assert (client.name, client.model, client.provider) == ("responses", "m", "openai")
    assert client.modalities == {"text"}
    assert OpenAIClient("m", api_key="k", provider="azure").provider == "azure"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "OpenAI needs a key"),
        ({"base_url": "localhost:8000/v1"}, "base_url is an http or https address"),
        ({"api_key": "sk-1 sk-2"}, "the API key holds characters that no key has"),
        ({"api_key": "k", "http": object(), "transport": object()}, "pass http or transport"),
        (
            {"api_key": "k", "modalities": frozenset({"text", "audio"})},
            "the responses API carries text, image and file, not audio",
        ),
    ],
)
def test_what_cannot_work_fails_at_construction(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], message: str
) -> None:
    for name in ADDRESSES:
        monkeypatch.delenv(name, raising=False)

    with pytest.raises(ValueError, match=message) as caught:
        OpenAIClient("m", **options)

    assert "sk-" not in str(caught.value)
