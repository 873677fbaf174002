"""A page as a flat list of blocks of text, each in a container that knows its parent.

Nothing here is a tree of objects and nothing recurses, so depth costs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

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
