"""Conversations as the log writes them, in the two forms that backends read.

What was captured may have been cut, so anything may be missing from a message.

Sources: OpenTelemetry semantic conventions for generative AI, gen-ai-input-messages.json, as of
November 2026, for parts; OpenAI's chat completions API for chat messages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from lib.llm.messages import ROLES
from lib.observe.dialects.values import json_text, text

_QUERIES: Final = ("query", "text")
_LISTS: Final = ("documents", "hits", "matches", "records", "results")


@dataclass(frozen=True, slots=True)
class Document:
    """A document that was found; a missing field is None."""

    id: Any
    score: Any
    content: Any
    meta: Any


def query_of(value: Any) -> str | None:
    """Return the query of a search, None if it was not captured."""
    if value is None:
        return None
    query = _first(value, _QUERIES)
    return text(value if query is None else query)


def documents_of(value: Any) -> list[Document]:
    """Return the documents of a captured value, best first; none if it holds no list of them."""
    found: Any = _first(value, _LISTS) if isinstance(value, Mapping) else value
    items = cast(list[Any], found) if isinstance(found, list) else []
    return [
        Document(
            _first(item, ("id", "doc_id")),
            _first(item, ("score",)),
            _first(item, ("content", "text")),
            _first(item, ("meta", "metadata")),
        )
        for item in items
        if isinstance(item, Mapping)
    ]


def field_of(value: Any, name: str) -> Any:
    """Return a field of an object, None if it has none, or the value is no object."""
    return _first(value, (name,))


def _first(value: Any, names: tuple[str, ...]) -> Any:
    if not isinstance(value, Mapping):
        return None
    fields = cast(Mapping[str, Any], value)
    return next((fields[name] for name in names if fields.get(name) is not None), None)


Parts = list[dict[str, Any]]

_CUT: Final = "…"


@dataclass(frozen=True, slots=True)
class LoggedMessage:
    """A message: its role, and its parts as the log has them, each with a type."""

    role: str
    parts: Sequence[Mapping[str, Any]]

    @property
    def text(self) -> str | None:
        """Its text, if it has nothing else."""
        if len(self.parts) == 1 and self.parts[0]["type"] == "text":
            return str(self.parts[0].get("text", ""))
        return None


def conversation(value: Any, role: str = "user") -> list[LoggedMessage]:
    """Return the messages of a captured value; any other value is one text message.

    Args:
        value: what a span has captured.
        role: of a value that is no message.
    """
    if value is None:
        return []
    items = cast(list[Any], value) if isinstance(value, list) else [value]
    if all(map(is_message, items)):
        return [_read_message(item) for item in items]
    text = value if isinstance(value, str) else json_text(value)
    return [LoggedMessage(role, [{"type": "text", "text": text}])]


def is_message(value: Any) -> bool:
    """Return True if a captured value looks like a message of the log."""
    if not isinstance(value, Mapping):
        return False
    message = cast(Mapping[str, Any], value)
    has_content = isinstance(message.get("parts"), list) or isinstance(message.get("content"), str)
    return message.get("role") in ROLES and (has_content or len(message) == 1)


def _read_message(message: Mapping[str, Any]) -> LoggedMessage:
    content, parts = message.get("content"), message.get("parts")
    items: list[Any] = [{"type": "text", "text": content}] if isinstance(content, str) else []
    items += cast(list[Any], parts) if isinstance(parts, list) else []
    readable = [cast(Mapping[str, Any], part) for part in items if isinstance(part, Mapping)]
    return LoggedMessage(
        message["role"], [{**part, "type": str(part.get("type") or "unknown")} for part in readable]
    )


# -- OpenTelemetry ---------------------------------------------------------------------------------


def genai_messages(messages: Sequence[LoggedMessage]) -> list[dict[str, Any]]:
    """Return messages as OpenTelemetry's conventions write them."""
    return [
        {"role": one.role, "parts": [genai_part(part) for part in one.parts]} for one in messages
    ]


def genai_part(part: Mapping[str, Any]) -> dict[str, Any]:
    """Return a part as OpenTelemetry's conventions write it; one of unknown type as it is."""
    write = _GENAI.get(part["type"])
    return dict(part) if write is None else write(part)


def _genai_text(part: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "text", "content": part.get("text", "")}


