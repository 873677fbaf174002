"""Replies as OpenAI-compatible servers write them, each in its own way."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from lib.llm import Reply, Text, Thinking, ToolCall, Usage

CREATED: Final = 1_790_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerDialect:
    """The form of a server's answers; the defaults are OpenAI's.

    Attributes:
        index: of tool calls in a stream: counted, zero for each, or absent.
        ids: of tool calls: the reply's, absent, or the same for each.
        whole_calls: a streamed tool call comes in one chunk.
        repeats_head: each fragment of a tool call repeats its id and name.
        object_arguments: arguments are an object instead of its text.
        tools_finish: the finish reason of a reply with tool calls.
        thinking: the field for thinking, "" to hide it.
        usage: where a stream tells the usage.
        done: whether a stream ends with `[DONE]`, or with one that has no blank line.
        streams: False answers a request for a stream with a whole reply.
        newline: ends lines of a stream.
        comments: keep-alive comments stand between the events.
        piece_chars: characters of text in one chunk.
    """

    index: Literal["counted", "zero", "absent"] = "counted"
    ids: Literal["own", "absent", "same"] = "own"
    whole_calls: bool = False
    repeats_head: bool = False
    object_arguments: bool = False
    tools_finish: str = "tool_calls"
    thinking: str = ""
    usage: Literal["last", "absent", "choice", "x_groq", "each"] = "last"
    done: Literal["yes", "absent", "unterminated"] = "yes"
    streams: bool = True
    newline: str = "\n"
    comments: bool = False
    piece_chars: int = 5


DIALECTS: Final[Mapping[str, ServerDialect]] = {
    "openai": ServerDialect(),
    "ollama": ServerDialect(index="zero", whole_calls=True, thinking="reasoning"),
    "ollama-0.4": ServerDialect(
        index="absent", whole_calls=True, tools_finish="stop", usage="absent"
    ),
    "vllm": ServerDialect(repeats_head=True, thinking="reasoning", usage="each"),
    "llama.cpp": ServerDialect(
        thinking="reasoning_content", done="unterminated", comments=True, newline="\r\n"
    ),
    "groq": ServerDialect(usage="x_groq", thinking="reasoning", whole_calls=True),
    "moonshot": ServerDialect(usage="choice", thinking="reasoning_content"),
    "no-stream": ServerDialect(streams=False, thinking="reasoning_content"),
    "careless": ServerDialect(
        index="absent", ids="absent", whole_calls=True, object_arguments=True, done="absent"
    ),
    "stuttering": ServerDialect(index="zero", ids="same", whole_calls=True, usage="absent"),
}


def usage_json(usage: Usage) -> dict[str, Any]:
    """Return the usage as the wire has it."""
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read_tokens, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }


def completion(reply: Reply, dialect: ServerDialect) -> dict[str, Any]:
    """Return the reply as one `chat.completion` object."""
    message: dict[str, Any] = {"role": "assistant", "content": reply.text or None, "refusal": None}
    if thinking := _thinking(reply, dialect):
        message[dialect.thinking] = thinking
    if reply.tool_calls:
        message["tool_calls"] = [
            {**_call_id(call, dialect), "type": "function", "function": _function(call, dialect)}
            for call in reply.tool_calls
        ]
    choice = {"index": 0, "message": message, "finish_reason": _finish(reply, dialect)}
    usage = {} if dialect.usage == "absent" else {"usage": usage_json(reply.usage)}
    head = {"id": reply.id, "object": "chat.completion", "created": CREATED, "model": reply.model}
    return {**head, "choices": [{**choice, "logprobs": None}], **usage}


def chunks(reply: Reply, dialect: ServerDialect) -> Iterator[dict[str, Any]]:
    """Yield the reply as `chat.completion.chunk` objects."""
    head = {"id": reply.id, "object": "chat.completion.chunk", "created": CREATED}
    head["model"] = reply.model
    used = usage_json(reply.usage)
    each = {"usage": used} if dialect.usage == "each" else {}
    for delta in _deltas(reply, dialect):
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}
        yield {**head, "choices": [choice], **each}
    last: dict[str, Any] = {"index": 0, "delta": {}, "finish_reason": _finish(reply, dialect)}
    in_choice = {"usage": used} if dialect.usage == "choice" else {}
    beside = {"x_groq": {"id": "req_1", "usage": used}} if dialect.usage == "x_groq" else {}
    yield {**head, "choices": [{**last, **in_choice}], **beside, **each}
    if dialect.usage == "last":
        yield {**head, "choices": [], "usage": used}


def event_stream(reply: Reply, dialect: ServerDialect) -> Iterator[bytes]:
    """Yield the reply as the events of a stream."""
    end = dialect.newline
    for number, chunk in enumerate(chunks(reply, dialect)):
        if dialect.comments and number % 2:
            yield f": ping{end}{end}".encode()
        yield f"data: {json.dumps(chunk)}{end}{end}".encode()
    if dialect.done != "absent":
        yield f"data: [DONE]{'' if dialect.done == 'unterminated' else end * 2}".encode()


def _deltas(reply: Reply, dialect: ServerDialect) -> Iterator[dict[str, Any]]:
    yield {"role": "assistant", "content": "" if reply.text else None}
    for part in reply.parts:
        match part:
            case Thinking(text) if dialect.thinking:
                yield from ({dialect.thinking: piece} for piece in _cut(text, dialect))
            case Text(text):
                yield from ({"content": piece} for piece in _cut(text, dialect))
            case _:
                pass
    for number, call in enumerate(reply.tool_calls):
        index = {"counted": {"index": number}, "zero": {"index": 0}, "absent": {}}[dialect.index]
        for fragment in _fragments(call, dialect):
            yield {"tool_calls": [{**index, **fragment}]}


def _fragments(call: ToolCall, dialect: ServerDialect) -> Iterator[dict[str, Any]]:
    head, function = {**_call_id(call, dialect), "type": "function"}, _function(call, dialect)
    if dialect.whole_calls:
        yield {**head, "function": function}
        return
    yield {**head, "function": {"name": call.name, "arguments": ""}}
    for piece in _cut(function["arguments"], dialect):
        if dialect.repeats_head:
            yield {**head, "function": {"name": call.name, "arguments": piece}}
        else:
            yield {"function": {"arguments": piece}}


def _function(call: ToolCall, dialect: ServerDialect) -> dict[str, Any]:
    if dialect.object_arguments and call.invalid is None:
        return {"name": call.name, "arguments": call.arguments}
    text = json.dumps(call.arguments) if call.invalid is None else call.invalid
    return {"name": call.name, "arguments": text}


def _call_id(call: ToolCall, dialect: ServerDialect) -> dict[str, Any]:
    return {"own": {"id": call.id}, "absent": {}, "same": {"id": "call_0"}}[dialect.ids]


def _thinking(reply: Reply, dialect: ServerDialect) -> str:
    texts = [part.text for part in reply.parts if isinstance(part, Thinking)]
    return "".join(texts) if dialect.thinking else ""


def _finish(reply: Reply, dialect: ServerDialect) -> str:
    return dialect.tools_finish if reply.stop == "tool_calls" else reply.stop


def _cut(text: str, dialect: ServerDialect) -> list[str]:
    step = dialect.piece_chars
    return [text[start : start + step] for start in range(0, len(text), step)]
