"""A page as a flat list of blocks of text, each in a container, and the words of a block.

Nothing here is a tree of objects and nothing recurses, so depth costs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final, Literal, TypeAlias

from lib.content.markup import unescaped

BlockKind: TypeAlias = Literal["text", "heading", "code"]


DEFINITION: Final = ": "
"""The marker of the meaning of a term."""


@dataclass(slots=True)
class Block:
    """A paragraph, heading, item, cell or piece of code.

    Attributes:
        container: the number of the container that it stands in.
        kind: what it is.
        text: with the markup of links and code, but not of what it stands in.
        size: how many characters people see.
        linked: how many of them are in links.
        level: of a heading; else 0.
        quotes: how many quotations it stands in.
        depth: how many lists it stands in.
        marker: what begins the item that begins here, or "".
        row: the number of the table row that it stands in, or 0.
        cell: the number of its cell, or 0.
        header: whether the cell is one of a header.
        language: of code, or "".
        lines: ascending offsets into the text, each with the source line, from 1, that holds up to
            the next offset; empty unless lines are tracked.
    """

    container: int
    kind: BlockKind
    text: str
    size: int
    linked: int
    level: int = 0
    quotes: int = 0
    depth: int = 0
    marker: str = ""
    row: int = 0
    cell: int = 0
    header: bool = False
    language: str = ""
    lines: Sequence[tuple[int, int]] = ()


@dataclass(slots=True)
class Blocks:
    """A page as it was read.

    Attributes:
        blocks: in the order of the page.
        parents: for each container its parent, whose number is lower; container 0 is the page.
        hints: for each container what its name speaks for: -1 surroundings, 1 content, else 0.
        names: for each container its element's name.
        title: the text of the title element, or "".
        cut: whether the page was too complex to be read whole.
    """

    blocks: list[Block] = field(default_factory=list[Block])
    parents: list[int] = field(default_factory=lambda: [0])
    hints: list[int] = field(default_factory=lambda: [0])
    names: list[str] = field(default_factory=lambda: [""])
    title: str = ""
    cut: bool = False


class Inline:
    """Collects the text of a block: white space collapsed, links and code marked."""

    def __init__(self) -> None:
        """Begin without a word."""
        self._parts: list[str] = []
        self._gap = False
        self._size = self._linked = 0
        self._href: str | None = None
        self._in_link = False
        self._link_at = 0
        self._link_size = 0
        self._code_at: int | None = None
        self._lines: list[tuple[int, int]] = []  # the number of a part, and its source line

    @property
    def empty(self) -> bool:
        """True if no word was added since the last block was taken."""
        return not self._size

    def add(self, text: str, line: int = 0) -> None:
        """Add a text as it stands in the source, with its source line if lines are tracked."""
        spaced = unescaped(text)
        words = " ".join(spaced.split())
        if not words:
            self._gap = True
            return
        if (self._gap or spaced[0].isspace()) and self._parts:
            self._space()
        if line and (not self._lines or line != self._lines[-1][1]):
            self._lines.append((len(self._parts), line))
        self._parts.append(words)
        self._size += len(words)
        if self._in_link:
            self._linked += len(words)
        self._gap = spaced[-1].isspace()

    def _space(self) -> None:
        if self._parts[-1] != "\n":
            self._parts.append(" ")
        self._gap = False

    def forget_gap(self) -> None:
        """Take no notice of the white space before the next word."""
        self._gap = False

    def break_line(self) -> None:
        """Begin a new line within the block."""
        if self._parts and self._parts[-1] != "\n":
            self._parts.append("\n")
        self._gap = False

    def open_link(self, href: str | None) -> None:
        """Begin a link; one to None is only counted as such."""
        self.close_link()
        if self._gap and self._parts:
            self._space()
        self._href, self._in_link = href, True
        self._link_at, self._link_size = len(self._parts), self._size

    def close_link(self) -> None:
        """End the link that is open, if any."""
        self._mark_link()
        if self._in_link and self._size == self._link_size and self._parts[-1:] == [" "]:
            self._parts.pop()  # it stood before a link without a word
            self._gap = True
        self._href, self._in_link = None, False

    def _mark_link(self) -> None:
        """Write the open link around what was added in it; no further block repeats it."""
        if self._href is None or self._size == self._link_size:
            return
        text = "".join(self._parts[self._link_at :]).strip().replace("\n", " ")
        del self._parts[self._link_at :]
        self._parts.append(f"[{text}]({self._href})")
        self._href, self._code_at = None, None

    def open_code(self) -> None:
        """Begin a piece of code within the text."""
        if self._gap and self._parts:
            self._space()
        self._code_at = len(self._parts)

    def close_code(self) -> None:
        """End it."""
        if self._code_at is not None and self._code_at < len(self._parts):
            text = "".join(self._parts[self._code_at :])
            if "`" not in text and "\n" not in text:
                del self._parts[self._code_at :]
                self._parts.append(f"`{text}`")
        self._code_at = None

    def take(self) -> tuple[str, int, int, list[tuple[int, int]]]:
        """Return the text, its size, its linked size and its lines, and begin a new block."""
        self._mark_link()
        lines = offsets_of(self._parts, self._lines)
        taken = "".join(self._parts).strip(), self._size, self._linked, lines
        self._parts, self._lines = [], []
        self._gap, self._size, self._linked, self._code_at = False, 0, 0, None
        self._link_at = self._link_size = 0
        return taken


def offsets_of(parts: list[str], lines: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return source lines with the offsets of the parts in their joined text that they begin at."""
    if not lines:
        return []
    starts = list(accumulate(map(len, parts), initial=0))
    return [(starts[number], line) for number, line in lines]
