"""The engine's one use of a redactor: on each payload, before it is numbered, folded or written."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final, cast

from lib.engine.arguments import require_attribute
from lib.privacy.fields import walk
from lib.privacy.redactor import Redactor, redact_event

Redaction = Callable[[str, dict[str, Any]], dict[str, Any]]
"""Takes the kind and the payload of an event and returns the payload as it is to be written."""

LARGE_CHARS: Final = 16_000
"""Characters of a payload's texts from which on it is redacted in a thread: some 30 ms."""
NOTHING_REDACTED: Final[Redaction] = lambda _kind, data: data  # noqa: E731 - one value of a type


def redaction(redactor: Redactor | None) -> Redaction:
    """Return what is done to every payload; nothing without a redactor.

    Raises:
        TypeError: it is not a redactor.
    """
    if redactor is None:
        return NOTHING_REDACTED
    way_out = "use an instance, such as PatternRedactor()"
    require_attribute(redactor, "redact", "a Redactor", way_out)
    return lambda kind, data: _own_handle(data, redact_event(kind, data, redactor))


async def off_loop_if_large(redact: Redaction, kind: str, data: dict[str, Any]) -> dict[str, Any]:
    """Return the payload redacted; one with much text is redacted in a thread."""
    if redact is NOTHING_REDACTED or not _has_more_text(data, LARGE_CHARS):
        return redact(kind, data)
    return await asyncio.to_thread(redact, kind, data)


def _has_more_text(data: object, chars: int) -> bool:
    """Return True if the texts of a payload together have more characters than this."""
    waiting = [data]
    while waiting and chars >= 0:
        value = waiting.pop()
        if isinstance(value, str):
            chars -= len(value)
        elif isinstance(value, dict):
            waiting += cast("dict[str, object]", value).values()
        elif isinstance(value, (list, tuple)):
            waiting += cast("Sequence[object]", value)
    return chars < 0


def blanked(kind: str, data: dict[str, Any]) -> dict[str, Any]:
    """Return a payload without its content: what is written where nothing can be redacted."""
    return walk(kind, data, lambda _text: "")


def _own_handle(data: dict[str, Any], redacted: dict[str, Any]) -> dict[str, Any]:
    """Return the redacted payload without a provider's handle on what was taken out of it."""
    match data, redacted:
        case {"reply": {"state": _, "parts": original}}, {"reply": {"parts": kept, **reply}}:
            if original != kept:
                reply.pop("state", None)
                return {**redacted, "reply": {"parts": kept, **reply}}
        case _:
            pass
    return redacted
