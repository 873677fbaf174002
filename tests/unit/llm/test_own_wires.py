"""Tests the particulars of each provider's wire; what all share is in tests/contract."""

import json
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any

import pytest

from fakes import anthropic_server, gemini_server
from fakes.anthropic_server import AnthropicServer
from fakes.bedrock_server import BedrockServer, frame
from fakes.gemini_server import GeminiServer
from fakes.llm_server import API_KEY, Raw
from fakes.mistral_server import MistralServer
from fakes.ollama_server import OllamaServer
from lib.errors import InvalidReply, LLMError, MissingDriver, UnsupportedModality
from lib.llm import (
    AnthropicClient,
    BedrockClient,
    Delta,
    File,
    GeminiClient,
    Image,
    Message,
    MistralClient,
    OllamaClient,
    Opaque,
    Reply,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    ToolSpec,
    Usage,
)
from lib.llm.api.conversation import Origin
from lib.llm.api.wire import ModelCall
from lib.llm.bedrock import build_body as bedrock_body

HI = [Message.user("hi")]
SPEC = ToolSpec("search", "Search.", {"type": "object", "properties": {}})
SSE = {"content-type": "text/event-stream"}
JSON = {"content-type": "application/json"}
PNG = Image(data=b"\x89PNG", media_type="image/png")


async def last(client: Any, messages: Sequence[Message] = HI, **options: Any) -> Reply:
    *_, reply = [piece async for piece in client.stream(messages, **options)]
    assert isinstance(reply, Reply)
    return reply


def anthropic(server: AnthropicServer, **options: Any) -> AnthropicClient:
    return AnthropicClient("m", base_url=server.base_url, api_key=API_KEY, **options)


def gemini(server: GeminiServer, model: str = "gemini-3-pro", **options: Any) -> GeminiClient:
    return GeminiClient(model, base_url=server.base_url, api_key=API_KEY, **options)


# -- Anthropic ---------------------------------------------------------------------------------


async def test_each_call_reads_from_the_cache_what_the_one_before_has_sent() -> None:
    talk = [Message.system("You are brief. " * 50)]
    made = [Reply((ToolCall(f"call{n}", "search"),)) for n in range(6)]

    async with AnthropicServer(made) as server, anthropic(server) as client:
        sent = 0
        for number in range(6):
            talk.append(Message.user(f"Question {number}. " * 20))
            reply = await last(client, talk, tools=[SPEC])
            assert reply.usage.cache_read_tokens == sent
            sent = reply.usage.cache_read_tokens + reply.usage.cache_write_tokens
            assert sent == reply.usage.input_tokens  # all of it is kept for the next call
            talk += [reply.message, Message.tool(ToolResult(reply.tool_calls[0].id, "found"))]


@pytest.mark.parametrize(
    ("cache", "marks"),
    [
        ("5m", {"type": "ephemeral"}),
        ("1h", {"type": "ephemeral", "ttl": "1h"}),
        (None, None),
    ],
)
async def test_marks_of_the_cache_have_their_time(
    cache: Any, marks: Mapping[str, Any] | None
) -> None:
    async with AnthropicServer(["ok"]) as server, anthropic(server, cache=cache) as client:
        await client.complete([Message.system("s"), *HI], tools=[SPEC])
        body = server.requests[0].body
        blocks = [body["system"][0], body["messages"][0]["content"][0]]
        assert [block.get("cache_control") for block in blocks] == [marks, marks]
        assert "cache_control" not in body["tools"][0]


async def test_what_is_kept_for_an_hour_is_counted_apart_since_it_costs_more() -> None:
    usage = {
        "input_tokens": 5,
        "cache_creation_input_tokens": 90,
        "cache_creation": {"ephemeral_5m_input_tokens": 20, "ephemeral_1h_input_tokens": 70},
    }
    message: dict[str, Any] = {"type": "message", "id": "1", "content": [], "usage": usage}

    answer = Raw(body=json.dumps(message).encode(), headers=JSON)
    async with AnthropicServer([answer]) as server, anthropic(server, cache="1h") as client:
        reply = await client.complete(HI)

    assert reply.usage == Usage(input_tokens=95, cache_write_tokens=90, cache_write_1h_tokens=70)


