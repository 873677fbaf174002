"""HTML to readable text: blocks become paragraphs, and each line knows its source line.

It needs neither attributes nor a tree: `lib.content.markup` has the tokens, in linear time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from lib.content.html.visibility import sight_of
from lib.content.markup import Kind, tokens, unescaped
from lib.ingest.document import Document, Heading

_RAW: Final = frozenset({"script", "style"})
_DROPPED: Final = frozenset({
    "audio", "button", "canvas", "datalist", "iframe", "math", "nav", "noscript", "object",
    "select", "svg", "template", "textarea", "video",
})  # fmt: skip
_PARAGRAPHS: Final = frozenset({
    "address", "article", "aside", "blockquote", "body", "details", "dialog", "div", "dl",
    "fieldset", "figcaption", "figure", "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6",
    "header", "hgroup", "hr", "html", "main", "ol", "p", "pre", "section", "summary", "table", "ul",
})  # fmt: skip
_LINES: Final = frozenset({"br", "caption", "dd", "dt", "li", "tr"})
_CELLS: Final = frozenset({"td", "th"})
_HEADINGS: Final = {f"h{level}": level for level in range(1, 7)}

_closings = re.compile(r"</([a-z]+)", re.IGNORECASE).finditer


def read_html(text: str) -> Document:
    """Return what a reader of the page would see, without scripts, styles and navigation.

    Paragraphs are separated by an empty line, items and rows by a line feed; `pre` keeps its white
    space and stays whole. The title is that of the head, else the first `h1`. Markup errors are
    read as they come.
    """
    page = _Page()
    for token in _visible(text):
        page.take(token)
    return page.document()


def _visible(text: str) -> Iterator[tuple[Kind, str, int]]:
    """Yield the tokens outside of dropped elements, without texts that cannot be seen.

    An element that is never closed drops nothing.
    """
    sight = sight_of(text)
    last_closing = {found[1].lower(): found.start() for found in _closings(text)}
    dropped: list[str] = []
    line = counted = 0
    for kind, value, offset, _ in tokens(text, skipped=_RAW):
        if kind == "open" and value in _DROPPED:
            if last_closing.get(value, -1) > offset:
                dropped.append(value)
        elif kind == "close" and value in dropped:
            while dropped.pop() != value:
                pass
        elif not dropped and offset not in sight.unseen:
            line, counted = line + text.count("\n", counted, offset), offset
            yield kind, value, line + 1


class _Page:
    """Collects the text; `_gap` is the white space that is owed before the next word."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._length = 0
        self._gap = ""
        self._offsets, self._lines = [0], [1]
        self._titles: list[str] = []
        self._in_title = False
        self._heading: tuple[int, int, int] | None = None  # offset, place in _parts, level
        self._headings: list[Heading] = []
        self._pre: int | None = None
        self._blocks: list[tuple[int, int]] = []

    def document(self) -> Document:
        """Return the page, once all of it is taken."""
        self._end_heading()
        self._end_pre()
        first = next((heading.text for heading in self._headings if heading.level == 1), "")
        return Document(
            text="".join(self._parts),
            title=" ".join("".join(self._titles).split()) or first,
            headings=self._headings,
            blocks=self._blocks,
            offsets=self._offsets,
            lines=self._lines,
        )

    def take(self, token: tuple[Kind, str, int]) -> None:
        """Add the next token; its number is the line."""
        kind, value, line = token
        if kind == "open":
            self._open(value)
        elif kind == "close":
            self._close(value)
        elif self._in_title:
            self._titles.append(unescaped(value))
        elif self._pre is None:
            self._flow(value, line)
        else:
            self._preformatted(value, line, self._pre)

    def _open(self, tag: str) -> None:
        self._in_title = tag == "title"
        self._break(tag)
        if tag in _HEADINGS:
            self._heading = (self._start(), len(self._parts), _HEADINGS[tag])
        elif tag == "pre":
            self._pre = self._start()

    def _close(self, tag: str) -> None:
        self._in_title = False
        if tag == "pre":
            self._end_pre()
        self._break(tag)

    def _flow(self, text: str, line: int) -> None:
        for number, part in enumerate(text.split("\n")):
            if number:
                self._gap = self._gap or " "
            spaced = unescaped(part)
            words = " ".join(spaced.split())
            if words:
                self._gap = self._gap or (" " if spaced[0].isspace() else "")
                self._write(words, line + number)
            if spaced and spaced[-1].isspace():
                self._gap = self._gap or " "

    def _preformatted(self, text: str, line: int, start: int) -> None:
        for number, part in enumerate(text.split("\n")):
            begun = self._length > start
            if number and begun:
                self._gap += "\n"
            verbatim = unescaped(part)
            if verbatim.strip():
                self._write(verbatim, line + number)
            elif begun:
                self._gap += verbatim

    def _write(self, words: str, line: int) -> None:
        if self._length:
            self._parts.append(self._gap)
            self._length += len(self._gap)
        self._gap = ""
        if line != self._lines[-1]:
            self._offsets.append(self._length)
            self._lines.append(line)
        self._parts.append(words)
        self._length += len(words)

    def _break(self, tag: str) -> None:
        """Owe the white space that stands around this tag."""
        if tag in _PARAGRAPHS:
            self._end_heading()
            self._gap = "\n\n"
        elif tag in _LINES and self._gap != "\n\n":
            self._gap = "\n"
        elif tag in _CELLS:
            self._gap = self._gap or " "

    def _start(self) -> int:
        """Return the offset at which the next word will stand."""
        return self._length + len(self._gap) if self._length else 0

    def _end_heading(self) -> None:
        if self._heading and self._length > self._heading[0]:
            start, place, level = self._heading
            text = " ".join("".join(self._parts[place:]).split())
            self._headings.append(Heading(start=start, end=self._length, level=level, text=text))
            self._heading = None

    def _end_pre(self) -> None:
        if self._pre is not None and self._length > self._pre:
            self._blocks.append((self._pre, self._length))
        self._pre = None
