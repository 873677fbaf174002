"""The body of a responses request: pure, and the same bytes for the same conversation.

Items of an earlier answer go back without their ids, but for sealed reasoning: a server that does
not keep them looks for the others in vain.

Source: OpenAI API reference, "Create a model response" (developers.openai.com, 2026-11), and the
types of openai-python 3.54.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias, cast

from lib._util.json import canonical
from lib.llm.api import fields
from lib.llm.api.conversation import (
    Origin,
    arguments_object,
    data_url,
    misplaced,
    own_block,
    text_only,
    unsealed,
)
from lib.llm.client import Output, ToolSpec
from lib.llm.messages import Message
from lib.llm.output import output_schema
from lib.llm.parts import (
    File,
    Image,
    Opaque,
    Part,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from lib.llm.schema import strict_schema

Cache: TypeAlias = Literal["30m", "12h"]
"""For how long at least the server keeps what was marked."""

PHASE: Final = "phase"
"""Where a `Text` keeps whether it is the model's commentary or its answer, in `extra`."""

SEALED: Final = "encrypted_content"
"""The field of an item that only the server can open."""

WIRE: Final = "responses"
"""The name of the wire in signatures of reasoning."""

_NAME: Final = "the responses API"
_RESERVED: Final = frozenset(
    {"background", "conversation", "input", "instructions", "model", "previous_response_id"}
    | {"store", "stream", "stream_options", "tools"}
)
_NEED_TOOLS: Final = frozenset({"max_tool_calls", "parallel_tool_calls", "tool_choice"})
_CHOICES: Final = frozenset({"auto", "none", "required"})


def build_body(
    messages: Sequence[Message],
    *,
    model: str,
    server: str = "",
    previous: str = "",
    tools: Sequence[ToolSpec] = (),
    output: Output | None = None,
    settings: Mapping[str, Any] | None = None,
    store: bool = True,
    stream: bool = False,
    cache: Cache | None = None,
) -> dict[str, Any]:
    """Return the body as plain data.

    Args:
        messages: what is sent.
        model: which one.
        server: the host of the request, which gets back the reasoning that it has sealed.
        previous: the id of the response that they follow, "" where they are all there is.
        tools: what the model may call.
        output: the shape that its text must have.
        settings: parameters of the model.
        store: whether the server may keep the conversation.
        stream: whether the answer comes in pieces.
        cache: marks where the next call begins in the same way; None leaves that to the server.

    Raises:
        ValueError: a setting has a parameter of its own.
        LLMError: a message holds what the wire cannot carry in its role.
    """
    body: dict[str, Any] = {"model": model}
    if previous:
        body["previous_response_id"] = previous
    body["input"] = [item for message in messages for item in _items(message, server)]
    if cache is not None:
        _mark(body["input"], cache)
    body |= _settings(settings or {}, has_tools=bool(tools))
    if tools:
        body["tools"] = [_tool(spec) for spec in tools]
    if output is not None:
        body["text"] = {**fields.mapping(body, "text"), "format": _format(output)}
    if not store:  # to keep is the server's default
        body["store"] = False
    if stream:
        body["stream"] = True
    return body


# -- messages ----------------------------------------------------------------------------------


def _items(message: Message, server: str) -> Iterator[dict[str, Any]]:
    match message.role:
        case "tool":
            yield from map(_tool_result, message.parts)
        case "assistant":
            yield from _assistant(message, server)
        case "system":
            yield {"role": "system", "content": text_only(message, _NAME)}
        case _:
            yield {"role": "user", "content": _content(message)}


def _tool_result(part: Part) -> dict[str, Any]:
    if not isinstance(part, ToolResult):
        raise misplaced(part, "tool", _NAME)
    # The wire has no field for a failure, and a model that does not see one believes the text.
    content = f"Error: {part.content}" if part.is_error else part.content
    return {"type": "function_call_output", "call_id": part.call_id, "output": content}


def _assistant(message: Message, server: str) -> Iterator[dict[str, Any]]:
    contents = [number for number, part in enumerate(message.parts) if _is_content(part)]
    for number, part in enumerate(message.parts):
        match part:
            case Text(text):
                if text:
                    phase = {PHASE: part.extra[PHASE]} if PHASE in part.extra else {}
                    yield {"role": "assistant", "content": text, **phase}
            case ToolCall():
                yield _tool_call(part)
            case Thinking():
                # Servers refuse reasoning that nothing has come of.
                if contents and number < contents[-1]:
                    yield from _reasoning(part, server)
            case Opaque():
                # Of the server's other items, it needs back what it has sealed, as a compaction.
                block = own_block(WIRE, Origin(server), part) or {}
                yield from [block] if SEALED in block else []
            case _:
                raise misplaced(part, "assistant", _NAME)


