"""A text whose escapes, of JSON and of URLs, are read as what they stand for. Pure."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from typing import Final

# Source: RFC 8259, 7. A pair of surrogates is one character.
_ESCAPE: Final = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|[\"\\/bfnrt])"
)
# Source: RFC 3986, 2.1; of ASCII, in which credentials are written.
_PERCENT: Final = re.compile(r"%[2-7][0-9a-fA-F]")
_CHARS: Final = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
MAX_LEVELS: Final = 3
"""Times that JSON escapes are read: JSON in a string of JSON has its escapes escaped."""
MAX_PERCENT_LEVELS: Final = 2
"""Times that percent-encoding is read: a URL may be a parameter of another one."""


class Unescaped:
    """The text with each escape as its character, and where each of its characters comes from."""

    __slots__ = ("_at", "_spans", "text")

    def __init__(self, written: str, escape: re.Pattern[str] = _ESCAPE) -> None:
        """Read a text, be it JSON or a URL as a whole or not."""
        self._spans: list[tuple[int, int]] = []
        self._at: list[int] = []  # where each of these escapes is in what was read
        pieces: list[str] = []
        done = shorter = 0
        for found in escape.finditer(written):
            start, end = found.span()
            self._spans.append((start, end))
            self._at.append(start - shorter)
            pieces += (written[done:start], _char(found[0]))
            done = end
            shorter += end - start - 1
        self.text: str = "".join([*pieces, written[done:]])

    def __bool__(self) -> bool:
        """Return True if there is any escape."""
        return bool(self._spans)

    def written(self, start: int, end: int) -> tuple[int, int]:
        """Return where this part stands in the text as it was written."""
        return self._origin(start)[0], self._origin(end - 1)[1]

    def read(self, start: int, end: int) -> tuple[int, int] | None:
        """Return where this part of the written text stands in what was read.

        None if it begins within an escape: `n` of a line break is no letter before a word. If it
        ends within one, it goes on to its end.
        """
        if self._around(start) is not None:
            return None
        last = self._around(end)
        return self._place(start), self._place(end if last is None else last[1])

    def _place(self, written: int) -> int:
        number = bisect_right(self._spans, (written,)) - 1
        if number < 0:
            return written
        begin, stop = self._spans[number]
        return self._at[number] + (1 + written - stop if written > begin else 0)

    def _around(self, place: int) -> tuple[int, int] | None:
        """Return the escape that begins before this place and ends after it."""
        number = bisect_right(self._spans, (place,)) - 1
        if number < 0:
            return None
        start, end = self._spans[number]
        return (start, end) if start < place < end else None

    def _origin(self, place: int) -> tuple[int, int]:
        number = bisect_right(self._at, place) - 1
        if number < 0:
            return place, place + 1
        if self._at[number] == place:
            return self._spans[number]
        start = self._spans[number][1] + place - self._at[number] - 1
        return start, start + 1


def levels(text: str) -> Iterator[Unescaped]:
    """Yield the text with its escapes read, then that with its escapes read, while it has any."""
    for escape, sign, times in (
        (_ESCAPE, "\\", MAX_LEVELS),
        (_PERCENT, "%", MAX_PERCENT_LEVELS),
    ):
        for _ in range(times):
            read = Unescaped(text, escape) if sign in text else None
            if not read:
                break
            yield read
            text = read.text


def _char(escape: str) -> str:
    if escape[0] == "%":
        return chr(int(escape[1:], 16))
    if escape[1] != "u":
        return _CHARS.get(escape[1], escape[1])
    high, low = int(escape[2:6], 16), int(escape[8:] or "0", 16)
    if not low:
        return chr(high)
    return chr(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00))
