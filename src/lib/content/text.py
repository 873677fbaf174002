"""Text that is read as it stands: plain, CSV, and Markdown without what its readers do not see."""

from __future__ import annotations

import re
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
