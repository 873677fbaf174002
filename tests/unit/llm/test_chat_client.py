"""Tests what a chat client sends, and how it is made."""

import json
from traceback import format_exception
from typing import Any

import httpx2
import pytest

from fakes.llm_server import API_KEY
from lib.errors import LLMError, UnsupportedModality
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
)

from .chat_kit import HI, ONE, SPEC, connected, reply, streamed

# -- what is sent ------------------------------------------------------------------------------


async def test_a_request_carries_the_key_and_the_whole_conversation():
    conversation = [
        Message.system("Be brief"),
        Message.user("hi"),
        Message.assistant(ToolCall("c1", "search", {"q": "x"})),
        Message.tool(ToolResult("c1", "found")),
    ]

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


async def test_the_same_conversation_is_the_same_bytes():
    sent: list[bytes] = []

    def handle(request: httpx2.Request) -> httpx2.Response:
        sent.append(request.content)
        return httpx2.Response(200, json={"choices": [{"message": {"content": "x"}}]})

    for arguments in ({"a": 1, "b": 2}, {"b": 2, "a": 1}):
        client = ChatClient("m", api_key="k", transport=httpx2.MockTransport(handle))
        call = ToolCall("c", "f", arguments)
        await client.complete([Message.user("ü\ud800"), Message.assistant(call)])
        await client.aclose()
    assert sent[0] == sent[1]
    assert json.loads(sent[0])["messages"][0]["content"] == "ü\ud800"


async def test_a_modality_that_was_not_declared_is_refused_before_any_io():
    see = [Message.user(Image(data=b"x", media_type="image/png"))]

    async with connected([]) as (client, server):
        with pytest.raises(UnsupportedModality):
            await client.complete(see)
        with pytest.raises(UnsupportedModality):
            await anext(client.stream(see))
        assert server.connections == 0
    declared = frozenset({"text", "image"})
    async with connected(["a cat"], modalities=declared) as (client, server):
        assert (await client.complete(see)).text == "a cat"


async def test_tools_can_be_kept_out_of_streams():
    call = ToolCall("c1", "search", {"q": "x"})

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


OUTPUT = {"type": "object", "properties": {"total": {"type": "integer"}}}


async def test_an_output_is_requested_by_its_schema():
    async with connected([Reply((Text('{"total": 3}'),))]) as (client, server):
        assert (await client.complete(HI, output=OUTPUT)).text == '{"total": 3}'
        schema_format = server.requests[0].body["response_format"]["json_schema"]
        closed = {"required": ["total"], "additionalProperties": False}
        assert schema_format == {"name": "output", "strict": True, "schema": {**OUTPUT, **closed}}


@pytest.mark.parametrize("stream_tools", [False, True])
async def test_an_output_can_be_requested_through_a_tool(*, stream_tools: bool):
    final = ToolCall("c2", "final_answer", {"total": 3})
    search = ToolCall("c1", "search")
    answers = [
        Reply((search, final)),
        Reply((Text("Here it is."), final)),
        Reply((final,)),
        Reply((Text('{"total": 4}'),)),
        Reply((ToolCall("c3", "final_answer", invalid='{"total"'),), stop="length"),
    ]

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


async def test_an_id_that_the_conversation_has_is_not_given_to_another_call():
    again = Reply((ToolCall("c1", "search", {}),))
    before = [*HI, Message.assistant(ToolCall("c1", "search")), Message.tool(ToolResult("c1", ""))]

    async with connected([again]) as (client, _):
        (call,) = (await client.complete(before)).tool_calls
        assert call.id.startswith("call_")
        assert len(call.id) == 29


# -- construction ------------------------------------------------------------------------------


async def sent_by(client: ChatClient) -> httpx2.Request:
    """Return the request of a call."""
    return await _sent_by(client)


async def _sent_by(client: ChatClient) -> httpx2.Request:
    requests: list[httpx2.Request] = []

    def handle(request: httpx2.Request) -> httpx2.Response:
        requests.append(request)
        return httpx2.Response(200, json={"choices": [{"message": {"content": "x"}}]})

    client._http = type(client._http)(  # pyright: ignore[reportPrivateUsage] - its limit is smaller here
        transport=httpx2.MockTransport(handle),
        timeout_s=1,
        max_bytes=1000,
        failure=LLMError,
        unreadable=LLMError,
    )
    await client.complete(HI, settings={"max_tokens": 5})
    await client.aclose()
    return requests[0]


async def test_key_and_address_come_from_the_environment_when_they_are_not_given(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv("OPENAI_API_KEY", " sk-env \n")
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)

    at_openai = await sent_by(ChatClient("m"))
    monkeypatch.setenv("OPENAI_BASE_URL", "http://gateway.test/v1/")
    at_gateway = await sent_by(ChatClient("m"))
    own_headers = await sent_by(
        ChatClient("m", api_key="sk-own", base_url="http://own.test/api/v1")
    )
    by_header = await sent_by(ChatClient("m", headers={"Authorization": "Basic eDp5"}))

    assert str(at_openai.url) == "https://api.openai.com/v1/chat/completions"
    assert json.loads(at_openai.content)["max_completion_tokens"] == 5
    assert at_openai.headers["authorization"] == "Bearer sk-env"
    assert str(at_gateway.url) == "http://gateway.test/v1/chat/completions"
    assert json.loads(at_gateway.content)["max_tokens"] == 5
    assert str(own_headers.url) == "http://own.test/api/v1/chat/completions"
    assert own_headers.headers["authorization"] == "Bearer sk-own"
    assert by_header.headers.get_list("authorization") == ["Basic eDp5"]


async def test_a_server_of_ones_own_needs_no_key(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)

    request = await sent_by(
        ChatClient("m", base_url="http://own.test/v1", max_tokens_field="limit")
    )

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
    ("options", "message"),
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
        ({"api_key": "k", "http": object(), "transport": object()}, "pass http or transport"),
    ],
)
def test_what_cannot_work_fails_at_construction(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], message: str
):
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)

    with pytest.raises(ValueError, match=message) as caught:
        ChatClient("m", **options)

    assert "sk-" not in str(caught.value)