async def test_an_answer_that_the_server_interrupts_is_cut_off() -> None:
    message: dict[str, Any] = {
        "type": "message",
        "id": "1",
        "content": [],
        "stop_reason": "pause_turn",
    }

    answer = Raw(body=json.dumps(message).encode(), headers=JSON)
    async with AnthropicServer([answer]) as server, anthropic(server) as client:
        assert (await client.complete(HI)).stop == "length"


async def test_redacted_thinking_and_blocks_of_the_server_go_back_as_they_came() -> None:
    used = {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"q": "x"}}
    found = {"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": [{"url": "u"}]}
    parts = (
        Thinking("", "secretdata"),
        Opaque({"type": "provider_block", "block": used}),
        Opaque({"type": "provider_block", "block": found}),
        Text("Found."),
    )

    for stream in (False, True):
        async with AnthropicServer([Reply(parts), "ok"]) as server, anthropic(server) as client:
            reply = await last(client) if stream else await client.complete(HI)
            await client.complete([*HI, reply.message, *HI])
            redacted = {"type": "redacted_thinking", "data": "secretdata"}
            assert server.requests[1].body["messages"][1]["content"] == [
                redacted,
                used,
                found,
                {"type": "text", "text": "Found."},
            ]


async def test_citations_are_kept() -> None:
    cited = {"type": "page_location", "cited_text": "x"}
    event = anthropic_server.event
    events = [
        event({"type": "message_start", "message": {"id": "1"}}),
        event({"type": "content_block_start", "index": 0, "content_block": {"type": "text"}}),
        event({"type": "content_block_delta", "index": 0, "delta": _text("hi")}),
        event(
            {
                "type": "content_block_delta",
                "index": 0,
                "delta": {"type": "citations_delta", "citation": cited},
            }
        ),
        event({"type": "message_delta", "delta": {"stop_reason": "pause_turn"}}),
        event({"type": "message_stop"}),
    ]

    answer = Raw(body=b"".join(events), headers=SSE)
    async with AnthropicServer([answer]) as server, anthropic(server) as client:
        reply = await last(client)
    assert reply == Reply(
        (Text("hi", extra={"citations": [cited]}),), stop="length", id="1", model=""
    )


def _text(text: str) -> dict[str, str]:
    return {"type": "text_delta", "text": text}


async def test_arguments_that_were_cut_off_are_invalid() -> None:
    event = anthropic_server.event
    start: dict[str, Any] = {"type": "tool_use", "id": "c1", "name": "search", "input": {}}
    piece = {"type": "input_json_delta", "partial_json": '{"q": "ha'}
    begun = [
        event({"type": "message_start", "message": {"id": "1"}}),
        event({"type": "content_block_start", "index": 0, "content_block": start}),
    ]
    end = [
        event({"type": "message_delta", "delta": {"stop_reason": "max_tokens"}}),
        event({"type": "message_stop"}),
    ]
    delta = event({"type": "content_block_delta", "index": 0, "delta": piece})

    for middle, invalid in (([delta], '{"q": "ha'), ([], "")):
        body = b"".join([*begun, *middle, *end])
        answer = Raw(body=body, headers=SSE)
        async with AnthropicServer([answer]) as server, anthropic(server) as client:
            reply = await last(client, tools=[SPEC])
        assert (reply.stop, reply.tool_calls[0].invalid) == ("length", invalid)


async def test_a_document_is_text_or_a_pdf() -> None:
    files = [
        File(data=b"a,b", media_type="text/csv", name="t.csv"),
        File(url="https://example.com/a.pdf"),
    ]

    async with AnthropicServer(["ok"]) as server, anthropic(server) as client:
        await client.complete([Message.user("Look.", *files)])
        _, text, linked = server.requests[0].body["messages"][0]["content"]
        assert text["source"] == {"type": "text", "media_type": "text/plain", "data": "a,b"}
        assert text["title"] == "t.csv"
        assert linked["source"] == {"type": "url", "url": "https://example.com/a.pdf"}
        with pytest.raises(UnsupportedModality, match="file of type application/zip"):
            await client.complete([Message.user(File(data=b"PK", media_type="application/zip"))])


