"""Documents to chunks: slices of the text, cut where it hurts least.

A chunk never crosses a heading. Within a section the text is cut between paragraphs, then
between sentences, lines, words, and only within a word that is longer than a whole chunk; pieces
are then joined again as long as they fit. Code blocks that fit stay whole. Every character that is
no white space is in a chunk, and a chunk is a slice of the document, so its lines are known.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from lib.ingest.document import Document, Heading

_SENTENCE: Final = re.compile("[.!?\u2026][\"'\u201d\u2019)\\]]*\\s+|[\u3002\uff01\uff1f]")
_LINE: Final = re.compile(r"\n")
_WORD: Final = re.compile(r"\s+")
_PARAGRAPH: Final = re.compile(r"\n(?:[ \t]*\n)+")
_LEVELS: Final = (_PARAGRAPH, _SENTENCE, _LINE, _WORD)
_BREAKS_BLOCKS: Final = _LEVELS.index(_LINE)  # from this level on, code is cut like text
_leading_blank = re.compile(r"(?:[ \t]*\n)*").match

Span = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A slice of a document.

    Attributes:
        text: without blank lines around it.
        line: the source line, from 1, on which it begins.
        end_line: the source line on which it ends.
        heading: the headings above it, outermost first, joined by " > "; may be empty.
    """

    text: str
    line: int
    end_line: int
    heading: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Splitter:
    """Cuts documents into chunks.

    Attributes:
        max_chars: no chunk is longer.
        overlap: a chunk that continues a section repeats up to so many characters of the chunk
            before it, from the start of a sentence or a word, where there is room for them.
    """

    max_chars: int = 1200
    overlap: int = 150

    def __post_init__(self) -> None:
        if self.max_chars < 1 or not 0 <= self.overlap < self.max_chars:
            raise ValueError(
                f"max_chars is {self.max_chars} and overlap {self.overlap}: "
                "a chunk has at least 1 character and is longer than the overlap"
            )

    def split(self, document: Document) -> list[Chunk]:
        """Return the chunks of a document in their order; none for a blank one."""
        return [
            chunk
            for section, heading in _sections(document)
            for span in self._joined(document, self._pieces(document, section, 0))
            if (chunk := _chunk(document, span, heading))
        ]

    def _pieces(self, document: Document, span: Span, level: int) -> Iterator[Span]:
        """Yield spans that fit, one after the other, cut at the coarsest level that does."""
        start, end = span
        if _width(document, start, end) <= self.max_chars:
            yield span
        elif level == len(_LEVELS):
            for place in range(start, end, self.max_chars):
                yield place, min(end, place + self.max_chars)
        else:
            for piece in pairwise((start, *_cuts(document, span, level), end)):
                yield from self._pieces(document, piece, level + 1)

    def _joined(self, document: Document, pieces: Iterable[Span]) -> Iterator[Span]:
        """Yield pieces joined up to `max_chars`, each but the first with its overlap."""
        remaining = iter(pieces)
        begin, finish = next(remaining)
        for start, end in remaining:
            if _width(document, begin, end) > self.max_chars:
                yield begin, finish
                begin = self._overlapping(document, start, end)
            finish = end
        yield begin, finish

    def _overlapping(self, document: Document, start: int, end: int) -> int:
        """Return where the chunk starts that has to hold the piece from `start` to `end`."""
        room = self.max_chars - _width(document, start, end)
        earliest = max(start - min(self.overlap, room), 0)
        for level in (_SENTENCE, _WORD):
            for found in level.finditer(document.text, earliest, start):
                if found.end() < start and not document.block_around(found.end()):
                    return found.end()
        return start


def _width(document: Document, start: int, end: int) -> int:
    """Return the length of a span as a chunk, in which white space at the end does not count."""
    return len(document.text[start:end].rstrip())


def _sections(document: Document) -> Iterator[tuple[Span, str]]:
    """Yield the spans between headings; a heading without a text joins its first subsection."""
    trail: list[Heading] = []
    start = 0
    for heading, following in _with_following(document.headings):
        if not trail:
            yield (0, heading.start), ""
            start = heading.start
        trail = [above for above in trail if above.level < heading.level] + [heading]
        end = following.start if following else len(document.text)
        empty = not document.text[heading.end : end].strip()
        if empty and following and following.level > heading.level:
            continue
        yield (start, end), " > ".join(above.text for above in trail if above.text)
        start = end
    if not trail:
        yield (0, len(document.text)), ""


def _with_following(headings: Iterable[Heading]) -> Iterator[tuple[Heading, Heading | None]]:
    return pairwise([*headings, None])  # pyright: ignore[reportReturnType] - None comes last only


def _cuts(document: Document, span: Span, level: int) -> list[int]:
    """Return the offsets within the span at which a piece may end and another begin."""
    start, end = span
    cuts = {found.end() for found in _LEVELS[level].finditer(document.text, start, end)}
    if level < _BREAKS_BLOCKS:
        cuts = {cut for cut in cuts if not document.block_around(cut)}
        cuts.update(edge for block in document.blocks_in(start, end) for edge in block)
    return sorted(cut for cut in cuts if start < cut < end)


def _chunk(document: Document, span: Span, heading: str) -> Chunk | None:
    start, end = span
    leading = _leading_blank(document.text, start, end)
    start = leading.end() if leading else start
    text = document.text[start:end].rstrip()
    if not text:
        return None
    first = start + len(text) - len(text.lstrip())
    return Chunk(
        text=text,
        line=document.line_at(first),
        end_line=document.line_at(start + len(text) - 1),
        heading=heading,
    )
