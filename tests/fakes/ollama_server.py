"""A server of Ollama's own API on loopback.

It refuses what Ollama refuses, and what Ollama takes and mistakes: results without a tool's name,
arguments as text, messages without anything in them, fields that it would ignore.

Source: Ollama, docs/api.md (2026-11), and the types of ollama 0.6.3, whose client reads its answers
(scripts/vendor-sdks).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from fakes.llm_server import API_KEY, Answers, ModelServer, Raw
from lib.llm import Part, Reply, Text, Thinking, ToolCall, Usage

_FIELDS: Final = frozenset(
    {"format", "keep_alive", "logprobs", "messages", "model", "options", "stream", "think"}
    | {"tools", "top_logprobs"}
)
_OPTIONS: Final = frozenset(
    {"num_ctx", "num_keep", "num_predict", "seed", "stop", "temperature", "top_k", "top_p"}
)
_MESSAGE: Final = frozenset({"content", "images", "role", "thinking", "tool_calls", "tool_name"})


class OllamaServer(ModelServer):
    """Answers in turn what it was given, or what a function of the request's body returns."""

    path = "/api/chat"
    stream_type = "application/x-ndjson"

    def __init__(
        self, answers: Answers, *, api_key: str = API_KEY, slice_bytes: int | None = None
    ) -> None:
        """Take the script."""
        super().__init__(answers, api_key=api_key, slice_bytes=slice_bytes)

    def refuse(self, body: dict[str, Any]) -> Raw | None:
        """Return the answer to a request that breaks a rule, None for one that is in order."""
        for problem in _problems(body):
            return failed(400, problem)
        return None

    def write(self, reply: Reply, body: dict[str, Any]) -> bytes | Iterable[bytes]:
        """Return the answer, whole or as lines."""
        usage = Usage(input_tokens=1, output_tokens=1) if reply.usage == Usage() else reply.usage
        about = {"model": reply.model or body["model"], "created_at": "2026-11-01T00:00:00Z"}
        end = {
            "done": True,
            "done_reason": "length" if reply.stop == "length" else "stop",
            "total_duration": 1,
            "prompt_eval_count": usage.input_tokens,
            "eval_count": usage.output_tokens,
        }
        if not body["stream"]:
            return json.dumps({**about, "message": _message(reply), **end}).encode()
        pieces = [each for part in reply.parts for each in _pieces(part)]
        empty = {"role": "assistant", "content": ""}
        lines = [{**about, "message": {**empty, **each}, "done": False} for each in pieces]
        return [line(each) for each in (*lines, {**about, "message": empty, **end})]


def failed(status: int, message: str = "no") -> Raw:
    """Return an error answer as Ollama writes it."""
    body = json.dumps({"error": message}).encode()
    return Raw(status=status, body=body, headers={"content-type": "application/json"})


def line(data: Mapping[str, Any]) -> bytes:
    """Return one line of a stream."""
    return json.dumps(data).encode() + b"\n"


def _problems(body: Mapping[str, Any]) -> Iterator[str]:
    for name in sorted(body.keys() - _FIELDS):
        yield f"unknown field {name!r}"
    for name in sorted(body.get("options", {}).keys() - _OPTIONS):
        yield f"invalid option provided: {name!r}"
    calls = list[str]()
    for number, message in enumerate(body.get("messages", ())):
        yield from _message_problems(message, f"messages[{number}]")
        if message.get("role") != "tool":
            if calls:
                yield f"messages[{number}]: calls without results"
            calls += [call["function"]["name"] for call in message.get("tool_calls", ())]
        elif message.get("tool_name") in calls:
            calls.remove(message["tool_name"])
        else:
            yield f"messages[{number}]: a result without a call"
    if calls:
        yield "calls without results at the end"


def _message_problems(message: Mapping[str, Any], place: str) -> Iterator[str]:
    for name in sorted(message.keys() - _MESSAGE):
        yield f"{place}: unknown field {name!r}"
    has = any(message.get(name) for name in ("content", "images", "thinking", "tool_calls"))
    if message.get("role") != "tool" and not has:
        yield f"{place} is empty"
    for call in message.get("tool_calls", ()):
        if not isinstance(call["function"]["arguments"], dict):
            yield "json: cannot unmarshal string into ToolCallFunctionArguments"


def _message(reply: Reply) -> dict[str, Any]:
    thinking = "".join(part.text for part in reply.parts if isinstance(part, Thinking))
    calls = [_call(call) for call in reply.tool_calls]
    return {
        "role": "assistant",
        "content": reply.text,
        **({"thinking": thinking} if thinking else {}),
        **({"tool_calls": calls} if calls else {}),
    }


def _call(call: ToolCall) -> dict[str, Any]:
    return {"function": {"name": call.name, "arguments": call.arguments}}


def _pieces(part: Part) -> Iterator[dict[str, Any]]:
    match part:
        case Text(text):
            yield from ({"content": text[at : at + 5]} for at in range(0, len(text), 5))
        case Thinking(text):
            yield from ({"thinking": text[at : at + 5]} for at in range(0, len(text), 5))
        case ToolCall():
            yield {"tool_calls": [_call(part)]}
        case _:
            pass