async def test_a_later_text_of_the_system_stands_in_its_place() -> None:
    talk = [Message.system("a"), *HI, Message.assistant("b"), Message.system("c"), *HI]

    async with AnthropicServer(["ok"]) as server, anthropic(server, cache=None) as client:
        await client.complete(talk)
        body = server.requests[0].body
        assert body["system"] == [{"type": "text", "text": "a"}]
        assert [each["role"] for each in body["messages"]] == [
            *("user", "assistant", "system", "user")
        ]


async def test_a_token_stands_in_for_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", API_KEY)

    async with AnthropicServer(["ok"]) as server:
        async with AnthropicClient("m", base_url=server.base_url, version="2023-06-01") as client:
            await client.complete(HI)
        headers = server.requests[0].headers
        assert headers["authorization"] == f"Bearer {API_KEY}"
        assert headers["anthropic-version"] == "2023-06-01"


# -- Gemini ------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
async def test_a_signature_goes_back_on_the_part_that_it_came_with(*, stream: bool) -> None:
    parts = (
        Text("First. "),
        Text("Signed.", extra={"signature": "c2lnMQ=="}),
        ToolCall("", "search", {"q": "a"}, extra={"signature": "c2lnMg=="}),
        ToolCall("", "search", {"q": "b"}),
        Text("", extra={"signature": "c2lnMw=="}),
    )

    async with GeminiServer([Reply(parts), "ok"]) as server, gemini(server) as client:
        if stream:
            reply = await last(client, tools=[SPEC])
        else:
            reply = await client.complete(HI, tools=[SPEC])
        results = [ToolResult(call.id, "x") for call in reply.tool_calls]
        await client.complete([*HI, reply.message, Message.tool(*results)], tools=[SPEC])
        sent = server.requests[1].body["contents"][1]["parts"]
        assert [(each.get("text"), each.get("thoughtSignature")) for each in sent] == [
            ("First. ", None),
            ("Signed.", "c2lnMQ=="),
            (None, "c2lnMg=="),
            (None, None),
            ("", "c2lnMw=="),
        ]


async def test_calls_of_another_model_are_marked_for_models_that_want_signatures() -> None:
    made = Message.assistant(ToolCall("c1", "search"), ToolCall("c2", "search"))
    talk = [*HI, made, Message.tool(ToolResult("c1", "x"), ToolResult("c2", "y"))]

    for model, mark in (("gemini-3-pro", gemini_server.UNSIGNED), ("gemini-2.5-pro", None)):
        async with GeminiServer(["ok"]) as server, gemini(server, model) as client:
            await client.complete(talk, tools=[SPEC])
            first, second = server.requests[0].body["contents"][1]["parts"]
            assert (first.get("thoughtSignature"), "thoughtSignature" in second) == (mark, False)


async def test_results_carry_the_name_of_their_tool_and_their_failure() -> None:
    talk = [*HI, Message.assistant(ToolCall("c1", "search"))]
    talk += [Message.tool(ToolResult("c1", "no luck", is_error=True)), *HI]

    async with GeminiServer(["ok"]) as server, gemini(server) as client:
        await client.complete(talk, tools=[SPEC])
        contents = server.requests[0].body["contents"]
        assert contents[2]["parts"] == [
            {
                "functionResponse": {
                    "id": "c1",
                    "name": "search",
                    "response": {"error": "no luck"},
                }
            }
        ]
        assert [each["role"] for each in contents] == ["user", "model", "user", "user"]


async def test_an_older_model_gets_the_shape_of_an_output_in_its_instructions() -> None:
    output = {"type": "object", "properties": {"a": {"type": "integer"}}}
    options: dict[str, Any] = {"tools": [SPEC], "output": output}

    async with GeminiServer(["{}", "{}"]) as server:
        async with gemini(server, "gemini-2.5-pro", output_with_tools=False) as client:
            await client.complete(HI, **options)
            await client.complete(HI, output=output)
        with_tools, without = [request.body for request in server.requests]
        assert "generationConfig" not in with_tools
        assert '"integer"' in with_tools["systemInstruction"]["parts"][0]["text"]
        assert without["generationConfig"]["responseJsonSchema"] == output


