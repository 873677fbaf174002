"""The vendors' own SDKs read what our fakes write, and take what our clients send.

    scripts/vendor-sdks

It makes an environment beside the usual one; without it nothing runs.
"""

import asyncio
import importlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from fakes.anthropic_server import AnthropicServer
from fakes.bedrock_server import ACCESS_KEY, REGION, BedrockServer
from fakes.gemini_server import GeminiServer
from fakes.llm_server import API_KEY, ModelServer
from fakes.mistral_server import MistralServer
from fakes.model_wires import WIRES
from fakes.ollama_server import OllamaServer
from lib.llm import (
    BedrockClient,
    File,
    Image,
    Message,
    Reply,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    ToolSpec,
    Usage,
)

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif("LIB_TEST_VENDOR_SDKS" not in os.environ, reason="run scripts/vendor-sdks"),
    pytest.mark.filterwarnings("ignore"),  # of the SDKs
]

ANSWER = Reply(
    (
        Thinking("I think.", "c2VhbHNlYWw="),
        Text("Hello, world."),
        ToolCall("abcdefghi", "search", {"q": "ü"}),
    ),
    Usage(input_tokens=100, output_tokens=40, cache_read_tokens=60),
)
SCHEMA = {"type": "object", "properties": {"q": {"type": "string"}}}


def sdk(name: str) -> Any:
    return importlib.import_module(name)


def root(server: ModelServer) -> str:
    return server.base_url.removesuffix("/v1")


# -- the SDKs read the fakes -------------------------------------------------------------------


async def test_anthropic_reads_its_fake() -> None:
    tools = [{"name": "search", "input_schema": SCHEMA}]
    talk: list[Any] = [{"role": "user", "content": "hi"}]
    options: dict[str, Any] = {"model": "m", "max_tokens": 99, "tools": tools}

    async with AnthropicServer([ANSWER, ANSWER, "Done."]) as server:
        client = sdk("anthropic").AsyncAnthropic(base_url=root(server), api_key=API_KEY)
        whole = await client.messages.create(messages=talk, **options)
        async with client.messages.stream(messages=talk, **options) as stream:
            streamed = await stream.get_final_message()
        result = {"type": "tool_result", "tool_use_id": "abcdefghi", "content": "x"}
        talk += [
            {"role": "assistant", "content": whole.content},
            {"role": "user", "content": [result]},
        ]
        last = await client.messages.create(messages=talk, **options)
        await client.close()
        for message in (whole, streamed):
            assert [block.type for block in message.content] == ["thinking", "text", "tool_use"]
            assert message.content[0].signature == "c2VhbHNlYWw="
            assert message.content[2].input == {"q": "ü"}
            assert (message.usage.input_tokens, message.usage.cache_read_input_tokens) == (40, 60)
            assert message.stop_reason == "tool_use"
        assert last.content[0].text == "Done."


async def test_google_reads_its_fake() -> None:
    types: Any = sdk("google.genai.types")
    declared = {"name": "search", "parameters_json_schema": SCHEMA}
    config = types.GenerateContentConfig(
        tools=[types.Tool(function_declarations=[declared])],
        automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
    )
    talk = [types.Content(role="user", parts=[types.Part(text="hi")])]

    async with GeminiServer([ANSWER, ANSWER, "Done."]) as server:
        options = types.HttpOptions(base_url=root(server), api_version="v1")
        client = sdk("google.genai").Client(api_key=API_KEY, http_options=options)
        models = client.aio.models
        whole = await models.generate_content(model="m", contents=talk, config=config)
        chunks = [
            chunk
            async for chunk in await models.generate_content_stream(
                model="m", contents=talk, config=config
            )
        ]
        response = types.FunctionResponse(name="search", response={"output": "x"})
        back = types.Content(role="user", parts=[types.Part(function_response=response)])
        talk += [whole.candidates[0].content, back]
        last = await models.generate_content(model="m", contents=talk, config=config)
        await client.aio.aclose()
        thought, text, call = whole.candidates[0].content.parts
        assert thought.thought
        assert thought.thought_signature == b"sealseal"
        assert (text.text, call.function_call.args) == ("Hello, world.", {"q": "ü"})
        assert whole.usage_metadata.cached_content_token_count == 60
        parts = [part for chunk in chunks for part in chunk.candidates[0].content.parts or ()]
        assert "".join(part.text for part in parts if part.text and not part.thought) == text.text
        assert parts[-1].function_call.args == {"q": "ü"}
        assert chunks[-1].candidates[0].finish_reason == "STOP"
        assert last.text == "Done."


