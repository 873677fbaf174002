"""A file as readable text, and where each part of it stands in the source."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias


@dataclass(frozen=True, slots=True, kw_only=True)
class Heading:
    """A heading of the text: `text[start:end]` are its lines, markup included."""

    start: int
    end: int
    level: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """The text of a file, with its headings, code and source lines.

    Attributes:
        text: what is worth searching; lines end with a line feed.
        title: what the document calls itself; may be empty.
        headings: in their order.
        blocks: spans of `text`, in their order and apart, that should stay whole: code.
        offsets: ascending offsets into `text`; the first is 0.
        lines: the source line, from 1, of each offset; it holds up to the next offset.
    """

    text: str
    title: str = ""
    headings: Sequence[Heading] = ()
    blocks: Sequence[tuple[int, int]] = ()
    offsets: Sequence[int] = field(default=(0,))
    lines: Sequence[int] = field(default=(1,))

    def line_at(self, offset: int) -> int:
        """Return the source line, from 1, of the character at this offset."""
        return self.lines[bisect_right(self.offsets, offset) - 1]

    def blocks_in(self, start: int, end: int) -> Sequence[tuple[int, int]]:
        """Return the blocks that have a part between the two offsets."""
        first = bisect_right(self.blocks, start, key=lambda block: block[1])
        return self.blocks[first : bisect_left(self.blocks, end, key=lambda block: block[0])]

    def block_around(self, offset: int) -> tuple[int, int] | None:
        """Return the block that this offset would cut in two."""
        place = bisect_right(self.blocks, offset, key=lambda block: block[0]) - 1
        if place >= 0 and self.blocks[place][0] < offset < self.blocks[place][1]:
            return self.blocks[place]
        return None


Reader: TypeAlias = Callable[[str], Document]
"""Makes a document of the text of a file, in which only line feeds end lines."""
