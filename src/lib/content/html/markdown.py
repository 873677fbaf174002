"""Blocks as text in the manner of Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Final

from lib.content.html.blocks import DEFINITION, Block

MAX_DEPTH: Final = 8
"""Lists and quotations that are deeper are written as if they were not."""

MAX_CELL: Final = 500
"""A table whose cells are longer is a matter of layout."""

_fences: Final = re.compile(r"`{3,}").findall


def written(blocks: Sequence[Block], *, max_chars: int) -> tuple[str, bool]:
    """Return the text of the blocks, and whether it was cut for being longer than `max_chars`."""
    parts: list[str] = []
    length = 0
    last: Block | None = None
    for block, text in _pieces(blocks):
        gap = "" if last is None else "\n" if is_close(last, block) else "\n\n"
        parts += gap, text
        length += len(gap) + len(text)
        last = block
        if length > max_chars:
            return "".join(parts)[:max_chars], True
    return "".join(parts), False


def _pieces(blocks: Sequence[Block]) -> Iterable[tuple[Block, str]]:
    header = -1  # the last row of headers
    for row, group in groupby(blocks, key=lambda block: block.row):
        cells = list(group)
        if row and _is_row(cells):
            yield cells[0], "| " + " | ".join(_cell(block) for block in cells) + " |"
            if all(block.header for block in cells):
                if row != header + 1:
                    yield cells[0], "|" + " --- |" * len(cells)
                header = row
        else:
            for block in cells:
                if block.text:
                    yield block, _lead(block) + _body(block)


def _is_row(cells: list[Block]) -> bool:
    """Return True if the cells of a row hold one short text each, and there are at least two."""
    return (
        len(cells) > 1
        and len({block.cell for block in cells}) == len(cells)
        and any(block.text for block in cells)
        and all(
            block.cell and block.size <= MAX_CELL and block.kind == "text" and not block.marker
            for block in cells
        )
    )


def _cell(block: Block) -> str:
    return block.text.replace("\n", " ").replace("|", "\\|")


def is_close(last: Block, block: Block) -> bool:
    """Return True if two blocks follow each other without an empty line."""
    if last.row and block.row and last.kind == block.kind == "text":
        return True
    if block.marker == DEFINITION:
        return True
    return bool(block.marker) and (bool(last.marker) or bool(last.depth and block.depth))


def _lead(block: Block) -> str:
    quoted = "> " * min(block.quotes, MAX_DEPTH)
    if block.marker:
        return quoted + "  " * (min(block.depth, MAX_DEPTH) - 1) + block.marker
    return quoted + "  " * min(block.depth, MAX_DEPTH)


def _body(block: Block) -> str:
    if block.kind == "heading":
        return "#" * block.level + " " + block.text.replace("\n", " ")
    text = block.text
    if block.kind == "code":
        fence = "`" * max(3, *(len(found) + 1 for found in _fences(text)), 3)
        text = f"{fence}{block.language}\n{text}\n{fence}"
    if "\n" in text and (block.quotes or block.depth):
        hang = "> " * min(block.quotes, MAX_DEPTH) + "  " * min(block.depth, MAX_DEPTH)
        return text.replace("\n", f"\n{hang}")
    return text
