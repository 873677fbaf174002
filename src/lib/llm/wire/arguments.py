"""Arguments of a tool call as servers send them: the text of a JSON object, or that object."""

from __future__ import annotations

from typing import Any, cast

from lib._util.json import canonical, parse
from lib.llm.wire import fields


def read_arguments(text: str) -> tuple[dict[str, Any], str | None]:
    """Return the arguments, or none and the text that is not a JSON object."""
    if not text.strip():
        return {}, None
    try:
        value = parse(text)
    except (ValueError, RecursionError):
        return {}, text
    if isinstance(value, dict) and fields.is_shallow(cast(Any, value)):
        return cast(dict[str, Any], value), None
    return {}, text


def arguments_text(value: Any) -> str:
    """Return arguments as text, which those of some servers are not."""
    if value is None or isinstance(value, str):
        return value or ""
    return canonical(value) if fields.is_shallow(value) else "(nested too deeply)"