@pytest.mark.parametrize("stream", [False, True])
async def test_a_blocked_prompt_and_a_malformed_call(*, stream: bool) -> None:
    blocked = {"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {}}
    malformed = {"candidates": [{"finishReason": "MALFORMED_FUNCTION_CALL"}]}
    headers = SSE if stream else JSON
    answers = [
        Raw(
            body=gemini_server.event(each) if stream else json.dumps(each).encode(), headers=headers
        )
        for each in (blocked, malformed)
    ]

    async with GeminiServer(answers) as server, gemini(server) as client:
        reply = await last(client) if stream else await client.complete(HI)
        assert (reply.parts, reply.stop) == ((), "content_filter")
        with pytest.raises(InvalidReply) as caught:
            await (last(client) if stream else client.complete(HI))
        assert caught.value.retryable


async def test_what_stands_in_a_cache_by_name_is_left_out_of_the_request() -> None:
    talk = [Message.system("Be brief."), *HI]

    async with GeminiServer(["ok"]) as server, gemini(server) as client:
        cached = {"cachedContent": "cachedContents/1", "tool_choice": "auto"}
        await client.complete(talk, tools=[SPEC], settings=cached)
        body = server.requests[0].body
    assert body["cachedContent"] == "cachedContents/1"
    assert body.keys().isdisjoint({"systemInstruction", "tools", "toolConfig"})


async def test_an_error_in_a_stream_has_its_wait() -> None:
    retry = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "7.5s"}
    error = {"code": 429, "status": "RESOURCE_EXHAUSTED", "details": [retry]}
    body = f"data: {json.dumps([{'error': error}])}\n\n".encode()

    async with GeminiServer([Raw(body=body, headers=SSE)]) as server, gemini(server) as client:
        with pytest.raises(LLMError) as caught:
            await last(client)
    assert (caught.value.status, caught.value.retry_after_s) == (429, 7.5)


async def test_a_picture_that_the_model_made_is_an_image() -> None:
    part = {"inlineData": {"mimeType": "image/png", "data": "iVBORw=="}}
    whole = {"candidates": [{"content": {"parts": [part]}, "finishReason": "STOP"}]}
    answer = Raw(body=json.dumps(whole).encode(), headers=JSON)

    async with GeminiServer([answer]) as server, gemini(server) as client:
        reply = await client.complete(HI)
    assert reply.parts == (PNG,)


async def test_a_token_may_come_from_a_function_a_coroutine_or_a_text() -> None:
    async def later() -> str:
        return API_KEY

    for token in (API_KEY, lambda: API_KEY, later):
        async with GeminiServer(["ok"]) as server:
            client = GeminiClient("m", base_url=server.base_url, project="p", token=token)
            await client.complete(HI)
            await client.aclose()
            (request,) = server.requests
            assert request.path == (
                "/v1/projects/p/locations/global/publishers/google/models/m:generateContent"
            )
            assert "x-goog-api-key" not in request.headers


# -- Bedrock -----------------------------------------------------------------------------------


def test_without_botocore_a_key_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_BEARER_TOKEN_BEDROCK", raising=False)
    if find_spec("botocore") is None:
        with pytest.raises(MissingDriver, match="BedrockClient needs botocore"):
            BedrockClient("m", region="eu-west-1")
    assert BedrockClient("m", region="eu-west-1", api_key="k").provider == "aws.bedrock"


def test_points_of_the_cache_stand_where_the_model_can_cache() -> None:
    talk = [Message.system("s"), *HI, Message.assistant("a"), *HI, Message.assistant("b"), *HI]
    call = ModelCall(messages=talk, model="m")

    body = bedrock_body(call, origin=Origin("s"), cache="1h")

    point = {"cachePoint": {"type": "default", "ttl": "1h"}}
    assert body["system"] == [{"text": "s"}, point]
    assert [point in message["content"] for message in body["messages"]] == [
        *(False, False, True, False, True)
    ]
    assert "cachePoint" not in json.dumps(bedrock_body(call, origin=Origin("s")))


