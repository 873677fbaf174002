"""The result of a tool as text for the model."""

from __future__ import annotations

from typing import Any

from pydantic_core import to_jsonable_python

from lib._util.json import canonical
from lib.errors import ToolError


def as_text(value: Any) -> str:
    """Return text as it is, None as nothing, and data as canonical JSON.

    Data is what pydantic can serialise: models, dataclasses, dates and the like, nested or not.

    Raises:
        ToolError: the value is something else.
    """
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    try:
        return canonical(to_jsonable_python(value))
    except (TypeError, ValueError, RecursionError) as error:
        message = f"the tool ran, but what it returned cannot be shown: {error}"
        raise ToolError("failed", message) from error


def clip(text: str, max_chars: int) -> tuple[str, int]:
    """Return at most `max_chars` characters of the text and how many were cut off."""
    cut = len(text) - max_chars
    if cut <= 0:
        return text, 0
    return f"{text[:max_chars]}\n[{cut} of {len(text)} characters cut]", cut
