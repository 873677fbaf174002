"""The body of a chat completions request: pure, and the same bytes for the same conversation.

Source: OpenAI API reference, "Create chat completion" (platform.openai.com, 2026-11).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from lib._util.json import canonical
from lib.llm.api.conversation import (
    Origin,
    arguments_object,
    base64_of,
    data_url,
    misplaced,
    text_only,
)
from lib.llm.api.prefixes import Prefix
from lib.llm.chat.reasoning import DETAILS, details_of, has_details
from lib.llm.client import Output, ToolSpec
from lib.llm.messages import Message
from lib.llm.output import output_schema
from lib.llm.parts import (
    Audio,
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

KEPT: Final = ("extra_content",)
"""Fields of a tool call that a provider wants back as it sent them (Gemini's signatures)."""

_WIRE: Final = "chat"
_NAME: Final = "chat completions"
_RESERVED: Final = frozenset(
    {"messages", "model", "n", "response_format", "stream", "stream_options", "tools"}
)
_NEED_TOOLS: Final = frozenset({"parallel_tool_calls", "tool_choice"})
_CHOICES: Final = frozenset({"auto", "none", "required"})
_NOWHERE: Final = Origin("")
_AUDIO_FORMATS: Final = {"mpeg": "mp3", "wave": "wav", "x-wav": "wav", "vnd.wave": "wav"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """The differences of a server's requests from the common form.

    Attributes:
        max_tokens_field: what the setting `max_tokens` is called.
        thinking_field: the field in which the server wants its thinking back on each message of
            the model; "" where it does not.
    """

    max_tokens_field: str = "max_tokens"
    thinking_field: str = ""


def build_body(
    messages: Sequence[Message],
    *,
    model: str,
    tools: Sequence[ToolSpec] = (),
    output: Output | None = None,
    settings: Mapping[str, Any] | None = None,
    stream: bool = False,
    dialect: Dialect,
    origin: Origin = _NOWHERE,
) -> dict[str, Any]:
    """Return the body as plain data.

    Args:
        messages: the whole conversation.
        model: the model that answers.
        tools: what it may call.
        output: the shape of its text.
        settings: what its caller wants beside that.
        stream: True if the answer comes in pieces.
        dialect: the differences of the server.
        origin: the server and the model, which get back what they have thought.

    Raises:
        ValueError: a setting has a parameter of its own.
        LLMError: a message holds what the wire cannot carry in its role.
    """
    body: dict[str, Any] = {"model": model}
    wanted = [tool_json(spec) for spec in tools]
    body["messages"] = _conversation(messages, wanted, dialect, origin)
    body |= _settings(settings or {}, has_tools=bool(tools), dialect=dialect)
    if wanted:
        body["tools"] = wanted
    if output is not None:
        body["response_format"] = response_format(output)
    if stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    return body


def request_prefix(body: Mapping[str, Any]) -> str:
    """Return the digest of a whole request, which what the model thinks may be bound to."""
    prefix = Prefix(body.get("tools", ()))
    for entry in body["messages"]:
        prefix.add(entry["role"], [entry])
    return prefix.digest()


# -- messages ----------------------------------------------------------------------------------


def _conversation(
    messages: Sequence[Message], tools: Sequence[dict[str, Any]], dialect: Dialect, origin: Origin
) -> list[dict[str, Any]]:
    prefix = Prefix(tools) if has_details(messages) else None
    out: list[dict[str, Any]] = []
    for message in messages:
        entries = _entries(message, dialect)
        if prefix is not None:
            if message.role == "assistant" and (details := details_of(message, origin, prefix)):
                entries[0][DETAILS] = details
            for entry in entries:
                prefix.add(entry["role"], [entry])
        out += entries
    return out


def _entries(message: Message, dialect: Dialect) -> list[dict[str, Any]]:
    match message.role:
        case "tool":
            return [_tool_result(part) for part in message.parts]
        case "assistant":
            return [_assistant(message, dialect)]
        case "system":
            return [{"role": "system", "content": text_only(message, _NAME)}]
        case _:
            return [{"role": "user", "content": _content(message)}]


def _tool_result(part: Part) -> dict[str, Any]:
    if not isinstance(part, ToolResult):
        raise misplaced(part, "tool", _NAME)
    # The wire has no field for a failure, and a model that does not see one believes the text.
    content = f"Error: {part.content}" if part.is_error else part.content
    return {"role": "tool", "tool_call_id": part.call_id, "content": content}


def _assistant(message: Message, dialect: Dialect) -> dict[str, Any]:
    for part in message.parts:
        if not isinstance(part, Text | Thinking | ToolCall | Opaque):
            raise misplaced(part, "assistant", _NAME)
    entry: dict[str, Any] = {"role": "assistant", "content": message.text}
    if dialect.thinking_field:
        thinking = [part.text for part in message.parts if isinstance(part, Thinking)]
        entry[dialect.thinking_field] = "".join(thinking)
    if message.tool_calls:
        entry["content"] = message.text or None
        entry["tool_calls"] = [_tool_call(call) for call in message.tool_calls]
    return entry


def _tool_call(call: ToolCall) -> dict[str, Any]:
    kept = {name: call.extra[name] for name in KEPT if name in call.extra}
    function = {"name": call.name, "arguments": canonical(arguments_object(call))}
    return {"id": call.id, "type": "function", "function": function, **kept}


def _content(message: Message) -> str | list[dict[str, Any]]:
    if all(isinstance(part, Text) for part in message.parts):
        return message.text  # every server takes a string, not every one takes a list
    return [_content_part(part) for part in message.parts]


def _content_part(part: Part) -> dict[str, Any]:
    match part:
        case Text(text):
            return {"type": "text", "text": text}
        case Image():
            return {"type": "image_url", "image_url": {"url": part.url or data_url(part, _WIRE)}}
        case Audio():
            kind = part.media_type.rpartition("/")[2]
            form = _AUDIO_FORMATS.get(kind, kind)
            return {
                "type": "input_audio",
                "input_audio": {"data": base64_of(part, _WIRE), "format": form},
            }
        case File():
            held = {"filename": part.name or "file", "file_data": data_url(part, _WIRE)}
            return {"type": "file", "file": held}
        case _:
            raise misplaced(part, "user", _NAME)


# -- the rest ----------------------------------------------------------------------------------


def tool_json(spec: ToolSpec) -> dict[str, Any]:
    """Return a tool as the wire has it."""
    function = {"name": spec.name, "description": spec.description}
    return {"type": "function", "function": {**function, "parameters": spec.input_schema}}


def response_format(output: Output) -> dict[str, Any]:
    """Return the shape of a reply as the wire has it, strict where the schema can be."""
    schema = output_schema(output)
    strict = strict_schema(schema)
    wanted = {"name": "output", "strict": strict is not None}
    return {"type": "json_schema", "json_schema": {**wanted, "schema": strict or schema}}


def _settings(settings: Mapping[str, Any], *, has_tools: bool, dialect: Dialect) -> dict[str, Any]:
    body = dict(settings)
    if taken := sorted(_RESERVED & body.keys()):
        raise ValueError(f"settings cannot hold {', '.join(taken)}")
    if not has_tools:  # servers refuse these without tools, and an agent drops its tools at times
        body = {name: value for name, value in body.items() if name not in _NEED_TOOLS}
    if "max_tokens" in body:
        body[dialect.max_tokens_field] = body.pop("max_tokens")
    choice = body.get("tool_choice")
    if isinstance(choice, str) and choice not in _CHOICES:
        body["tool_choice"] = {"type": "function", "function": {"name": choice}}
    return body