def _genai_reasoning(part: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "reasoning", "content": part.get("text", "")}


def _genai_call(part: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "tool_call",
        "id": part.get("id"),
        "name": part.get("name", ""),
        "arguments": arguments_of(part),
    }


def _genai_result(part: Mapping[str, Any]) -> dict[str, Any]:
    response = {"type": "tool_call_response", "id": part.get("call_id")}
    failed = {"is_error": True} if part.get("is_error") else {}
    return {**response, "response": part.get("content", ""), **failed}


def _genai_media(part: Mapping[str, Any]) -> dict[str, Any]:
    medium: dict[str, Any] = {"modality": part["type"], "mime_type": media_type(part) or None}
    data = part.get("data")
    if isinstance(data, str):
        # What was cut is no base64, and a reader would fail on it.
        return {"type": "blob", **medium, "content": "" if data.endswith(_CUT) else data}
    return {"type": "uri", **medium, "uri": media_uri(part)}


_GENAI: Final[Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]]] = {
    "text": _genai_text,
    "thinking": _genai_reasoning,
    "tool_call": _genai_call,
    "tool_result": _genai_result,
    "image": _genai_media,
    "audio": _genai_media,
    "file": _genai_media,
}


# -- chat ------------------------------------------------------------------------------------------


def chat_messages(messages: Sequence[LoggedMessage]) -> list[dict[str, Any]]:
    """Return messages as OpenAI's chat completions API writes them, one per tool result."""
    return [chat for message in messages for chat in _chat(message)]


def _chat(logged: LoggedMessage) -> list[dict[str, Any]]:
    results = [part for part in logged.parts if part["type"] == "tool_result"]
    calls = [part for part in logged.parts if part["type"] == "tool_call"]
    rest = [part for part in logged.parts if part["type"] not in {"tool_result", "tool_call"}]
    answers: list[dict[str, Any]] = [
        {"role": "tool", "tool_call_id": part.get("call_id"), "content": part.get("content", "")}
        for part in results
    ]
    if answers and not calls and not rest:
        return answers
    message: dict[str, Any] = {
        "role": logged.role,
        "content": _chat_content(LoggedMessage(logged.role, rest)),
    }
    if calls:
        message["tool_calls"] = [_chat_call(part) for part in calls]
    return [message, *answers]


def _chat_content(logged: LoggedMessage) -> Any:
    if logged.text is not None:
        return logged.text
    return [_chat_part(part) for part in logged.parts] or None


def _chat_call(part: Mapping[str, Any]) -> dict[str, Any]:
    function = {"name": part.get("name", ""), "arguments": arguments_text(part)}
    return {"id": part.get("id"), "type": "function", "function": function}


def _chat_part(part: Mapping[str, Any]) -> dict[str, Any]:
    if part["type"] == "image":
        return {"type": "image_url", "image_url": {"url": media_url(part)}}
    return {**part}


# -- parts -----------------------------------------------------------------------------------------


def arguments_of(part: Mapping[str, Any]) -> Any:
    """Return the arguments of a call, as the model wrote them if they could not be read."""
    invalid = part.get("invalid")
    return part.get("arguments", {}) if invalid is None else invalid


def arguments_text(part: Mapping[str, Any]) -> str:
    """Return the arguments of a call as JSON, or as the model wrote them."""
    arguments = arguments_of(part)
    return arguments if isinstance(arguments, str) else json_text(arguments)


def media_type(part: Mapping[str, Any]) -> str:
    """Return the media type of an attachment, empty if it is not known."""
    blob = part.get("blob")
    own = cast(Mapping[str, Any], blob).get("type", "") if isinstance(blob, Mapping) else ""
    return str(part.get("media_type") or own)


def media_uri(part: Mapping[str, Any]) -> str:
    """Return where an attachment is that is not in the message itself."""
    blob = part.get("blob")
    if isinstance(blob, Mapping):
        return f"blob://sha256-{cast(Mapping[str, Any], blob).get('$blob', '')}"
    return str(part.get("url", ""))


def media_url(part: Mapping[str, Any]) -> str:
    """Return where an attachment is, as a data URL if it is in the message itself."""
    data = part.get("data")
    if isinstance(data, str):
        return "" if data.endswith(_CUT) else f"data:{media_type(part)};base64,{data}"
    return media_uri(part)
