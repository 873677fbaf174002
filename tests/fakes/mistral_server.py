"""A server of Mistral's chat API on loopback: strict, with seals of its own.

Source: the types of mistralai 3.7, whose client reads its answers (scripts/vendor-sdks), and error
bodies as issues of users quote them (gptel#1203, litellm#6323; 2024 to 2026).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from fakes.llm_server import API_KEY, Answers, ModelServer, Raw
from lib.llm import Part, Reply, Text, Thinking, ToolCall, Usage
from lib.testing.providers import refusal

_FIELDS: Final = frozenset(
    {"frequency_penalty", "max_tokens", "messages", "model", "parallel_tool_calls"}
    | {"presence_penalty", "prompt_mode", "random_seed", "reasoning_effort", "response_format"}
    | {"safe_prompt", "stop", "stream", "temperature", "tool_choice", "tools", "top_p"}
)
_CHUNKS: Final = frozenset({"document_url", "image_url", "input_audio", "text", "thinking"})
_ID: Final = re.compile(r"[a-zA-Z0-9]{9}")
_FINISH: Final = {"length": "model_length", "content_filter": "content_filter", "stop": "stop"}


class MistralServer(ModelServer):
    """Answers in turn what it was given, or what a function of the request's body returns.

    The signatures of thinking in a script are raw: a model takes back only its own.
    """

    path = "/v1/chat/completions"

    def __init__(
        self, answers: Answers, *, api_key: str = API_KEY, slice_bytes: int | None = None
    ) -> None:
        """Take the script."""
        super().__init__(answers, api_key=api_key, slice_bytes=slice_bytes)
        self._seals = set[tuple[str, str]]()
        self._made = 0

    def refuse(self, body: dict[str, Any]) -> Raw | None:
        """Return the answer to a request that breaks a rule, None for one that is in order."""
        if (error := refusal(body)) is not None:
            return failed(400, error["error"]["message"])
        for problem in (*_problems(body), *self._foreign(body)):
            return failed(422, problem)
        return None

    def write(self, reply: Reply, body: dict[str, Any]) -> bytes | Iterable[bytes]:
        """Return the answer, whole or as events."""
        self._made += 1
        thoughts = [part for part in reply.parts if isinstance(part, Thinking)]
        self._seals |= {(body["model"], part.signature or "") for part in thoughts}
        about = {"id": reply.id or f"cmpl{self._made}", "model": reply.model or body["model"]}
        usage = Usage(input_tokens=1, output_tokens=1) if reply.usage == Usage() else reply.usage
        counts = {
            "prompt_tokens": usage.input_tokens,
            "completion_tokens": usage.output_tokens,
            "total_tokens": usage.input_tokens + usage.output_tokens,
            "prompt_tokens_details": {"cached_tokens": usage.cache_read_tokens},
        }
        finish = "tool_calls" if reply.tool_calls else _FINISH[reply.stop]
        calls = [_call(number, call) for number, call in enumerate(reply.tool_calls)]
        if body.get("stream"):
            chunks = [{"content": each} for part in reply.parts for each in _pieces(part)]
            chunks += [{"tool_calls": [call]} for call in calls]
            return _events(chunks, about, finish, counts)
        message = {"role": "assistant", "content": _content(reply), "tool_calls": calls or None}
        choice = {"index": 0, "message": message, "finish_reason": finish}
        head = {"object": "chat.completion", "created": 1, "choices": [choice]}
        return json.dumps({**about, **head, "usage": counts}).encode()

    def _foreign(self, body: Mapping[str, Any]) -> Iterator[str]:
        for chunk in _chunks(body["messages"]):
            seal = (body["model"], chunk.get("signature"))
            if chunk.get("type") == "thinking" and seal not in self._seals:
                yield "Invalid signature in thinking chunk"


def failed(status: int, message: str = "no", **headers: str) -> Raw:
    """Return an error answer as Mistral writes it."""
    kind = {400: "invalid_request_error", 422: "invalid_request_error", 429: "rate_limited"}
    body = {"object": "error", "message": message, "type": kind.get(status, "server_error")}
    named = {"content-type": "application/json", "mistral-correlation-id": "req_1"}
    more = {name.replace("_", "-"): value for name, value in headers.items()}
    return Raw(status=status, body=json.dumps(body).encode(), headers={**named, **more})


def _problems(body: Mapping[str, Any]) -> Iterator[str]:
    for name in sorted(body.keys() - _FIELDS):
        yield f"Extra inputs are not permitted: {name}"
    if body.get("tool_choice") == "required":
        yield "tool_choice: the word is any"
    roles = [message["role"] for message in body["messages"]]
    if ("tool", "user") in [*pairwise(roles)]:
        yield "Unexpected role 'user' after role 'tool'"
    for message in body["messages"]:
        yield from _message_problems(message)
    for chunk in _chunks(body["messages"]):
        if chunk.get("type") not in _CHUNKS:
            yield f"Input tag {chunk.get('type')!r} does not match any of the expected tags"


def _message_problems(message: Mapping[str, Any]) -> Iterator[str]:
    empty = not (message.get("content") or message.get("tool_calls"))
    if message["role"] == "assistant" and empty:
        yield "Assistant message must have either content or tool_calls, but not none."
    ids = [call["id"] for call in message.get("tool_calls", ())]
    for call_id in (*ids, message.get("tool_call_id", "x" * 9)):
        if not _ID.fullmatch(call_id):
            yield f"Tool call id was {call_id} but must be a-z, A-Z, 0-9, with a length of 9."


def _chunks(messages: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    for message in messages:
        if isinstance(message.get("content"), list):
            yield from message["content"]


def _call(number: int, call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": json.dumps(call.arguments)}
    return {"index": number, "id": call.id, "type": "function", "function": function}


def _chunk(part: Part) -> dict[str, Any]:
    if isinstance(part, Thinking):
        inside = [{"type": "text", "text": part.text}]
        seal = {"signature": part.signature} if part.signature else {}
        return {"type": "thinking", "thinking": inside, **seal}
    return {"type": "text", "text": part.text if isinstance(part, Text) else ""}


def _content(reply: Reply) -> str | list[dict[str, Any]]:
    thinks = any(isinstance(part, Thinking) for part in reply.parts)
    parts = [part for part in reply.parts if isinstance(part, Text | Thinking)]
    return [*map(_chunk, parts)] if thinks else reply.text


def _pieces(part: Part) -> Iterator[str | list[dict[str, Any]]]:
    """Yield the contents of the chunks of a stream."""
    match part:
        case Text(text):
            yield from (text[start : start + 5] for start in range(0, len(text), 5))
        case Thinking(text, signature):
            for start in range(0, len(text), 5):
                yield [_chunk(Thinking(text[start : start + 5]))]
            if signature:
                yield [{"type": "thinking", "thinking": [], "signature": signature}]
        case _:
            pass


def _events(
    deltas: Sequence[Mapping[str, Any]],
    about: Mapping[str, Any],
    finish: str,
    usage: Mapping[str, Any],
) -> Iterator[bytes]:
    head = {**about, "object": "chat.completion.chunk", "created": 1}
    for delta in ({"role": "assistant", "content": ""}, *deltas):
        choice = {"index": 0, "delta": delta, "finish_reason": None}
        yield event({**head, "choices": [choice]})
    last = {"index": 0, "delta": {"content": ""}, "finish_reason": finish}
    yield event({**head, "choices": [last], "usage": usage})
    yield b"data: [DONE]\n\n"


def event(data: Mapping[str, Any]) -> bytes:
    """Return one event of a stream."""
    return f"data: {json.dumps(data)}\n\n".encode()
