"""One piece of a long text at a time."""

from __future__ import annotations


def page(text: str, *, start: int, max_chars: int) -> tuple[str, int | None]:
    """Return a piece of the text, and where the next piece starts, or None after the last.

    The pieces that follow each other are together the text. One ends after a line if a line ends
    in its last quarter, else after a space there, else where it is full.

    Args:
        text: the whole text.
        start: the offset of the piece in characters; one outside the text gives an empty piece.
        max_chars: how long the piece may be, at least 1.
    """
    start = max(start, 0)
    end = start + max(max_chars, 1)
    if end >= len(text):
        return text[start:], None
    for separator in ("\n", " "):
        found = text.rfind(separator, end - max_chars // 4, end)
        if found >= 0:
            return text[start : found + 1], found + 1
    return text[start:end], end
