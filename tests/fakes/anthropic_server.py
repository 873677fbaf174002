"""A server of Anthropic's messages API on loopback: strict, with a cache and seals of its own.

It refuses what Anthropic refuses: calls without their results in the next message, results without
a call, thinking that it did not sign or that was moved (`preserved_thinking`), blocks without
anything to read, fields that it does not know. What it counts as read from its cache is what the
marks of earlier requests cover.

Source: the types of anthropic-sdk-python 2.12, whose client reads its answers
(scripts/vendor-sdks), and error bodies as issues of users quote them (2024 to 2026).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, cast

from fakes.llm_server import API_KEY, Answers, ModelServer, Raw, Received
from fakes.preserved_thinking import PreservedThinking
from lib.llm import Opaque, Part, Reply, Text, Thinking, ToolCall, Usage

_FIELDS: Final = frozenset(
    {"cache_control", "max_tokens", "messages", "metadata", "model", "output_config"}
    | {"service_tier", "stop_sequences", "stream", "system", "thinking", "tool_choice", "tools"}
)
_CACHEABLE: Final = frozenset({"document", "image", "text", "tool_result", "tool_use"})
_USER: Final = frozenset({"document", "image", "text", "tool_result"})
_BOUNDS: Final = frozenset({"maximum", "minimum", "maxLength", "minLength", "pattern"})
_STOPS: Final = {
    "stop": "end_turn",
    "tool_calls": "tool_use",
    "length": "max_tokens",
    "content_filter": "refusal",
    "other": "pause_turn",
}
_ID: Final = re.compile(r"[a-zA-Z0-9_-]+")
_Block = Mapping[str, Any]


class AnthropicServer(ModelServer):
    """Answers in turn what it was given, or what a function of the request's body returns.

    The signatures of thinking in a script are raw. Thinking without text is redacted thinking.
    """

    path = "/v1/messages"

    def __init__(
        self, answers: Answers, *, api_key: str = API_KEY, slice_bytes: int | None = None
    ) -> None:
        """Take the script."""
        super().__init__(answers, api_key=api_key, slice_bytes=slice_bytes)
        self._thinking = PreservedThinking(_seal, _conditions, ["cache_control"])
        self._cached: set[str] = set()
        self._made = 0

    def admit(self, received: Received) -> Raw | None:
        """Return the answer to a request with a wrong key, version or path."""
        keys = {received.headers.get("x-api-key"), received.headers.get("authorization")}
        if not keys & {self._api_key, f"Bearer {self._api_key}"}:
            return failed(401, "authentication_error", "invalid x-api-key")
        if not received.headers.get("anthropic-version"):
            return failed(400, "invalid_request_error", "anthropic-version: header is required")
        if received.path != self.path:
            return failed(404, "not_found_error", "Not Found")
        return None

    def refuse(self, body: dict[str, Any]) -> Raw | None:
        """Return the answer to a request that breaks a rule, None for one that is in order."""
        for problem in (*problems(body), *self._thinking.problems(body, body.get("thinking", {}))):
            return failed(400, "invalid_request_error", problem)
        return None

    def write(self, reply: Reply, body: dict[str, Any]) -> bytes | Iterable[bytes]:
        """Return the answer, whole or as events."""
        self._made += 1
        usage = Usage(input_tokens=1, output_tokens=1) if reply.usage == Usage() else reply.usage
        read, written = self._cache(body)
        if not (usage.cache_read_tokens or usage.cache_write_tokens):
            total = max(usage.input_tokens, read + written)
            usage = replace(
                usage, input_tokens=total, cache_read_tokens=read, cache_write_tokens=written
            )
        content = [*map(_block, reply.parts)]
        self._thinking.seal(body, content)
        message = {
            "id": reply.id or f"msg_{self._made}",
            "type": "message",
            "role": "assistant",
            "model": reply.model or body["model"],
            "content": content,
            "stop_reason": _STOPS[_stop(reply)],
            "stop_sequence": None,
            "usage": _usage(usage),
        }
        return _events(message) if body.get("stream") else json.dumps(message).encode()

    def _cache(self, body: Mapping[str, Any]) -> tuple[int, int]:
        """Return how many characters the cache held, and how many it holds from now on."""
        prefix, read, end = json.dumps([body["model"], body.get("tools", ())]), 0, 0
        prefix = prefix.replace(_MARK, "")
        marked = list[str]()
        for block in (*body.get("system", ()), *(b for _, b in _all_blocks(body["messages"]))):
            prefix += json.dumps({k: v for k, v in block.items() if k != "cache_control"})
            if prefix in self._cached:
                read = len(prefix)
            if "cache_control" in block:
                marked.append(prefix)
                end = len(prefix)
        self._cached |= set(marked)
        return read, max(0, end - read)


_VERTEX_PATH: Final = re.compile(
    r"/v1/projects/[\w-]+/locations/[\w-]+/publishers/anthropic"
    r"/models/(?P<model>[\w.@-]+):(?P<method>rawPredict|streamRawPredict)"
)


class ClaudeOnVertex(AnthropicServer):
    """The same behind Vertex AI: the path names the model, the body the version of the API."""

    def full(self, received: Received) -> dict[str, Any]:
        """Return the body as Anthropic takes it, with the model of the path."""
        found = _VERTEX_PATH.fullmatch(received.path)
        body = {k: v for k, v in received.body.items() if k != "anthropic_version"}
        return body if found is None else {**body, "model": found["model"]}

    def admit(self, received: Received) -> Raw | None:
        """Return the answer to a request with a wrong token, path, version or place of a model."""
        sent = json.loads(received.content)
        if received.headers.get("authorization") != f"Bearer {self._api_key}":
            return failed(401, "authentication_error", "UNAUTHENTICATED")
        if not (found := _VERTEX_PATH.fullmatch(received.path)):
            return failed(404, "not_found_error", "NOT_FOUND")
        if not sent.get("anthropic_version"):
            return failed(400, "invalid_request_error", "anthropic_version: Field required")
        if "model" in sent or bool(sent.get("stream")) != found["method"].startswith("stream"):
            return failed(400, "invalid_request_error", "model, stream: as in the path")
        return None


def _seal(block: _Block) -> str | None:
    if block.get("type") not in {"thinking", "redacted_thinking"}:
        return None
    return block.get("signature") or block.get("data") or ""


def _conditions(body: Mapping[str, Any]) -> Sequence[Any]:
    return [body.get("system", ()), body.get("tools", ())]


_MARK: Final = ', "cache_control": {"type": "ephemeral"}'


def failed(
    status: int, kind: str, message: str = "no", headers: Mapping[str, str] | None = None
) -> Raw:
    """Return an error answer as Anthropic writes it."""
    error = {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}
    own = {"content-type": "application/json", "request-id": "req_1", **(headers or {})}
    return Raw(status=status, body=json.dumps(error).encode(), headers=own)


# -- what is refused ---------------------------------------------------------------------------


def problems(body: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is wrong with a request."""
    for name in sorted(body.keys() - _FIELDS):
        yield f"{name}: Extra inputs are not permitted"
    if type(body.get("max_tokens")) is not int or not isinstance(body.get("model"), str):
        yield "max_tokens, model: Field required"
    messages = cast(list[_Block], body.get("messages") or [])
    if not messages or messages[0].get("role") != "user":
        yield "messages: first message must use the user role"
    for number, message in enumerate(messages):
        yield from _message_problems(message, f"messages.{number}")
    yield from _pairs(messages)
    yield from _tool_problems(body, messages)
    yield from _mark_problems(body)
    yield from _schema_problems(body.get("output_config", {}).get("format", {}).get("schema"))