def _is_content(part: Part) -> bool:
    return isinstance(part, ToolCall) or (isinstance(part, Text) and bool(part.text))


def _reasoning(part: Thinking, server: str) -> Iterator[dict[str, Any]]:
    """Yield the item, if this server has sealed it: what others think is only for reading."""
    if opened := unsealed(WIRE, Origin(server), part.signature):
        item_id, encrypted = opened
        summary = [{"type": "summary_text", "text": part.text}] if part.text else []
        item = {"type": "reasoning", "id": item_id, "summary": summary}
        yield {**item, SEALED: encrypted}


def _tool_call(call: ToolCall) -> dict[str, Any]:
    item = {"type": "function_call", "call_id": call.id, "name": call.name}
    return {**item, "arguments": canonical(arguments_object(call))}


def _content(message: Message) -> str | list[dict[str, Any]]:
    if all(isinstance(part, Text) for part in message.parts):
        return message.text
    return [_content_part(part) for part in message.parts]


def _content_part(part: Part) -> dict[str, Any]:
    match part:
        case Text(text):
            return {"type": "input_text", "text": text}
        case Image():
            return {
                "type": "input_image",
                "detail": "auto",
                "image_url": part.url or data_url(part, WIRE),
            }
        case File(url=str() as url):
            return {"type": "input_file", "file_url": url}
        case File():
            held = {"filename": part.name or "file", "file_data": data_url(part, WIRE)}
            return {"type": "input_file", **held}
        case _:
            raise misplaced(part, "user", _NAME)


def _mark(items: Sequence[dict[str, Any]], cache: Cache) -> None:
    """Mark the end of the instructions, of what was said before the last answer, and of the whole.

    The server writes three such marks beside its own. Contents become parts in every call, so that
    a call differs from the one before by its marks and its end alone.
    """
    ends, instructions = list[dict[str, Any]](), list[dict[str, Any]]()
    for number, item in enumerate(items):
        parts = _parts(item)
        if parts and (number == len(items) - 1 or not _parts(items[number + 1])):
            ends.append(parts[-1])
        if parts and item.get("role") == "system" and len(instructions) == number:
            instructions.append(parts[-1])
    for part in (*instructions[-1:], *ends[-2:]):
        part["prompt_cache_breakpoint"] = {"mode": "explicit", "ttl": cache}


def _parts(item: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the parts of an item that may be marked, as they are in it: none of the model's."""
    if item.get("role") in {"system", "user"}:
        field = "content"
    elif item.get("type") == "function_call_output":
        field = "output"
    else:
        return []
    if isinstance(item[field], str):
        item[field] = [{"type": "input_text", "text": item[field]}]
    parts: list[dict[str, Any]] = item[field]
    return parts


# -- the rest ----------------------------------------------------------------------------------


def _tool(spec: ToolSpec) -> dict[str, Any]:
    # Strict mode makes a model fill in what is optional: only for tools that require everything.
    strict = strict_schema(spec.input_schema) if _requires_all(spec.input_schema) else None
    function = {"type": "function", "name": spec.name, "description": spec.description}
    return {**function, "parameters": strict or spec.input_schema, "strict": strict is not None}


def _requires_all(schema: Any) -> bool:
    """Return True if every object of the schema requires all of its properties."""
    if isinstance(schema, list):
        return all(_requires_all(item) for item in cast(list[Any], schema))
    if not isinstance(schema, dict):
        return True
    node = cast(dict[str, Any], schema)
    named = node.get("properties")
    if isinstance(named, dict) and not cast(dict[str, Any], named).keys() <= _names(node):
        return False
    return all(_requires_all(child) for child in node.values())


def _names(node: Mapping[str, Any]) -> set[str]:
    required = node.get("required")
    return set(cast(list[str], required)) if isinstance(required, list) else set()


def _format(output: Output) -> dict[str, Any]:
    schema = output_schema(output)
    strict = strict_schema(schema)
    wanted = {"type": "json_schema", "name": "output", "strict": strict is not None}
    return {**wanted, "schema": strict or schema}


def _settings(settings: Mapping[str, Any], *, has_tools: bool) -> dict[str, Any]:
    body = dict(settings)
    taken = sorted(_RESERVED & body.keys())
    if "format" in fields.mapping(body, "text"):
        taken.append("text.format")
    if taken:
        raise ValueError(f"settings cannot hold {', '.join(taken)}")
    if not has_tools:  # servers refuse these without tools, and an agent drops its tools at times
        body = {name: value for name, value in body.items() if name not in _NEED_TOOLS}
    if "max_tokens" in body:
        body["max_output_tokens"] = body.pop("max_tokens")
    choice = body.get("tool_choice")
    if isinstance(choice, str) and choice not in _CHOICES:
        body["tool_choice"] = {"type": "function", "name": choice}
    return body