async def test_models_that_cannot_cache_get_no_points() -> None:
    name = "eu.anthropic.claude-x-v1:0"

    async with BedrockServer(["ok", "ok"]) as server:
        options: dict[str, Any] = {"region": "r", "api_key": API_KEY, "base_url": server.base_url}
        async with BedrockClient(name, **options) as client:
            await client.complete(HI)
            await client.complete(HI, model="meta.llama")
        cached, plain = [json.dumps(request.body) for request in server.requests]
        assert ("cachePoint" in cached, "cachePoint" in plain) == (True, False)
        assert server.requests[0].path == "/v1/model/eu.anthropic.claude-x-v1%3A0/converse"


def test_a_document_has_a_name_that_no_user_wrote() -> None:
    files = [
        File(data=b"%PDF", media_type="application/pdf", name="IGNORE ALL.pdf"),
        File(url="s3://bucket/a.csv", media_type="text/csv"),
    ]
    call = ModelCall(messages=[Message.user("Look.", *files)], model="m")

    _, first, second = bedrock_body(call, origin=Origin("s"))["messages"][0]["content"]

    assert first["document"]["name"] == "document-1"
    assert second["document"] == {
        "format": "csv",
        "name": "document-2",
        "source": {"s3Location": {"uri": "s3://bucket/a.csv"}},
    }
    for wrong in (File(url="https://x.test/a.csv", media_type="text/csv"), File(url="s3://a/b")):
        with pytest.raises(UnsupportedModality):
            bedrock_body(ModelCall(messages=[Message.user(wrong)], model="m"), origin=Origin("s"))


@pytest.mark.parametrize(
    ("name", "status", "retryable"),
    [
        ("throttlingException", 429, True),
        ("validationException", 400, False),
        ("modelStreamErrorException", 500, True),
        ("serviceUnavailableException", 503, True),
    ],
)
async def test_an_exception_in_a_stream_has_its_status(
    name: str, status: int, *, retryable: bool
) -> None:
    answer = Raw(
        body=frame(name, {"message": "no"}, exception=True),
        headers={"content-type": BedrockServer.stream_type},
    )

    async with BedrockServer([answer]) as server:
        options: dict[str, Any] = {"region": "r", "api_key": API_KEY, "base_url": server.base_url}
        async with BedrockClient("m", **options) as client:
            with pytest.raises(LLMError, match=name) as caught:
                await last(client)
    assert (caught.value.status, caught.value.retryable) == (status, retryable)


async def test_bedrock_counts_apart_what_is_kept_for_an_hour() -> None:
    details = [{"ttl": "5m", "inputTokens": 20}, {"ttl": "1h", "inputTokens": 70}]
    usage = {"inputTokens": 5, "cacheWriteInputTokens": 90, "cacheDetails": details}
    answer = {"output": {"message": {"content": [{"text": "x"}]}}, "usage": usage}

    async with BedrockServer([Raw(body=json.dumps(answer).encode(), headers=JSON)]) as server:
        options: dict[str, Any] = {"region": "r", "api_key": API_KEY, "base_url": server.base_url}
        async with BedrockClient("m", **options) as client:
            used = (await client.complete(HI)).usage
    assert used == Usage(input_tokens=95, cache_write_tokens=90, cache_write_1h_tokens=70)


@pytest.mark.parametrize("ending", [["messageStop"], ["metadata"], []])
async def test_the_stop_of_a_message_ends_a_stream_and_its_usage_may_be_missing(
    ending: Sequence[str],
) -> None:
    frames = {"messageStop": {"stopReason": "end_turn"}, "metadata": {"usage": {"inputTokens": 7}}}
    text = frame("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": "hi"}})
    body = text + b"".join(frame(name, frames[name]) for name in ending)
    answer = Raw(body=body, headers={"content-type": BedrockServer.stream_type})

    async with BedrockServer([answer]) as server:
        options: dict[str, Any] = {"region": "r", "api_key": API_KEY, "base_url": server.base_url}
        async with BedrockClient("m", **options) as client:
            if "messageStop" in ending:
                reply = await last(client)
                assert (reply.text, reply.usage) == ("hi", Usage())
            else:
                with pytest.raises(InvalidReply) as caught:
                    await last(client)
                assert caught.value.retryable


