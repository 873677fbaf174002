"""Text that is read as it stands: plain, CSV, Markdown without what its readers do not see, JSON.

JSON is laid out over several lines without parsing: numbers stay as they are, depth costs nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

_newlines: Final = re.compile(r"\r\n?").sub
_fence: Final = re.compile(r" {0,3}(`{3,}+(?=[^`]*$)|~{3,}+)").match
_heading: Final = re.compile(r"^#[ \t]+([^\n]{1,500}?)[ \t#]*$", re.MULTILINE).search
_HEAD_CHARS: Final = 5_000


def read_plain(text: str) -> tuple[str | None, str]:
    """Return no title and the text, with lines that end in a line feed."""
    return None, _newlines("\n", text).strip("\n")


def read_markdown(text: str) -> tuple[str | None, str]:
    """Return the first heading and the text without comments, which only its source shows."""
    lines: list[str] = []
    fence, in_remark = "", False
    for line in _newlines("\n", text).split("\n"):
        if fence:
            lines.append(line)
            fence = "" if line.strip().startswith(fence) else fence
        elif not in_remark and (opened := _fence(line)):
            lines.append(line)
            fence = opened[1]
        else:
            seen, in_remark = _seen(line, in_remark=in_remark)
            lines.append(seen)
    text = "\n".join(lines).strip("\n")
    heading = _heading(text, 0, _HEAD_CHARS)
    return (heading[1].strip() if heading else None), text


def _seen(line: str, *, in_remark: bool) -> tuple[str, bool]:
    """Return what is no comment of a line, and whether one goes on after it."""
    parts: list[str] = []
    place = 0
    while place >= 0:
        start, place = place, line.find("-->" if in_remark else "<!--", place)
        if not in_remark:
            parts.append(line[start:] if place < 0 else line[start:place])
        if place >= 0:
            place += 3
            in_remark = not in_remark
    return "".join(parts), in_remark


MAX_LINE: Final = 100
"""An object without others in it stays on one line if it is not longer; a list of texts, too."""

MAX_INDENT: Final = 16
"""What is deeper is indented as deep as this."""

_STRING: Final = r'"(?:[^"\\]++|\\.|\\\Z)*+(?:"|\Z)'
_tokens: Final = re.compile(
    rf'(?P<flat>[\[{{](?:{_STRING}|[^"\[\]{{}}]++)*+[\]}}])|{_STRING}|[\[\]{{}},:]|[^\s"\[\]{{}},:]+',
    re.DOTALL,
).finditer
_inside: Final = re.compile(rf'{_STRING}|[\[\]{{}},:]|[^\s"\[\]{{}},:]+', re.DOTALL).finditer
_line_breaks: Final = re.compile(r"\s*\n\s*+").sub
_escape: Final = re.compile(
    r"\\u(d[89ab][0-9a-f]{2})\\u(d[c-f][0-9a-f]{2})|\\u([0-9a-f]{4})|\\.", re.IGNORECASE | re.DOTALL
).sub


def read_json(text: str, *, max_chars: int) -> str:
    """Return JSON, or what is near it, indented and with its characters unescaped.

    Nothing is checked: damaged JSON stays damaged. Linear, and ends soon after `max_chars`.
    """
    parts: list[str] = []
    length = depth = 0
    for piece in _pieces(text):
        if piece in "]}":
            depth = max(depth - 1, 0)
        before = "" if not parts or piece in ",:" else _gap(parts[-1], piece, depth)
        parts += before, (piece if piece != ":" else ": ")
        length += len(before) + len(parts[-1])
        if piece in "[{":
            depth += 1
        if length > max_chars:
            break
    return _unescaped("".join(parts))


def _pieces(text: str) -> Iterator[str]:
    for found in _tokens(text):
        piece = found[0]
        if not found["flat"]:
            yield piece
        elif len(piece) > MAX_LINE and (piece[0] == "{" or '"' in piece):
            yield from (inner[0] for inner in _inside(piece))
        else:
            yield _line_breaks(" ", piece)


def _gap(last: str, piece: str, depth: int) -> str:
    if last == ": " or (last in "[{" and piece in "]}"):
        return ""
    return "\n" + " " * min(depth, MAX_INDENT)


def _unescaped(text: str) -> str:
    """Write escaped characters that need no escape as themselves."""
    return _escape(_character, text) if "\\u" in text or "\\U" in text else text


def _character(found: re.Match[str]) -> str:
    high, low, single = found.groups()
    if high:
        return chr(0x10000 + ((int(high, 16) - 0xD800) << 10) + int(low, 16) - 0xDC00)
    character = chr(int(single, 16)) if single else ""
    return character if character >= "\xa0" and not "\ud800" <= character <= "\udfff" else found[0]
