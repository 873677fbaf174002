"""What a strict chat completions server refuses, and how it says so.

Agents fail on these rules in production: a tool call without its result after a cancelled turn, a
result without its call after a cut history, an empty list of tools.

Source: error bodies of OpenAI's API as its SDK's issues quote them (2024 to 2026).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, cast

Body = Mapping[str, Any]

ROLES: Final = frozenset({"assistant", "developer", "system", "tool", "user"})


def error_body(
    message: str, *, kind: str = "invalid_request_error", code: str | None = None
) -> dict[str, Any]:
    """Return an error as OpenAI writes it."""
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def refusal(body: Body) -> dict[str, Any] | None:
    """Return the error for a request that breaks a rule, None for one that is in order."""
    for problem in (*_parameters(body), *_conversation(body.get("messages"))):
        return error_body(problem)
    return None


def _parameters(body: Body) -> Iterator[str]:
    if not isinstance(body.get("model"), str):
        yield "you must provide a model parameter"
    if body.get("tools") == []:
        yield "[] is too short - 'tools'"
    for name in ("tool_choice", "parallel_tool_calls"):
        if name in body and "tools" not in body:
            yield f"{name!r} is only allowed when 'tools' are specified"
    if "stream_options" in body and not body.get("stream"):
        yield "'stream_options' is only allowed when 'stream' is enabled"
    asked = body.get("response_format", {}).get("json_schema", {})
    if asked.get("strict"):
        yield from _open_objects(asked["schema"])


def _open_objects(schema: Any) -> Iterator[str]:
    """Yield what strict mode refuses in a schema."""
    children: Iterable[Any] = ()
    if isinstance(schema, list):
        children = cast(list[Any], schema)
    elif isinstance(schema, dict):
        node = cast(dict[str, Any], schema)
        yield from _open_object(node)
        children = node.values()
    for child in children:
        yield from _open_objects(child)


def _open_object(node: Body) -> Iterator[str]:
    if node.get("type") == "object":
        if node.get("additionalProperties") is not False:
            yield "invalid schema for response_format: 'additionalProperties' must be false"
        if sorted(node.get("required", ())) != sorted(node.get("properties", {})):
            yield "invalid schema for response_format: 'required' must name every property"
    if "$ref" in node and len(node) > 1:
        yield "invalid schema for response_format: $ref cannot have keywords beside it"


def _conversation(messages: Any) -> Iterator[str]:
    if not isinstance(messages, list) or not messages:
        yield "[] is too short - 'messages'"
        return
    waiting: set[str] = set()
    for number, message in enumerate(cast(Sequence[Body], messages)):
        role = message.get("role")
        if role not in ROLES:
            yield f"invalid value for 'messages[{number}].role'"
        elif role == "tool":
            if message.get("tool_call_id") not in waiting:
                yield "messages with role 'tool' must follow a message with its 'tool_calls'"
            waiting.discard(message.get("tool_call_id", ""))
        elif waiting:
            yield "an assistant message with 'tool_calls' must be followed by tool messages"
        yield from _content(message, number)
        waiting |= {call["id"] for call in message.get("tool_calls", ())}
    if waiting:
        yield "an assistant message with 'tool_calls' must be followed by tool messages"


def _content(message: Body, number: int) -> Iterator[str]:
    content, calls = message.get("content"), message.get("tool_calls")
    if content is None and not calls:
        yield f"invalid value for 'messages[{number}].content': expected a string, got null"
    if calls == []:
        yield f"[] is too short - 'messages.{number}.tool_calls'"
    for call in calls or ():
        if not call.get("id") or not _is_object(call["function"]["arguments"]):
            yield f"invalid 'messages[{number}].tool_calls'"


def _is_object(text: Any) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (TypeError, ValueError):
        return False
