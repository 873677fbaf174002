"""HTML files as documents: their visible text, without navigation, line by line."""

from __future__ import annotations

from lib.content.html.blocks import Block
from lib.content.html.markdown import MAX_CELL, is_close
from lib.content.html.reader import read_file_blocks
from lib.ingest.document import Document, Heading


def read_html(text: str) -> Document:
    """Return what a reader of the page would see, without scripts, styles and navigation.

    Paragraphs are separated by an empty line, items and rows by a line feed; `pre` keeps its white
    space and stays whole. The title is that of the head, else the first `h1`. Markup errors are
    read as they come.
    """
    page = read_file_blocks(text)
    parts: list[str] = []
    headings: list[Heading] = []
    code: list[tuple[int, int]] = []
    offsets, lines = [0], [1]
    length = 0
    last: Block | None = None
    for block in page.blocks:
        if not block.text:  # an empty cell
            continue
        gap = "" if last is None else _gap(last, block)
        start = length + len(gap)
        length = start + len(block.text)
        parts += gap, block.text
        for offset, line in block.lines:
            if line != lines[-1]:
                offsets.append(start + offset)
                lines.append(line)
        if block.kind == "heading":
            name = " ".join(block.text.split())
            headings.append(Heading(start=start, end=length, level=block.level, text=name))
        elif block.kind == "code":
            code.append((start, length))
        last = block
    first = next((heading.text for heading in headings if heading.level == 1), "")
    return Document(
        text="".join(parts),
        title=page.title or first,
        headings=headings,
        blocks=code,
        offsets=offsets,
        lines=lines,
    )


def _gap(last: Block, block: Block) -> str:
    """Return the white space between two blocks."""
    if last.row and last.row == block.row and last.cell != block.cell:
        return " " if max(last.size, block.size) <= MAX_CELL else "\n\n"
    return "\n" if is_close(last, block) else "\n\n"
