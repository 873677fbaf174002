"""Readers of plain text, Markdown and reStructuredText; none of them raises on odd markup."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from lib.ingest.document import Document, Heading

_fence = re.compile(r"[ \t]*(?:[-*+>][ \t]+)*(`{3,}|~{3,})(.*)").match
_atx = re.compile(r" {0,3}(#{1,6})(?![^ \t])(.*)").match
_setext = re.compile(r" {0,3}(=+|-+)[ \t]*$").match
_paragraph = re.compile(r" {0,3}(?![#>|]|[-*+][ \t]|\d+[.)][ \t])\S").match
_front_matter = re.compile(
    r"---[ \t]*\n(?=[\w\"'-]+[ \t]*:)(.*?\n)(?:---|\.\.\.)[ \t]*(?:\n|$)", re.DOTALL
).match
_front_title = re.compile(r"^title:(.+)$", re.MULTILINE).search
_adornment = re.compile(r"([^\w\s])\1*[ \t]*$").match
_MIN_ADORNMENT: Final = 3


def read_plain(text: str) -> Document:
    """Return the text as it is; plain text has no headings."""
    offsets, _ = _lines(text)
    return Document(text=text, offsets=offsets, lines=range(1, len(offsets) + 1))


def read_markdown(text: str) -> Document:
    """Return the text with its headings, its fenced code, and without its front matter.

    The title is that of the front matter, else the first heading of level 1. The text keeps its
    markup. A fence that is never closed reaches to the end.

    Source: https://spec.commonmark.org/0.31.2/ (4.2, 4.3, 4.5).
    """
    body, front = _without_front_matter(text)
    offsets, lines = _lines(body)
    fences = list(_fences(lines))
    headings = list(_markdown_headings(offsets, lines, fences))
    return Document(
        text=body,
        title=front or _first_of_level_1(headings),
        headings=headings,
        blocks=[(offsets[first], offsets[last] + len(lines[last])) for first, last in fences],
        offsets=offsets,
        lines=range(1, len(offsets) + 1),
    )


def read_rst(text: str) -> Document:
    """Return the text with its section titles, each underlined and perhaps overlined.

    The level of an adornment is the order in which it is first used. The title is the first one.

    Source: https://docutils.sourceforge.io/docs/ref/rst/restructuredtext.html#sections.
    """
    offsets, lines = _lines(text)
    headings = list(_rst_headings(offsets, lines))
    return Document(
        text=text,
        title=headings[0].text if headings else "",
        headings=headings,
        offsets=offsets,
        lines=range(1, len(offsets) + 1),
    )


def _lines(text: str) -> tuple[list[int], list[str]]:
    """Return the offset of each line and the line without its end."""
    lines = text.split("\n")
    offsets = [0]
    for line in lines[:-1]:
        offsets.append(offsets[-1] + len(line) + 1)
    return offsets, lines


def _without_front_matter(text: str) -> tuple[str, str]:
    """Return the text with its front matter blanked, so that lines keep their numbers."""
    found = _front_matter(text)
    if not found:
        return text, ""
    title = _front_title(found[1])
    blank = "\n" * found[0].count("\n")
    return blank + text[found.end() :], title[1].strip().strip("\"'") if title else ""


def _fences(lines: list[str]) -> Iterator[tuple[int, int]]:
    """Yield the first and the last line of each fenced code block."""
    opened, first = "", 0
    for place, line in enumerate(lines):
        fence = _fence(line)
        if not fence:
            continue
        marks, rest = fence.groups()
        if opened and marks.startswith(opened) and not rest.strip():
            yield first, place
            opened = ""
        elif not opened and not (marks[0] == "`" and "`" in rest):
            opened, first = marks, place
    if opened:
        yield first, len(lines) - 1


def _markdown_headings(
    offsets: list[int], lines: list[str], fences: list[tuple[int, int]]
) -> Iterator[Heading]:
    code = {place for first, last in fences for place in range(first, last + 1)}
    above = ""
    for place, (offset, line) in enumerate(zip(offsets, lines, strict=True)):
        if place in code:
            above = ""
            continue
        end = offset + len(line)
        atx, setext = _atx(line), _setext(line)
        if atx:
            yield Heading(start=offset, end=end, level=len(atx[1]), text=_atx_text(atx[2]))
        elif setext and _paragraph(above):
            level = 1 if setext[1][0] == "=" else 2
            yield Heading(start=offsets[place - 1], end=end, level=level, text=above.strip())
        above = "" if atx or setext else line


def _atx_text(rest: str) -> str:
    """Return the heading without the closing number signs, which need a space before them."""
    text = rest.strip()
    opened = text.rstrip("#")
    return text if opened and opened[-1] not in " \t" else opened.rstrip()


def _first_of_level_1(headings: list[Heading]) -> str:
    return next((heading.text for heading in headings if heading.level == 1), "")


def _rst_headings(offsets: list[int], lines: list[str]) -> Iterator[Heading]:
    levels: dict[tuple[str, bool], int] = {}
    for place, (line, below) in enumerate(pairwise(lines)):
        under = _adornment(below)
        title = line.strip()
        if not under or not title or _adornment(line) or not _is_underline(below, title):
            continue
        overlined = place > 0 and lines[place - 1].rstrip() == below.rstrip()
        level = levels.setdefault((under[1], overlined), len(levels) + 1)
        start = offsets[place - 1] if overlined else offsets[place]
        end = offsets[place + 1] + len(below)
        yield Heading(start=start, end=end, level=level, text=title)


def _is_underline(adornment: str, title: str) -> bool:
    return len(adornment.rstrip()) >= max(_MIN_ADORNMENT, len(title))
