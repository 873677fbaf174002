"""A text as it reads: without invisible characters, in NFKC, with ASCII digits. Pure."""

from __future__ import annotations

import unicodedata
from typing import Final

# Beside all of the category Cf (format): joiners, variation selectors and fillers.
_INVISIBLE: Final = frozenset(
    "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0"
    + "".join(map(chr, range(0xFE00, 0xFE10)))
    + "".join(map(chr, range(0xE0100, 0xE01F0)))
)


class Plain:
    """The text as it reads, and where each of its characters comes from.

    Each character is folded by itself, so that positions can be mapped back: a letter and a
    combining mark after it stay two. Source: Unicode Standard Annex #15 (NFKC).
    """

    __slots__ = ("_origin", "_written", "text")

    def __init__(self, written: str) -> None:
        """Fold a text."""
        self.text: str = reads(written)
        self._written = written
        self._origin: list[int] | None = None

    def written(self, start: int, end: int) -> tuple[int, int]:
        """Return where this part stands in the text as it was written."""
        if self._written.isascii():
            return start, end
        if self._origin is None:
            table = _table(self._written)
            lengths = {char: len(table.get(ord(char), char)) for char in set(self._written)}
            places = enumerate(self._written)
            self._origin = [place for place, char in places for _ in range(lengths[char])]
        return self._origin[start], self._origin[end - 1] + 1


def reads(text: str) -> str:
    """Return the text as it reads."""
    return text if text.isascii() else text.translate(_table(text))


def _table(text: str) -> dict[int, str]:
    """Return what each character of the text becomes that does not stay as it is."""
    folded = ((char, _fold(char)) for char in set(text) if not char.isascii())
    return {ord(char): new for char, new in folded if char != new}


def _fold(char: str) -> str:
    if char in _INVISIBLE or unicodedata.category(char) == "Cf":
        return ""
    if char.isdecimal():
        return str(unicodedata.decimal(char))
    return unicodedata.normalize("NFKC", char)