def _message_problems(message: _Block, place: str) -> Iterator[str]:
    role, content = message.get("role"), message.get("content")
    if role not in {"user", "assistant", "system"}:
        yield f"{place}: role"
    if not content:
        yield f"{place}: content must be non-empty"
    if isinstance(content, str):
        return
    for number, block in enumerate(cast(list[_Block], content or ())):
        if block.get("type") == "text" and not block.get("text", "").strip():
            yield f"{place}.content.{number}: text content blocks must contain non-whitespace text"
        if role != "assistant" and block.get("type") not in _USER:
            yield f"{place}.content.{number}: Input tag {block.get('type')!r} is not expected"
        if block.get("type") == "tool_use" and not isinstance(block.get("input"), dict):
            yield f"{place}.content.{number}.tool_use.input: Input should be a valid dictionary"


def _pairs(messages: Sequence[_Block]) -> Iterator[str]:
    waiting: set[str] = set()
    for number, message in enumerate(messages):
        blocks = _blocks_of(message)
        results = [str(b.get("tool_use_id")) for b in blocks if b.get("type") == "tool_result"]
        if message.get("role") != "system":
            for missing in sorted(waiting - set(results)):
                yield f"messages.{number}: `tool_use` ids without `tool_result` blocks: {missing}"
            for stray in sorted(set(results) - waiting):
                yield f"messages.{number}: unexpected `tool_use_id` in `tool_result`: {stray}"
            kinds = [b.get("type") for b in blocks]
            if "tool_result" in kinds and kinds[0] != "tool_result":
                yield f"messages.{number}: tool_result blocks must come first"
            waiting = {str(b.get("id")) for b in blocks if b.get("type") == "tool_use"}
        for bad in [each for each in waiting if not _ID.fullmatch(each)]:
            yield f"messages.{number}: tool_use.id should match the pattern: {bad}"
    if waiting:
        yield "messages: `tool_use` ids without `tool_result` blocks at the end"


