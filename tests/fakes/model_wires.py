"""The wires of model clients: for each, its strict server, its client, and its worst answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from fakes import (
    anthropic_server,
    bedrock_server,
    gemini_server,
    mistral_server,
    ollama_server,
)
from fakes.anthropic_server import AnthropicServer, ClaudeOnVertex
from fakes.bedrock_server import BedrockServer, frame
from fakes.gemini_server import GeminiServer
from fakes.llm_server import API_KEY, Answers, ChatServer, ModelServer, Raw
from fakes.mistral_server import MistralServer
from fakes.ollama_server import OllamaServer, line
from fakes.responses_server import ResponsesServer
from lib.llm import (
    AnthropicClient,
    BedrockClient,
    ChatClient,
    GeminiClient,
    MistralClient,
    OllamaClient,
    OpenAIClient,
)
from lib.llm.api.client import ModelClient
from lib.testing.providers import error_body

SSE: Final = {"content-type": "text/event-stream"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """A wire and what it can carry.

    Attributes:
        serve: makes a strict server of a script.
        connect: makes a client of the model "m" for the address of such a server.
        wait: an answer with status 429, and the seconds to wait that it names.
        broken: an answer with status 500.
        overloaded: an answer that means that the server has too much to do.
        wrong: an answer that means that the request is wrong.
        request_id: the name of the request that these answers carry.
        failing: a stream that begins well and then reports an error.
        malformed: a stream with a piece that cannot be read.
        unknown: a stream with events, fields and blocks that no release knows, whose text is "hi".
        modalities: what it carries beside text.
        thinking: True if thinking goes back to the server with its seal.
        cache_reads: True if the server counts what it reads from its cache.
        reasoning_tokens: True if the server counts them apart.
        cache_writes: True if the server counts what it puts into its cache.
        refusals: True if the wire has a reason to stop for them.
        error_flag: True if a tool's failure has a field.
        ids: True if answers have a name.
        keeps_unknown: True if a block that no release knows is kept.
    """

    serve: Callable[..., ModelServer]
    connect: Callable[..., ModelClient]
    wait: tuple[Raw, float | None]
    broken: Raw
    overloaded: Raw
    wrong: Raw
    failing: Raw
    malformed: Raw
    unknown: Raw
    request_id: str | None = None
    modalities: frozenset[str] = frozenset({"text"})
    thinking: bool = True
    cache_reads: bool = True
    reasoning_tokens: bool = True
    cache_writes: bool = True
    refusals: bool = True
    error_flag: bool = True
    ids: bool = True
    keeps_unknown: bool = True
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])


def _sse(*events: Mapping[str, Any], end: str = "") -> Raw:
    body = "".join(f"data: {json.dumps(each)}\n\n" for each in events) + end
    return Raw(body=body.encode(), headers=SSE)


def _keyed(options: Mapping[str, Any]) -> dict[str, Any]:
    return {"api_key": API_KEY, **options}


# -- OpenAI --------------------------------------------------------------------------------------


def _openai(status: int, code: str, **headers: str) -> Raw:
    named = {"x-request-id": "req_1"} | {k.replace("_", "-"): v for k, v in headers.items()}
    body = json.dumps(error_body("no", kind=code, code=code)).encode()
    return Raw(status=status, body=body, headers={"content-type": "application/json", **named})


_CHUNK: Final[Mapping[str, Any]] = {
    "choices": [{"delta": {"content": "hi"}, "finish_reason": None}]
}
_CHAT_END: Final[Mapping[str, Any]] = {
    "choices": [{"delta": {}, "finish_reason": "stop"}],
    "new": {"a": 1},
}
_ITEM: Final = {"type": "message", "content": [{"type": "output_text", "text": "hi"}]}


def _responses(answers: Answers, **options: Any) -> ModelServer:
    return ResponsesServer(answers, **options)


def _chat_client(base_url: str, **options: Any) -> ModelClient:
    return ChatClient("m", base_url=base_url, **_keyed(options))


def _responses_client(base_url: str, **options: Any) -> ModelClient:
    return OpenAIClient("m", base_url=base_url, **_keyed(options))


_OPENAI: Final[Mapping[str, Any]] = {
    "wait": (_openai(429, "rate_limit_exceeded", retry_after_ms="1500"), 1.5),
    "broken": _openai(500, "server_error"),
    "overloaded": _openai(503, "server_error"),
    "wrong": _openai(400, "invalid_request_error"),
    "request_id": "req_1",
    "error_flag": False,
}

# -- Anthropic -----------------------------------------------------------------------------------


def _anthropic_client(base_url: str, **options: Any) -> ModelClient:
    return AnthropicClient("m", base_url=base_url, **_keyed(options))


def _claude_on_vertex(base_url: str, **options: Any) -> ModelClient:
    key = options.pop("api_key", API_KEY)
    return AnthropicClient("m", base_url=base_url, project="p-1", token=lambda: key, **options)


_BEGUN: Final = {"type": "message_start", "message": {"id": "1", "model": "m", "new": 1}}
_TEXT: Final = {
    "type": "content_block_start",
    "index": 0,
    "content_block": {"type": "text", "text": "hi", "new": 1},
}
_NEW: Final = {"type": "content_block_start", "index": 1, "content_block": {"type": "new", "a": 1}}
_STOPPED: Final = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {}}

_ANTHROPIC: Final[Mapping[str, Any]] = {
    "wait": (
        anthropic_server.failed(429, "rate_limit_error", headers={"retry-after": "7.5"}),
        7.5,
    ),
    "broken": anthropic_server.failed(500, "api_error"),
    "overloaded": anthropic_server.failed(529, "overloaded_error"),
    "wrong": anthropic_server.failed(400, "invalid_request_error"),
    "request_id": "req_1",
    "failing": _sse(_BEGUN, _TEXT, {"type": "error", "error": {"type": "overloaded_error"}}),
    "malformed": _sse(_BEGUN, _TEXT, end="event: content_block_delta\ndata: {oops\n\n"),
    "unknown": _sse(
        _BEGUN, {"type": "new"}, _TEXT, _NEW, _STOPPED, {"type": "message_stop", "new": 1}
    ),
    "modalities": frozenset({"text", "image", "file"}),
}


# -- Google --------------------------------------------------------------------------------------


def _gemini_client(base_url: str, **options: Any) -> ModelClient:
    return GeminiClient("m", base_url=base_url, **_keyed(options))


def _vertex_client(base_url: str, **options: Any) -> ModelClient:
    key = options.pop("api_key", API_KEY)
    return GeminiClient("m", base_url=base_url, project="p-1", token=lambda: key, **options)


_RETRY: Final = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "7.5s"}
_REPLY_WITH_NEW_FIELDS: Final = {
    "candidates": [{"content": {"parts": [{"text": "hi", "new": 1}], "new": 1}}]
}
_UNKNOWN: Final = {"candidates": [{"content": {"parts": [{"newPart": {"a": 1}}]}}], "new": 1}

_GEMINI: Final[Mapping[str, Any]] = {
    "serve": GeminiServer,
    "wait": (gemini_server.failed(429, "RESOURCE_EXHAUSTED", details=[_RETRY]), 7.5),
    "broken": gemini_server.failed(500, "INTERNAL"),
    "overloaded": gemini_server.failed(503, "UNAVAILABLE"),
    "wrong": gemini_server.failed(400, "INVALID_ARGUMENT"),
    "failing": _sse(_REPLY_WITH_NEW_FIELDS, {"error": {"code": 503, "status": "UNAVAILABLE"}}),
    "malformed": _sse(_REPLY_WITH_NEW_FIELDS, end="data: {oops\n\n"),
    "unknown": _sse(
        _REPLY_WITH_NEW_FIELDS,
        _UNKNOWN,
        {"candidates": [{"finishReason": "STOP"}]},
        {"usageMetadata": {"promptTokenCount": 1, "new": 1}},
    ),
    "modalities": frozenset({"text", "image", "audio", "file"}),
    "cache_writes": False,
}


# -- Amazon --------------------------------------------------------------------------------------


def _bedrock_client(base_url: str, **options: Any) -> ModelClient:
    chosen: dict[str, Any] = {"api_key": API_KEY, "region": bedrock_server.REGION, **options}
    return BedrockClient("m", base_url=base_url, **chosen)


_BEDROCK_TEXT: Final = frame("contentBlockDelta", {"delta": {"text": "hi", "new": 1}, "new": 1})


def _frames(*frames: bytes) -> Raw:
    return Raw(body=b"".join(frames), headers={"content-type": BedrockServer.stream_type})


# -- Mistral and Ollama --------------------------------------------------------------------------


def _mistral_client(base_url: str, **options: Any) -> ModelClient:
    return MistralClient("m", base_url=base_url, **_keyed(options))


def _ollama_client(base_url: str, **options: Any) -> ModelClient:
    return OllamaClient("m", base_url=base_url, **_keyed(options))


_NEW_CHUNK: Final[Mapping[str, Any]] = {
    "choices": [{"delta": {"content": [{"type": "new", "a": 1}]}}],
    "new": 1,
}
_LINE: Final = {"model": "m", "message": {"content": "hi", "new": 1}, "done": False, "new": 1}


def _lines(*values: Mapping[str, Any], end: bytes = b"") -> Raw:
    body = b"".join(map(line, values)) + end
    return Raw(body=body, headers={"content-type": OllamaServer.stream_type})


WIRES: Final[Mapping[str, Wire]] = {
    "chat": Wire(
        **_OPENAI,
        serve=ChatServer,
        connect=_chat_client,
        failing=_sse(_CHUNK, {"error": {"code": 503, "message": "no"}}),
        malformed=_sse(_CHUNK, end="data: {oops\n\n"),
        unknown=_sse({**_CHUNK, "new": 1}, {"choices": [], "new": 1}, _CHAT_END),
        modalities=frozenset({"text", "image", "audio", "file"}),
        thinking=False,
        cache_writes=False,
        keeps_unknown=False,
    ),
    "responses": Wire(
        **_OPENAI,
        serve=_responses,
        connect=_responses_client,
        failing=_sse({"type": "error", "code": "server_error", "message": "no"}),
        malformed=_sse(end="data: {oops\n\n"),
        unknown=_sse(
            {"type": "response.new", "a": 1},
            {
                "type": "response.completed",
                "response": {"status": "completed", "output": [_ITEM, {"type": "new"}], "new": 1},
            },
        ),
        modalities=frozenset({"text", "image", "file"}),
        options={"store": False},
    ),
    "anthropic": Wire(**_ANTHROPIC, serve=AnthropicServer, connect=_anthropic_client),
    "claude-vertex": Wire(**_ANTHROPIC, serve=ClaudeOnVertex, connect=_claude_on_vertex),
    "gemini": Wire(**_GEMINI, connect=_gemini_client),
    "bedrock": Wire(
        serve=BedrockServer,
        connect=_bedrock_client,
        wait=(bedrock_server.failed(429, "ThrottlingException"), None),
        broken=bedrock_server.failed(500, "InternalServerException"),
        overloaded=bedrock_server.failed(503, "ServiceUnavailableException"),
        wrong=bedrock_server.failed(400, "ValidationException"),
        request_id="req_1",
        failing=_frames(_BEDROCK_TEXT, frame("throttlingException", {}, exception=True)),
        malformed=_frames(_BEDROCK_TEXT, _BEDROCK_TEXT[:-1] + b"x"),
        unknown=_frames(
            frame("newEvent", {"a": 1}),
            _BEDROCK_TEXT,
            frame("contentBlockStart", {"contentBlockIndex": 1, "start": {"newBlock": {"a": 1}}}),
            frame("messageStop", {"stopReason": "end_turn", "new": 1}),
            frame("metadata", {"usage": {"inputTokens": 1, "new": 1}}),
        ),
        modalities=frozenset({"text", "image", "audio", "file"}),
        reasoning_tokens=False,
    ),
    "mistral": Wire(
        serve=MistralServer,
        connect=_mistral_client,
        wait=(mistral_server.failed(429, retry_after="7.5"), 7.5),
        broken=mistral_server.failed(500),
        overloaded=mistral_server.failed(503),
        wrong=mistral_server.failed(400),
        request_id="req_1",
        failing=_sse(_CHUNK, {"choices": [{"delta": {}, "finish_reason": "error"}]}),
        malformed=_sse(_CHUNK, end="data: {oops\n\n"),
        unknown=_sse({**_CHUNK, "new": 1}, _NEW_CHUNK, _CHAT_END),
        modalities=frozenset({"text", "image", "audio", "file"}),
        reasoning_tokens=False,
        cache_writes=False,
        error_flag=False,
        keeps_unknown=False,
    ),
    "ollama": Wire(
        serve=OllamaServer,
        connect=_ollama_client,
        wait=(ollama_server.failed(429), None),
        broken=ollama_server.failed(500),
        overloaded=ollama_server.failed(503),
        wrong=ollama_server.failed(400),
        failing=_lines(_LINE, {"error": "no"}),
        malformed=_lines(_LINE, end=b"{oops\n"),
        unknown=_lines(_LINE, {"done": True, "done_reason": "stop", "new": 1}),
        modalities=frozenset({"text", "image"}),
        thinking=False,
        reasoning_tokens=False,
        cache_reads=False,
        cache_writes=False,
        refusals=False,
        error_flag=False,
        ids=False,
        keeps_unknown=False,
    ),
    "vertex": Wire(**_GEMINI, connect=_vertex_client),
}
