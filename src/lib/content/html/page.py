"""HTML to readable text: the main content, or all that is seen where there is none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from lib.content.html.blocks import Block, Blocks
from lib.content.html.main_content import main_blocks
from lib.content.html.markdown import written
from lib.content.html.reader import read_blocks

Choice: TypeAlias = Callable[[Blocks], list[Block]]

ENOUGH: Final = 300
"""Main content of so many characters is taken for it, whatever else there is."""

SHARE: Final = 0.25
"""Main content with this share of all that is seen is taken for it, however short."""

_LITTLE: Final = 50
_MUCH_SOURCE: Final = 20_000
_NEEDS_SCRIPTS: Final = "page seems to need JavaScript: it holds almost no text without it"
_CUT: Final = "page is too complex: only its beginning was read"


def read_html(
    source: str, *, url: str, max_chars: int, choose: Choice | None = None
) -> tuple[str | None, str, str | None]:
    """Return a page's title, its text in the manner of Markdown, and a note, each or None.

    Args:
        source: HTML.
        url: where it came from, for its links.
        max_chars: how long the text may be.
        choose: which blocks are the main content; by default `main_blocks` says it.
    """
    page = read_blocks(source, url=url)
    blocks = main_blocks(page) if choose is None else choose(page)
    seen = sum(block.size for block in page.blocks)
    size = sum(block.size for block in blocks)
    if size < ENOUGH and size < SHARE * seen:
        blocks = page.blocks
    text, cut = written(blocks, max_chars=max_chars)
    title = page.title or next((block.text for block in page.blocks if block.level == 1), None)
    note = None
    if seen < _LITTLE and len(source) > _MUCH_SOURCE:
        note = _NEEDS_SCRIPTS
    elif page.cut or cut:
        note = _CUT
    return title, text, note


def fragment(source: str, *, url: str) -> str:
    """Return all text of a short piece of HTML."""
    if "<" not in source and "&" not in source:
        return " ".join(source.split())
    return written(read_blocks(source, url=url).blocks, max_chars=len(source) + 1_000)[0]