def _tool_problems(body: Mapping[str, Any], messages: Sequence[_Block]) -> Iterator[str]:
    kinds = {block.get("type") for _, block in _all_blocks(messages)}
    if kinds & {"tool_use", "tool_result"} and not body.get("tools"):
        yield "Requests which include `tool_use` or `tool_result` blocks must define tools"
    if "tool_choice" in body and not body.get("tools"):
        yield "tool_choice: may only be specified while providing tools"
    for number, tool in enumerate(body.get("tools", ())):
        if tool.get("input_schema", {}).get("type") != "object" or not tool.get("name"):
            yield f"tools.{number}.input_schema.type: Field required"


def _mark_problems(body: Mapping[str, Any]) -> Iterator[str]:
    content = [block for _, block in _all_blocks(body.get("messages", ()))]
    blocks = [*body.get("tools", ()), *body.get("system", ()), *content]
    marked = [block for block in blocks if "cache_control" in block]
    if len(marked) > 4:
        yield "A maximum of 4 blocks with cache_control may be provided"
    for block in marked:
        if block in content and block.get("type") not in _CACHEABLE:
            yield "cache_control: Extra inputs are not permitted"


def _schema_problems(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        node = cast(dict[str, Any], schema)
        if node.get("type") == "object" and node.get("additionalProperties") is not False:
            yield "output_config.format.schema: additionalProperties must be false"
        if _BOUNDS & node.keys():
            yield f"output_config.format.schema: not supported: {sorted(_BOUNDS & node.keys())}"
        children: list[Any] = [*node.get("properties", {}).values(), node.get("items")]
        for child in (*children, *node.get("anyOf", ())):
            yield from _schema_problems(child)


def _blocks_of(message: _Block) -> list[_Block]:
    content = message.get("content")
    return cast(list[_Block], content) if isinstance(content, list) else []


def _all_blocks(messages: Sequence[_Block]) -> Iterator[tuple[str, _Block]]:
    for number, message in enumerate(messages):
        for place, block in enumerate(_blocks_of(message)):
            yield f"messages.{number}.content.{place}", block


# -- what is answered --------------------------------------------------------------------------


def _stop(reply: Reply) -> str:
    return "tool_calls" if reply.tool_calls and reply.stop == "stop" else reply.stop


def _block(part: Part) -> dict[str, Any]:
    match part:
        case Text(text):
            return {"type": "text", "text": text}
        case Thinking("", signature):
            return {"type": "redacted_thinking", "data": signature}
        case Thinking(text, signature):
            return {"type": "thinking", "thinking": text, "signature": signature or ""}
        case ToolCall(call_id, name, arguments):
            return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}
        case Opaque(data):
            return data["block"]
        case _:
            raise NotImplementedError(part)


def _usage(usage: Usage) -> dict[str, Any]:
    cached = usage.cache_read_tokens + usage.cache_write_tokens
    return {
        "input_tokens": usage.input_tokens - cached,
        "cache_read_input_tokens": usage.cache_read_tokens,
        "cache_creation_input_tokens": usage.cache_write_tokens,
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"thinking_tokens": usage.reasoning_tokens},
    }


def event(data: Mapping[str, Any]) -> bytes:
    """Return one event of a stream."""
    return f"event: {data['type']}\ndata: {json.dumps(data)}\n\n".encode()


def _events(message: dict[str, Any]) -> Iterator[bytes]:
    usage, content = message["usage"], message["content"]
    begun: dict[str, Any] = {
        **message,
        "content": [],
        "stop_reason": None,
        "usage": {**usage, "output_tokens": 1},
    }
    yield event({"type": "message_start", "message": begun})
    yield event({"type": "ping"})
    for index, block in enumerate(content):
        head, deltas = _pieces(block)
        yield event({"type": "content_block_start", "index": index, "content_block": head})
        for delta in deltas:
            yield event({"type": "content_block_delta", "index": index, "delta": delta})
        yield event({"type": "content_block_stop", "index": index})
    delta = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    counts = {
        "output_tokens": usage["output_tokens"],
        "output_tokens_details": usage["output_tokens_details"],
        "cache_read_input_tokens": None,
    }
    yield event({"type": "message_delta", "delta": delta, "usage": counts})
    yield event({"type": "message_stop"})


def _pieces(block: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the start of a block, and what is added to it."""
    match block["type"]:
        case "text":
            pieces = [{"type": "text_delta", "text": each} for each in _cut(block["text"])]
            return {**block, "text": ""}, pieces
        case "thinking":
            pieces = [
                {"type": "thinking_delta", "thinking": each} for each in _cut(block["thinking"])
            ]
            signature = {"type": "signature_delta", "signature": block["signature"]}
            return {**block, "thinking": "", "signature": ""}, [*pieces, signature]
        case "tool_use" | "server_tool_use":
            text = json.dumps(block["input"]) if block["input"] else ""
            pieces = [{"type": "input_json_delta", "partial_json": each} for each in _cut(text)]
            return {**block, "input": {}}, pieces
        case _:
            return block, []


def _cut(text: str) -> list[str]:
    return [text[start : start + 5] for start in range(0, len(text), 5)]
