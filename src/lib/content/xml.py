"""XML as a flat list of elements, read as it comes: no entity is expanded, nothing is fetched."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from lib._util.effort import check
from lib.content.markup import STEPS_PER_CHECK, attributes, unescaped

MAX_ELEMENTS: Final = 100_000
"""How many elements of a document are read."""

MAX_INDENT: Final = 16

_MAX_ATTRIBUTES: Final = 256

# Possessive, or up to the end of the text: no scan is repeated.
_markup: Final = re.compile(
    r"<!\[CDATA\[(?P<data>.*?)(?:\]\]>|\Z)"
    r"|<!--.*?(?:-->|\Z)|<\?.*?(?:\?>|\Z)"
    r"|<!DOCTYPE[^\[>]*+(?:\[.*?(?:\]\s*+>|\Z)|>|\Z)|<![^>]*+(?:>|\Z)"
    r"|<(?P<end>/?)(?P<name>[^\s/><!?=\"']++)(?:[^>\"']++|\"[^\"]*+(?:\"|\Z)|'[^']*+(?:'|\Z))*+(?:>|\Z)",
    re.DOTALL | re.IGNORECASE,
).finditer
_empty: Final = re.compile(r"/\s*>\Z").search


@dataclass(slots=True)
class Element:
    """An element with its own text.

    Attributes:
        name: in lower case, without its namespace's prefix.
        depth: how many elements are around it.
        attributes: names in lower case.
        pieces: its own text; characters of HTML's names are resolved, other entities are not.
    """

    name: str
    depth: int
    attributes: dict[str, str]
    pieces: list[str] = field(default_factory=list[str])

    @property
    def text(self) -> str:
        """Its own text, without white space around it."""
        return "".join(self.pieces).strip()


def elements(source: str) -> tuple[list[Element], bool]:
    """Return the elements in the order of their start tags, and whether they were too many."""
    found: list[Element] = []
    around: list[Element] = []
    counts: dict[str, int] = {}
    place = 0
    for match in _markup(source):
        if around and place < match.start():
            around[-1].pieces.append(unescaped(source[place : match.start()]))
        place = match.end()
        if around and match["data"]:
            around[-1].pieces.append(match["data"])
        elif match["end"]:
            _end(match["name"], around, counts)
        elif match["name"]:
            if len(found) >= MAX_ELEMENTS:
                return found, True
            if len(found) % STEPS_PER_CHECK == 0:
                check()
            found.append(_begin(match[0], match["name"], around, counts))
    return found, False


def _begin(tag: str, name: str, around: list[Element], counts: dict[str, int]) -> Element:
    read = attributes(tag, limit=_MAX_ATTRIBUTES) or {}
    element = Element(name.rpartition(":")[2].lower(), len(around), read)
    if not _empty(tag):
        around.append(element)
        counts[element.name] = counts.get(element.name, 0) + 1
    return element


def _end(name: str, around: list[Element], counts: dict[str, int]) -> None:
    name = name.rpartition(":")[2].lower()
    if not counts.get(name):
        return
    ended = ""
    while ended != name:
        ended = around.pop().name
        counts[ended] -= 1


def outline(found: list[Element], *, max_chars: int) -> str:
    """Return the elements, one a line, each with its attributes and its own text."""
    lines: list[str] = []
    length = 0
    for line in _lines(found):
        lines.append(line)
        length += len(line) + 1
        if length > max_chars:
            break
    return "\n".join(lines)


def _lines(found: list[Element]) -> Iterator[str]:
    for element in found:
        shown = ", ".join(
            f"{name}={value}"
            for name, value in element.attributes.items()
            if not name.startswith("xmlns")
        )
        text = " ".join(element.text.split())
        if shown or text:
            head = f"{element.name} ({shown})" if shown else element.name
            yield " " * min(element.depth, MAX_INDENT) + (f"{head}: {text}" if text else head)
        else:
            yield " " * min(element.depth, MAX_INDENT) + element.name
