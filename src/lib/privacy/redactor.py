"""The protocol of a redactor, and its use on the payloads of events. Pure.

The original is not kept: the log, the model, the tools and everything derived from the log see what
the redactor returned, in the live run as in a resumed one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

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
