"""The engine's one use of a redactor: on each payload, before it is numbered, folded or written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from lib.engine.given import check_has
from lib.privacy.fields import walk
from lib.privacy.redactor import Redactor, redact_event

Redaction = Callable[[str, dict[str, Any]], dict[str, Any]]
"""Takes the kind and the payload of an event and returns the payload as it is to be written."""

NOTHING_REDACTED: Final[Redaction] = lambda _kind, data: data  # noqa: E731 - one value of a type


def redaction(redactor: Redactor | None) -> Redaction:
    """Return what is done to every payload; nothing without a redactor.

    Raises:
        TypeError: it is no redactor.
    """
    if redactor is None:
        return NOTHING_REDACTED
    check_has(redactor, "redact", "is no redactor: give an instance, such as PatternRedactor()")
    return lambda kind, data: _own_handle(data, redact_event(kind, data, redactor))


def blanked(kind: str, data: dict[str, Any]) -> dict[str, Any]:
    """Return a payload without its content: what is written where nothing can be redacted."""
    return walk(kind, data, lambda _text: "")


def _own_handle(data: dict[str, Any], redacted: dict[str, Any]) -> dict[str, Any]:
    """Return the redacted payload without a provider's handle on what was taken out of it."""
    match data, redacted:
        case {"reply": {"state": _, "parts": said}}, {"reply": {"parts": kept, **reply}}:
            if said != kept:
                reply.pop("state", None)
                return {**redacted, "reply": {"parts": kept, **reply}}
        case _:
            pass
    return redacted
