"""Tags and texts of HTML and XML, in linear time whatever stands there.

The standard library's parsers take minutes for some inputs of a few hundred kilobytes; here each
character is looked at a bounded number of times. No tree is built and nothing is repaired.

Source: https://html.spec.whatwg.org/multipage/parsing.html#tokenization (2026).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from html import unescape
from typing import Final, Literal, TypeAlias

from lib._util.effort import check

STEPS_PER_CHECK: Final = 256

Kind: TypeAlias = Literal["text", "open", "close"]

Token: TypeAlias = tuple[Kind, str, int, int]
"""The kind, the text or the tag's name in lower case, where it starts and where it ends."""

_Match: TypeAlias = Callable[[str, int], re.Match[str] | None]

# Possessive, so that no scan is repeated. A quotation without an end is none.
_tag: Final = re.compile(
    r"""<(/?)([a-z][^\s/>]*+)(?:[^>=]++|=\s*+(?:"[^"]*+"|'[^']*+')?+)*+>""", re.IGNORECASE
).match
_plain_tag: Final = re.compile(r"<(/?)([a-z][^\s/>]*+)[^>]*+>", re.IGNORECASE).match
_remark: Final = re.compile(r"<!--(?:-?>|.*?(?:--!?>|\Z))|<[!?/][^>]*+(?:>|\Z)", re.DOTALL).match
_next: Final = re.compile(r"<(?=[a-z/!?])", re.IGNORECASE).search
_attributes: Final = re.compile(
    r"""([^\s/>="'][^\s/>=]*+)\s*+(?:=\s*+(?:"([^"]*+)"|'([^']*+)'|([^\s>]*+)))?+"""
).finditer
_long_number: Final = re.compile(r"&#[0-9]{8,};?").sub  # no character, and too long for int()


def tokens(text: str, *, skipped: Collection[str], raw: Collection[str] = ()) -> Iterator[Token]:
    """Yield texts and tags in their order; comments, declarations and empty texts are left out.

    A text is as it stands in the source, with its character references.

    Where the work of this context is limited (`lib._util.effort`), it ends with that.

    Args:
        text: HTML, or what claims to be.
        skipped: elements whose insides are no text to be had, such as scripts; one that does not
            end reaches to the end of the page.
        raw: elements inside which no tag counts but their own end; one that does not end is none.
    """
    finder = _Finder(text)
    start = steps = 0
    while found := finder.after(start):
        steps += 1
        if steps % STEPS_PER_CHECK == 0:
            check()
        if start < found.start():
            yield "text", text[start : found.start()], start, found.start()
        start = found.end()
        if not found.lastindex:
            continue  # a remark
        name = found[2].lower()
        yield ("close" if found[1] else "open"), name, found.start(), start
        if not found[1] and (name in skipped or name in raw):
            end = finder.end_of(name, start)
            if end is not None and start < end and name in raw:
                yield "text", text[start:end], start, end
            start = end if end is not None else len(text) if name in skipped else start
    if start < len(text):
        yield "text", text[start:], start, len(text)


def attributes(tag: str, *, limit: int) -> dict[str, str] | None:
    """Return the attributes of a start tag, names in lower case; the first of a name counts.

    Args:
        tag: the whole tag, from "<" to ">".
        limit: more attributes than this are not read, and None is returned.
    """
    name_end = re.match(r"<[^\s/>]*+", tag)
    read: dict[str, str] = {}
    for number, found in enumerate(_attributes(tag, name_end.end() if name_end else 0)):
        if number >= limit:
            return None
        name, double, single, bare = found.groups("")
        read.setdefault(name.lower(), unescaped(double or single or bare))
    return read


def unescaped(text: str) -> str:
    """Return the text with its character references resolved."""
    return unescape(_long_number("\ufffd", text)) if "&" in text else text


class _Finder:
    """Finds tags and remarks, and remembers what need not be tried again."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._last_end = text.rfind(">")
        self._match_tag: _Match = _tag
        self._without_end: set[str] = set()

    def after(self, place: int) -> re.Match[str] | None:
        """Return the next tag, with its name as group 2, or remark, without groups."""
        place = self._text.find("<", place)
        while 0 <= place < self._last_end:
            if found := self._match_tag(self._text, place) or self._odd(place):
                return found
            following = _next(self._text, place + 1)
            place = following.start() if following else -1
        return None

    def _odd(self, place: int) -> re.Match[str] | None:
        if found := _plain_tag(self._text, place):  # a quotation took the last end of a tag
            self._match_tag = _plain_tag
            return found
        return _remark(self._text, place)

    def end_of(self, name: str, place: int) -> int | None:
        """Return where the next end tag of this name starts, or None."""
        if name in self._without_end:
            return None
        end = re.compile(rf"</{re.escape(name)}(?=[\s/>])", re.IGNORECASE).search(self._text, place)
        if end is None:
            self._without_end.add(name)
            return None
        return end.start()
