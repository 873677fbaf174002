"""The protocol of a redactor, and its use on the payloads of events. Pure.

The original is not kept: the log, the model, the tools and everything derived from the log see what
the redactor returned, in the live run as in a resumed one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, cast

from lib.errors import RedactionFailed
from lib.privacy.fields import walk


class Redactor(Protocol):
    """Replaces secrets and personal data in a text by placeholders.

    It is deterministic (the same text gives the same result, in every process that shares a store)
    and idempotent (its own result, it leaves as it is). It is called on the event loop, with large
    payloads in a thread: calls may overlap, and a slow redactor makes runs slow.
    """

    def redact(self, text: str) -> str:
        """Return the text with placeholders for secrets and personal data."""
        ...


def redact_event(kind: str, data: dict[str, Any], redactor: Redactor) -> dict[str, Any]:
    """Return the payload with its content redacted, as a new value; see `lib.privacy.fields`.

    Raises:
        RedactionFailed: the redactor raised, or returned no text.
    """
    return walk(kind, data, _safely(kind, redactor))


def _safely(kind: str, redactor: Redactor) -> Callable[[str], str]:
    def redact(text: str) -> str:
        try:
            redacted = redactor.redact(text)
        # Around a user's own code; what it raised may hold the text, so it is not chained.
        except Exception as error:  # noqa: BLE001 - see above
            raise RedactionFailed(kind, type(error).__name__) from None
        if not isinstance(redacted, str):  # pyright: ignore[reportUnnecessaryIsInstance] - not all are typed
            raise RedactionFailed(kind, "no text was returned")
        return redacted

    return redact


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
    if isinstance(redactor, type) or not hasattr(redactor, "redact"):
        got = (
            f"the class {redactor.__name__}"
            if isinstance(redactor, type)
            else type(redactor).__name__
        )
        raise TypeError(
            f"expected a Redactor, got {got}: use an instance, such as PatternRedactor()"
        )
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
