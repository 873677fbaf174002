"""Placeholders instead of secrets and personal data in texts, found by patterns. Pure.

Deterministic and idempotent, so that a text that comes again, or comes back from the log, reads the
same and conversations keep their digests.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from lib._util.json import canonical, parse
from lib.privacy.detect import DEFAULT, Detector, find
from lib.privacy.detect.plain import reads
from lib.privacy.fields import anything

WHOLE: Final = "[REDACTED]"
MIN_KEY_BYTES: Final = 16
MAX_PASSES: Final = 8
"""Passes over a text; one that shows a new finding in each was made to do so."""


class PatternRedactor:
    """Puts `[EMAIL]` for an address, `[SECRET]` for a key, and so on; see `lib.privacy.detect`.

    With a key it is `[EMAIL:1f3a9c0d]`: equal values have equal placeholders, so that a model can
    tell two people apart, and without the key values cannot be guessed and compared. A process
    without the same key writes other placeholders: share it, and keep it as long as the store.
    """

    def __init__(
        self, detectors: Sequence[Detector] = DEFAULT, *, key: bytes | None = None
    ) -> None:
        """Choose what to look for.

        Args:
            detectors: what finds it; of equal findings the earlier detector's counts.
            key: at least 16 secret bytes; 32 bits of an HMAC-SHA256 of the kind and the value,
                as it reads and without spaces and case, stand in the placeholder.

        Raises:
            ValueError: the key is shorter.
        """
        if key is not None and len(key) < MIN_KEY_BYTES:
            raise ValueError(f"a redactor's key has {MIN_KEY_BYTES} bytes or more, got {len(key)}")
        self._detectors = tuple(detectors)
        self._key = key

    def redact(self, text: str) -> str:
        """Return the text with placeholders; invisible characters in a finding go with it.

        What is a JSON object, list or string stays one: a number becomes a placeholder in
        quotation marks. A number alone is a text like every other.
        """
        for _ in range(MAX_PASSES):
            redacted = self._once(text)
            if redacted == text:
                return text
            text = redacted
        # What stood beside a finding may become one when that is gone; here that has no end.
        if self._once(text) == text:
            return text
        return WHOLE if _json(text) is None else f'"{WHOLE}"'

    def _once(self, text: str) -> str:
        found = find(text, self._detectors)
        if not found:
            return text
        pieces: list[str] = []
        done = 0
        for kind, start, end in found:
            placeholder = self._placeholder(kind, text[start:end])
            number = _number(text, start, end)
            if number is not None:
                placeholder = f"{number.mark}{text[number.start : start]}{placeholder}{number.mark}"
                start = number.start  # noqa: PLW2901 - with its sign
            pieces += (text[done:start], placeholder)
            done = end
        redacted = "".join([*pieces, text[done:]])
        value = _json(text)
        return redacted if value is None or _json(redacted) is not None else self._rebuilt(value)

    def _rebuilt(self, value: _JSON) -> str:
        """Return JSON redacted text by text, where a finding was no part of one of its texts."""
        try:
            return canonical(anything(value.value, self.redact))
        except (RecursionError, ValueError):  # too deep for us, or numbers beyond all measure
            return f'"{WHOLE}"'

    def _placeholder(self, kind: str, value: str) -> str:
        if self._key is None:
            return f"[{kind.upper()}]"
        same = "".join(char for char in reads(value) if char.isalnum() or char in "@._+").casefold()
        value_of_kind = f"{kind}:{same}".encode(errors="surrogatepass")
        return f"[{kind.upper()}:{hmac.digest(self._key, value_of_kind, 'sha256').hex()[:8]}]"


class _Number(NamedTuple):
    """A whole number in JSON: where it begins, and the quotation mark of its key."""

    start: int
    mark: str


class _JSON(NamedTuple):
    value: Any


_KEY: Final = re.compile(r"(\\{0,7}\")[ \t\r\n]{0,16}:[ \t\r\n]{0,16}(-?)\Z")
_NEXT: Final = re.compile(r"[ \t\r\n]{0,16}(?:[,}\]]|\Z)")


def _number(text: str, start: int, end: int) -> _Number | None:
    """Return the number that this part of a text is, after a key in quotation marks."""
    if not text[start:end].isdecimal() or not _NEXT.match(text, end):
        return None
    key = _KEY.search(text, max(0, start - 48), start)
    return None if key is None else _Number(key.start(2), key[1])


def _json(text: str) -> _JSON | None:
    """Return the value of a text that is a JSON object, list or string, None for another one."""
    if text.lstrip(" \t\r\n")[:1] not in ("{", "[", '"'):
        return None
    try:
        return _JSON(parse(text))
    except (RecursionError, ValueError):
        return None