def _bedrock(server: ModelServer) -> Any:
    session = sdk("botocore.session").Session()
    session.set_credentials(ACCESS_KEY, API_KEY)
    return session.create_client(
        "bedrock-runtime", region_name=REGION, endpoint_url=root(server), use_ssl=False
    )


async def test_botocore_reads_its_fake() -> None:
    talk: list[Any] = [{"role": "user", "content": [{"text": "hi"}]}]
    tools = [{"toolSpec": {"name": "search", "inputSchema": {"json": SCHEMA}}}]

    def speak(server: ModelServer) -> tuple[Any, list[Any], Any]:
        client = _bedrock(server)
        options: dict[str, Any] = {"modelId": "a:b/c", "toolConfig": {"tools": tools}}
        whole = client.converse(messages=talk, **options)
        events = [*client.converse_stream(messages=talk, **options)["stream"]]
        result = {"toolResult": {"toolUseId": "abcdefghi", "content": [{"text": "x"}]}}
        back = [*talk, whole["output"]["message"], {"role": "user", "content": [result]}]
        last = client.converse(messages=back, **options)
        client.close()
        return whole, events, last

    async with BedrockServer([ANSWER, ANSWER, "Done."]) as server:
        whole, events, last = await asyncio.to_thread(speak, server)
        reasoning, text, call = whole["output"]["message"]["content"]
        assert reasoning["reasoningContent"]["reasoningText"]["signature"] == "c2VhbHNlYWw="
        assert (text["text"], call["toolUse"]["input"]) == ("Hello, world.", {"q": "ü"})
        assert whole["usage"]["cacheReadInputTokens"] == 60
        deltas = [
            each["contentBlockDelta"]["delta"] for each in events if "Delta" in next(iter(each))
        ]
        assert "".join(each.get("text", "") for each in deltas) == "Hello, world."
        assert [*events[-2], *events[-1]] == ["messageStop", "metadata"]
        assert last["output"]["message"]["content"] == [{"text": "Done."}]


async def test_mistral_reads_its_fake() -> None:
    tools = [{"type": "function", "function": {"name": "search", "parameters": SCHEMA}}]
    talk: list[Any] = [{"role": "user", "content": "hi"}]
    options: dict[str, Any] = {"model": "m", "tools": tools}

    async with MistralServer([ANSWER, ANSWER, "Done."]) as server:
        client = sdk("mistralai.client").Mistral(api_key=API_KEY, server_url=root(server))
        whole = await client.chat.complete_async(messages=talk, **options)
        stream = await client.chat.stream_async(messages=talk, **options)
        chunks = [event.data async for event in stream]
        message = whole.choices[0].message
        talk += [message, {"role": "tool", "tool_call_id": "abcdefghi", "content": "x"}]
        last = await client.chat.complete_async(messages=talk, **options)
        thought, text = message.content
        assert (thought.type, thought.signature, text.text) == (
            "thinking",
            "c2VhbHNlYWw=",
            "Hello, world.",
        )
        assert json.loads(message.tool_calls[0].function.arguments) == {"q": "ü"}
        assert whole.usage.prompt_tokens == 100
        texts = [chunk.choices[0].delta.content for chunk in chunks]
        assert "".join(each for each in texts if isinstance(each, str)) == "Hello, world."
        assert chunks[-1].choices[0].finish_reason == "tool_calls"
        assert last.choices[0].message.content == "Done."


async def test_ollama_reads_its_fake() -> None:
    tools = [{"type": "function", "function": {"name": "search", "parameters": SCHEMA}}]
    talk: list[Any] = [{"role": "user", "content": "hi"}]
    options: dict[str, Any] = {"model": "m", "tools": tools}

    async with OllamaServer([ANSWER, ANSWER, "Done."]) as server:
        client = sdk("ollama").AsyncClient(
            host=root(server), headers={"authorization": f"Bearer {API_KEY}"}
        )
        whole = await client.chat(messages=talk, **options)
        chunks = [each async for each in await client.chat(messages=talk, stream=True, **options)]
        talk += [whole.message, {"role": "tool", "tool_name": "search", "content": "x"}]
        last = await client.chat(messages=talk, **options)
        assert (whole.message.thinking, whole.message.content) == ("I think.", "Hello, world.")
        assert whole.message.tool_calls[0].function.arguments == {"q": "ü"}
        assert whole.prompt_eval_count == 100
        assert "".join(each.message.content for each in chunks) == "Hello, world."
        assert chunks[-1].done
        assert last.message.content == "Done."


