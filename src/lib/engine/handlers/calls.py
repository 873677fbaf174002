"""Tool calls of a reply, as the log can hold them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from lib._util.json import canonical
from lib.llm import Reply, ToolCall
from lib.llm.wire.fields import is_shallow

UNWRITABLE: Final = "(not JSON, or nested too deeply)"


def with_writable_calls(reply: Reply) -> Reply:
    """Return the reply with arguments that are JSON, and not nested too deeply to be written.

    Other arguments are marked as invalid, which the model is told as the result of its call. Our
    clients do so themselves; this is for all others.
    """
    if all(_is_writable(call.arguments) for call in reply.tool_calls):
        return reply
    parts = [
        replace(part, arguments={}, invalid=UNWRITABLE)
        if isinstance(part, ToolCall) and not _is_writable(part.arguments)
        else part
        for part in reply.parts
    ]
    return replace(reply, parts=tuple(parts))


def _is_writable(arguments: Mapping[str, Any]) -> bool:
    try:
        canonical(arguments)
    except (TypeError, ValueError, RecursionError):
        return False
    return is_shallow(arguments)
