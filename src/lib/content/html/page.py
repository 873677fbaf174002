"""HTML to readable text: the main content, or all that is seen where there is none.

Paragraphs score for the containers around them, by their length and commas and against their share
of links; the container with the highest score is the content, with siblings that look like it and
without parts that look like surroundings.

Source: the idea of Arc90's Readability (2009) and Mozilla's Readability.js, on a flat list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

from lib.content.html.blocks import Block, Blocks
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


MIN_PARAGRAPH: Final = 25
"""A shorter text speaks for nothing."""

LINKED: Final = 0.5
"""A part of the content with this share of links is a list of links."""

LONG: Final = 80
"""A paragraph as long as this is prose beyond doubt."""

GAIN: Final = 1.2
"""A container around the best one that holds so much more prose is better."""

MOST: Final = 0.5
"""A container with this share of all prose is no surroundings, whatever it is called."""

_SHARES: Final = (1.0, 0.5, 1 / 6, 1 / 9, 1 / 12)
_TITLE_LINKED: Final = 0.8
_WHOLE: Final = frozenset({"article", "main"})
_LEAVES: Final = frozenset({
    "p", "pre", "h1", "h2", "h3", "h4", "h5", "h6", "li", "dd", "dt", "summary", "figcaption",
    "blockquote", "ul", "ol", "dl", "tbody", "thead", "tr", "td", "th",
})  # fmt: skip
"""Elements that are never the content themselves, but for the container that they stand in."""


@dataclass(slots=True)
class _Sums:
    """For each container: what is in it and below, and what speaks for it."""

    size: list[int]
    linked: list[int]
    score: list[float]
    prose: list[int]
    outside: list[bool]


def main_blocks(page: Blocks) -> list[Block]:
    """Return the blocks of the main content in their order; empty if nothing speaks for any."""
    sums = _sums(page)
    best = _best(page, sums)
    if best is None:
        return []
    inside = _inside(page, sums, _climbed(page, sums, best))
    return list(_once(block for block in page.blocks if inside[block.container]))


def _once(blocks: Iterable[Block]) -> Iterator[Block]:
    """Leave out paragraphs that stood there before, such as captions of one picture."""
    seen: set[str] = set()
    for block in blocks:
        if block.size < LONG or block.kind != "text" or block.row:
            yield block
        elif block.text not in seen:
            seen.add(block.text)
            yield block


def _sums(page: Blocks) -> _Sums:
    count = len(page.parents)
    sums = _Sums([0] * count, [0] * count, [0.0] * count, [0] * count, [False] * count)
    for block in page.blocks:
        sums.size[block.container] += block.size
        sums.linked[block.container] += block.linked
        if _is_paragraph(block):
            sums.prose[block.container] += block.size - block.linked
    for number in range(count - 1, 0, -1):
        parent = page.parents[number]
        for sum_ in (sums.size, sums.linked, sums.prose):
            sum_[parent] += sum_[number]
    for number in range(1, count):
        surrounds = page.hints[number] < 0 and sums.prose[number] < MOST * sums.prose[0]
        sums.outside[number] = surrounds or sums.outside[page.parents[number]]
    for block in page.blocks:
        if _is_paragraph(block) and not sums.outside[block.container]:
            _speak(page, sums, block)
    return sums


def _is_paragraph(block: Block) -> bool:
    return block.size >= MIN_PARAGRAPH and block.kind != "heading"


def _speak(page: Blocks, sums: _Sums, block: Block) -> None:
    number = block.container
    weight = 1.0 + block.text.count(",") + block.text.count("\uff0c") + min(block.size / 100, 3.0)
    weight *= 1.0 - block.linked / block.size
    while number and page.names[number] in _LEAVES:
        number = page.parents[number]
    for share in _SHARES:
        sums.score[number] += weight * share
        if not number:
            break
        number = page.parents[number]


def _best(page: Blocks, sums: _Sums) -> int | None:
    best, most = None, 0.0
    for number, score in enumerate(sums.score):
        if score and not sums.outside[number]:
            value = score * (1.0 - sums.linked[number] / max(sums.size[number], 1))
            value *= 1.0 + 0.25 * page.hints[number]
            if value > most:
                best, most = number, value
    return best


def _climbed(page: Blocks, sums: _Sums, best: int) -> int:
    """Return the container, or the one around it that holds clearly more prose."""
    prose = _long_prose(page, sums)
    number = best
    while page.names[number] not in _WHOLE and page.parents[number]:
        number = page.parents[number]
        if not sums.outside[number] and prose[number] > GAIN * prose[best]:
            best = number
    return best


def _long_prose(page: Blocks, sums: _Sums) -> list[int]:
    """Return how much text there is in each container in long paragraphs of its own."""
    prose = [0] * len(page.parents)
    teaser = False
    for block in page.blocks:
        if block.kind == "heading" or (block.size and block.linked > _TITLE_LINKED * block.size):
            teaser = block.linked > _TITLE_LINKED * block.size
        elif block.size >= LONG and not sums.outside[block.container]:
            if not (teaser or block.depth or block.linked > block.size / 2):
                prose[block.container] += block.size
            teaser = False
    for number in range(len(prose) - 1, 0, -1):
        prose[page.parents[number]] += prose[number]
    return prose


def _inside(page: Blocks, sums: _Sums, best: int) -> list[bool]:
    inside = [False] * len(page.parents)
    inside[best] = True
    for number in range(best + 1, len(page.parents)):
        if inside[page.parents[number]]:
            inside[number] = not _surrounds(page, sums, number)
    return inside


def _surrounds(page: Blocks, sums: _Sums, number: int) -> bool:
    """Return True if a container within the content is none of it."""
    if sums.outside[number]:
        return True
    size = sums.size[number]
    density = sums.linked[number] / max(size, 1)
    name = page.names[number]
    if name in {"ul", "ol", "div", "section", "table", "dl"}:
        return density > LINKED
    return False
