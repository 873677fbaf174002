"""Replies as OpenAI's responses API writes them, and as servers do that follow it less closely.

Source: OpenAI API reference, "The response object" and "Streaming events"
(developers.openai.com, 2026-11); the types of openai-python 3.52 take what is written here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from lib.llm import Part, Reply, Text, Thinking, ToolCall, Usage
from lib.llm.api.conversation import Origin, unsealed
from lib.llm.responses.request import WIRE

HOST: Final = "127.0.0.1"
"""For whom replies are sealed that bring a seal of their own."""
CREATED: Final = 1_790_000_000
_OUTPUT_TEXT: Final[Mapping[str, Any]] = {
    "type": "output_text",
    "annotations": [],
    "logprobs": [],
}
_REASONS: Final = {
    "length": "max_output_tokens",
    "content_filter": "content_filter",
    "other": "max_messages",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponsesDialect:
    """The form of a server's answers; the defaults are OpenAI's.

    Attributes:
        deltas: items come while they are written, not only when they are done.
        items: streams say which items there are, not only the response that ends them.
        output: the response that ends a stream holds the items.
        usage: replies carry the usage.
        sealed: reasoning comes with its encrypted content.
        strangers: events and items of unknown types stand between the others.
        types: the JSON of an event says its type, not only the line before it.
        streams: False answers a request for a stream with a whole response.
        newline: ends lines of a stream.
        comments: keep-alive comments stand between the events.
        done: streams end with `[DONE]`, as those of other APIs.
        piece_chars: characters of text in one delta.
    """

    deltas: bool = True
    items: bool = True
    output: bool = True
    usage: bool = True
    sealed: bool = True
    strangers: bool = False
    types: bool = True
    streams: bool = True
    newline: str = "\n"
    comments: bool = False
    done: bool = False
    piece_chars: int = 5


STRANGER: Final = {"type": "telepathy_call", "id": "tp_1", "status": "completed"}
"""An item of a type that no release knows."""

RESPONSES_DIALECTS: Final[Mapping[str, ResponsesDialect]] = {
    "openai": ResponsesDialect(),
    "strangers": ResponsesDialect(strangers=True, comments=True, newline="\r\n"),
    "no-deltas": ResponsesDialect(deltas=False, usage=False),
    "only-the-end": ResponsesDialect(items=False, deltas=False),
    "empty-end": ResponsesDialect(output=False, done=True),
    "untyped": ResponsesDialect(types=False, sealed=False),
    "no-stream": ResponsesDialect(streams=False),
}


def items_of(reply: Reply, dialect: ResponsesDialect) -> list[dict[str, Any]]:
    """Return the reply's parts as output items."""
    items = [_item(part, number, reply, dialect) for number, part in enumerate(reply.parts)]
    return [dict(STRANGER), *items] if dialect.strangers else items


def _item(part: Part, number: int, reply: Reply, dialect: ResponsesDialect) -> dict[str, Any]:
    own = f"{reply.id}_{number}"
    match part:
        case Thinking(text, signature):
            summary = [
                {"type": "summary_text", "text": each} for each in text.split("\n\n") if each
            ]
            item_id, encrypted = unsealed(WIRE, Origin(HOST), signature) or (
                f"rs_{own}",
                signature or f"gAAAA{own}",
            )
            sealed = {"encrypted_content": encrypted} if dialect.sealed else {}
            return {"type": "reasoning", "id": item_id, "summary": summary, **sealed}
        case Text(text):
            content = [{**_OUTPUT_TEXT, "text": text}]
            item = {"type": "message", "id": f"msg_{own}", "role": "assistant", **part.extra}
            return {**item, "status": "completed", "content": content}
        case ToolCall(id=call_id, name=name):
            written = json.dumps(part.arguments) if part.invalid is None else part.invalid
            item = {"type": "function_call", "id": f"fc_{own}", "call_id": call_id, "name": name}
            return {**item, "status": "completed", "arguments": written}
        case _:
            raise TypeError(f"a reply holds no {type(part).__name__}")


def usage_json(usage: Usage) -> dict[str, Any]:
    """Return the usage as the wire has it."""
    read = {
        "cached_tokens": usage.cache_read_tokens,
        "cache_write_tokens": usage.cache_write_tokens,
    }
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": read,
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }


def response(
    reply: Reply, body: Mapping[str, Any], dialect: ResponsesDialect, *, status: str = ""
) -> dict[str, Any]:
    """Return the reply as a `response` object.

    Args:
        reply: the answer of the model.
        body: of the request, whose parameters a response repeats.
        dialect: how it is written.
        status: its status before it has ended.
    """
    ended = not status
    reason = _REASONS.get(reply.stop)
    status = status or ("incomplete" if reason else "completed")
    return {
        "id": reply.id,
        "object": "response",
        "created_at": CREATED,
        "status": status,
        "error": None,
        "incomplete_details": {"reason": reason} if ended and reason else None,
        "instructions": None,
        "metadata": {},
        "model": reply.model,
        "output": items_of(reply, dialect) if ended else [],
        "parallel_tool_calls": True,
        "previous_response_id": body.get("previous_response_id"),
        "store": body.get("store", True),
        "temperature": 1.0,
        "text": body.get("text", {"format": {"type": "text"}}),
        "tool_choice": body.get("tool_choice", "auto"),
        "tools": body.get("tools", []),
        "top_p": 1.0,
        "usage": usage_json(reply.usage) if ended and dialect.usage else None,
    }


def events_of(
    reply: Reply, body: Mapping[str, Any], dialect: ResponsesDialect
) -> Iterator[dict[str, Any]]:
    """Yield the events of a stream, without their numbers."""
    for kind in ("created", "in_progress"):
        begun = response(reply, body, dialect, status="in_progress")
        yield {"type": f"response.{kind}", "response": begun}
    if dialect.strangers:
        yield {"type": "response.telepathy.delta", "delta": "?", "output_index": 0}
    if dialect.items:
        for index, item in enumerate(items_of(reply, dialect)):
            begun = {**item, **_unwritten(item)}
            yield {"type": "response.output_item.added", "output_index": index, "item": begun}
            if dialect.deltas:
                place = {"item_id": item["id"], "output_index": index}
                yield from ({**place, **event} for event in _deltas(item, dialect.piece_chars))
            yield {"type": "response.output_item.done", "output_index": index, "item": item}
    whole = response(reply, body, dialect)
    if not dialect.output:
        whole["output"] = []
    yield {"type": f"response.{whole['status']}", "response": whole}


def event_stream(
    reply: Reply, body: Mapping[str, Any], dialect: ResponsesDialect
) -> Iterator[bytes]:
    """Yield the events as they go over the wire."""
    end = dialect.newline
    for number, event in enumerate(events_of(reply, body, dialect)):
        kind = event["type"] if dialect.types else event.pop("type")
        data = json.dumps({**event, "sequence_number": number}, ensure_ascii=False)
        if dialect.comments and number % 2:
            yield f": keep-alive{end}{end}".encode()
        yield f"event: {kind}{end}data: {data}{end}{end}".encode()
    if dialect.done:
        yield f"data: [DONE]{end}{end}".encode()


def _unwritten(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of an item that is only begun."""
    match item["type"]:
        case "message":
            return {"status": "in_progress", "content": []}
        case "function_call":
            return {"status": "in_progress", "arguments": ""}
        case "reasoning":
            return {"summary": []}
        case _:
            return {"status": "in_progress"}


def _deltas(item: Mapping[str, Any], chars: int) -> Iterator[dict[str, Any]]:
    match item["type"]:
        case "message":
            text = item["content"][0]["text"]
            at, empty = {"content_index": 0}, {**_OUTPUT_TEXT, "text": ""}
            yield {"type": "response.content_part.added", **at, "part": empty}
            for piece in _cut(text, chars):
                delta = {"type": "response.output_text.delta", **at, "delta": piece}
                yield {**delta, "logprobs": []}
            yield {"type": "response.output_text.done", **at, "text": text, "logprobs": []}
            yield {"type": "response.content_part.done", **at, "part": {**empty, "text": text}}
        case "function_call":
            for piece in _cut(item["arguments"], chars):
                yield {"type": "response.function_call_arguments.delta", "delta": piece}
            done = {"type": "response.function_call_arguments.done", "name": item["name"]}
            yield {**done, "arguments": item["arguments"]}
        case "reasoning":
            for index, part in enumerate(item["summary"]):
                for piece in _cut(part["text"], chars):
                    delta = {"type": "response.reasoning_summary_text.delta", "delta": piece}
                    yield {**delta, "summary_index": index}
        case _:
            pass


def _cut(text: str, chars: int) -> list[str]:
    return [text[start : start + chars] for start in range(0, len(text), chars)]