# -- the SDKs' types take our requests ---------------------------------------------------------


async def _requests(name: str, *parts: Any) -> Sequence[dict[str, Any]]:
    """Return what a client sends for a conversation with all that its wire has."""
    wire = WIRES[name]
    spec = ToolSpec("search", "Search.", SCHEMA)
    settings: dict[str, Any] = {"max_tokens": 99, "stop": "END", "tool_choice": "search"}
    if name != "anthropic":  # whose newest version has no such field
        settings["temperature"] = 0.5
    thought = Reply((Thinking("I think.", "c2VhbHNlYWw="), *ANSWER.parts[1:]))
    output = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}

    async with wire.serve([thought, "Done.", "{}"]) as server:
        opened: Any = wire.connect(server.base_url, modalities=wire.modalities)
        async with opened as client:
            talk = [Message.system("Be brief."), Message.user("hi", *parts)]
            reply = await client.complete(talk, tools=[spec], settings=settings)
            results = [ToolResult(each.id, "no", is_error=True) for each in reply.tool_calls]
            talk += [reply.message, Message.tool(*results), Message.user("And?")]
            *_, _last = [each async for each in client.stream(talk, tools=[spec])]
            await client.complete(talk[:2], output=output)
        return [request.body for request in server.requests]


PNG = Image(data=b"\x89PNG", media_type="image/png")
PDF = File(data=b"%PDF", media_type="application/pdf", name="plan.pdf")


async def test_types_of_anthropic_take_our_requests() -> None:
    params: Any = sdk("anthropic.types.message_create_params")
    adapter: Any = sdk("pydantic").TypeAdapter
    for body in await _requests("anthropic", PNG, PDF):
        kind = "MessageCreateParamsStreaming" if body.get("stream") else None
        held = adapter(getattr(params, kind or "MessageCreateParamsNonStreaming"))
        assert {*body} <= {*held.validate_python(body)}


async def test_types_of_google_take_our_requests() -> None:
    types: Any = sdk("google.genai.types")
    for body in await _requests("gemini", PNG, PDF):
        for content in (*body["contents"], body["systemInstruction"]):
            types.Content.model_validate(content)
        for tool in body.get("tools", ()):
            types.Tool.model_validate(tool)
        types.ToolConfig.model_validate(body.get("toolConfig", {}))
        types.GenerationConfig.model_validate(body.get("generationConfig", {}))


async def test_the_service_model_of_aws_takes_our_requests() -> None:
    session = sdk("botocore.session").Session()
    model = session.get_service_model("bedrock-runtime")
    validate: Callable[..., Any] = sdk("botocore.validate").ParamValidator().validate
    for body in await _requests("bedrock", PNG, PDF):
        shape = model.operation_model("ConverseStream" if body["stream"] else "Converse")
        own = {key: value for key, value in body.items() if key not in {"model", "stream"}}
        report = validate({"modelId": "m", **own}, shape.input_shape)
        assert not report.has_errors(), report.generate_report()


async def test_types_of_mistral_take_our_requests() -> None:
    models: Any = sdk("mistralai.client.models")
    for body in await _requests("mistral", PNG, PDF):
        kind = models.ChatCompletionStreamRequest if body.get("stream") else None
        held = (kind or models.ChatCompletionRequest).model_validate(body)
        assert "Unknown" not in repr(held)


async def test_types_of_ollama_take_our_requests() -> None:
    types: Any = sdk("ollama._types")
    for body in await _requests("ollama", PNG):
        held: Mapping[str, Any] = types.ChatRequest.model_validate(body).model_dump(
            exclude_none=True
        )
        assert {*body} <= {*held}


# -- signatures --------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
async def test_a_request_is_signed_by_botocore(
    monkeypatch: pytest.MonkeyPatch, *, stream: bool
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", API_KEY)
    monkeypatch.delenv("AWS_BEARER_TOKEN_BEDROCK", raising=False)
    arn = "arn:aws:bedrock:eu-west-1:1:inference-profile/eu.anthropic.claude-x-v1:0"

    async with BedrockServer(["signed"]) as server:
        async with BedrockClient(arn, region=REGION, base_url=server.base_url) as client:
            if stream:
                *_, reply = [each async for each in client.stream([Message.user("ü")])]
            else:
                reply = await client.complete([Message.user("ü")])
            assert isinstance(reply, Reply)
            assert reply.text == "signed"
        (request,) = server.requests
        assert request.body["model"] == arn
        assert request.headers["authorization"].startswith("AWS4-HMAC-SHA256")