# -- Mistral -----------------------------------------------------------------------------------


async def test_something_stands_between_a_result_and_the_user() -> None:
    talk = [*HI, Message.assistant(ToolCall("c1", "search")), Message.tool(ToolResult("c1", "x"))]

    async with MistralServer(["ok"]) as server:
        async with MistralClient("m", base_url=server.base_url, api_key=API_KEY) as client:
            await client.complete([*talk, *HI], tools=[SPEC], settings={"seed": 7})
        body = server.requests[0].body
        roles = [message["role"] for message in body["messages"]]
        assert roles == ["user", "assistant", "tool", "assistant", "user"]
        assert body["messages"][2]["name"] == "search"
        assert body["random_seed"] == 7


# -- Ollama ------------------------------------------------------------------------------------


async def test_the_size_of_the_context_and_other_options_stand_in_their_place() -> None:
    settings = {"max_tokens": 9, "temperature": 0.5, "stop": "END", "think": True, "top_k": 3}

    async with OllamaServer(["ok"]) as server:
        options: dict[str, Any] = {"api_key": API_KEY, "context_tokens": 32_768}
        async with OllamaClient("m", base_url=server.base_url, **options) as client:
            await client.complete(HI, settings=settings)
        body = server.requests[0].body
        assert body["options"] == {
            "num_ctx": 32_768,
            "stop": ["END"],
            "temperature": 0.5,
            "top_k": 3,
            "num_predict": 9,
        }
        assert (body["think"], body["stream"]) == (True, False)


async def test_thinking_goes_back_to_ollama_as_text() -> None:
    thought = Reply((Thinking("Let me look."), ToolCall("", "search")))

    async with OllamaServer([thought, "ok"]) as server:
        async with OllamaClient("m", base_url=server.base_url, api_key=API_KEY) as client:
            reply = await last(client, tools=[SPEC])
            results = [ToolResult(call.id, "x") for call in reply.tool_calls]
            await client.complete([*HI, reply.message, Message.tool(*results)], tools=[SPEC])
        assert server.requests[1].body["messages"][1]["thinking"] == "Let me look."
        assert server.requests[1].body["messages"][2]["tool_name"] == "search"


@pytest.mark.parametrize(
    ("variable", "address"),
    [
        ("", ("127.0.0.1", 11434)),
        ("gpu-box", ("gpu-box", 11434)),
        ("0.0.0.0:8080", ("127.0.0.1", 8080)),
        ("https://ollama.example.com", ("ollama.example.com", 443)),
    ],
)
def test_the_address_of_ollama_comes_in_several_forms(
    variable: str, address: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OLLAMA_HOST", variable)

    client = OllamaClient("m")

    assert (client.server["address"], client.server["port"]) == address


# -- all ---------------------------------------------------------------------------------------


async def test_what_is_shown_of_a_stream_comes_in_order() -> None:
    reply = Reply((Thinking("hm", "c2VhbA=="), Text("Yes."), ToolCall("abcdefghi", "search")))

    async with AnthropicServer([reply]) as server, anthropic(server) as client:
        pieces = [each async for each in client.stream(HI, tools=[SPEC])]
    shown = [each for each in pieces if isinstance(each, Delta)]
    assert [each.thinking or each.text or bool(each.tool_call) for each in shown] == [
        *("hm", "Yes.", True)
    ]


@pytest.mark.parametrize("client", [AnthropicClient, GeminiClient, MistralClient])
def test_a_wrong_option_is_refused_at_once(client: Any) -> None:
    with pytest.raises(ValueError, match="carries"):
        client("m", api_key="k", modalities=frozenset({"text", "smell"}))
    with pytest.raises(TypeError, match="colour"):
        client("m", api_key="k", colour="red")
    with pytest.raises(ValueError, match="no key has"):
        client("m", api_key="k k")
    with pytest.raises(ValueError, match="http or https"):
        client("m", api_key="k", base_url="ftp://x")
