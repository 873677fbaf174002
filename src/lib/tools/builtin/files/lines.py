r"""Read some lines of a file of any size in bounded memory.

Only "\n" ends a line, as for grep and editors' line numbers; "\r" before it stays. Nothing reads a
whole line before knowing how long it is.
"""

from __future__ import annotations

import codecs
import os
from dataclasses import dataclass
from typing import Final

from lib.tools.builtin.files.budget import Budget
from lib.tools.builtin.files.kinds import BINARY, SNIFFED_BYTES, TextKind, text_kind

CHUNK_BYTES: Final = 256 << 10
_CHARACTER_BYTES: Final = 4
"""What one character takes at most, in UTF-8 and in UTF-16."""
_ZERO_TO_ONES: Final = b"\xff" + bytes(255)


class NotText(Exception):
    """The file is binary; `kind` says what it looks like, `size` how many bytes it has."""

    def __init__(self, kind: str, size: int) -> None:
        self.kind, self.size = kind, size
        super().__init__(kind)


@dataclass(frozen=True, slots=True)
class LinePage:
    """Lines in a row.

    Attributes:
        text: the lines, each with its end; the last of a file may have none.
        lines: how many, a part of one included.
        next_offset: the line after them, or None where nothing follows.
        encoding: "utf-8", or by its byte order mark "utf-16-le" or "utf-16-be".
        replaced: how many U+FFFD in the text stand for bytes that the encoding does not have.
        next_column: where its only line was cut, in bytes from the line's start; else None.
    """

    text: str
    lines: int
    next_offset: int | None
    encoding: str
    replaced: int
    next_column: int | None = None


def read_lines(
    handle: int, *, offset: int, column: int, limit: int | None, max_bytes: int, budget: Budget
) -> LinePage:
    """Return whole lines from line `offset` on, at most `max_bytes` bytes of the file.

    A line that is longer than that is cut after a whole character, and the page ends.

    Args:
        handle: a descriptor open for reading, which nobody else uses meanwhile.
        offset: the first line, from 0.
        column: how many bytes of that line to skip; no more than it has before its end.
        limit: how many lines at most, None for as many as fit.
        max_bytes: bytes of the file; at least one character is read.
        budget: for finding the first line and the column.

    Raises:
        NotText: its beginning, or what was asked for, is no text.
        BudgetSpent: that place lies too far into the file.
        OSError: the system cannot read it.
    """
    kind = text_kind(_read_at(handle, SNIFFED_BYTES, 0))
    if isinstance(kind, str):
        raise NotText(kind, os.fstat(handle).st_size)
    line = _place_of(handle, kind, offset, budget)
    if line is None:
        return LinePage("", 0, None, kind.codec, 0)
    place = _place_in_line(handle, kind, line, column, budget)
    budget.spend()
    whole = max(max_bytes - max_bytes % kind.unit, kind.unit)
    data = _read_at(handle, max(whole, _CHARACTER_BYTES) + 1, place)
    ask = _Ask(kind, offset, place - line, limit)
    page = _page(data[:whole], ask, more=len(data) > whole)
    if page.next_column == ask.column:  # not even one character
        page = _page(data[:_CHARACTER_BYTES], ask, more=len(data) > _CHARACTER_BYTES)
    if "\0" in page.text:
        raise NotText(BINARY, os.fstat(handle).st_size)
    return page


@dataclass(frozen=True, slots=True)
class _Ask:
    """What a page is made of: lines of a kind of text, from a column of a line on."""

    kind: TextKind
    offset: int
    column: int
    limit: int | None


def _read_at(handle: int, count: int, place: int) -> bytes:
    """Return the bytes from a place on, fewer than `count` only at the end of the file."""
    os.lseek(handle, place, os.SEEK_SET)  # Windows has no pread
    pieces: list[bytes] = []
    while count:
        piece = os.read(handle, count)
        if not piece:
            break
        pieces.append(piece)
        count -= len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _place_of(handle: int, kind: TextKind, line: int, budget: Budget) -> int | None:
    """Return where a line starts, or None when the file has no such line."""
    place = kind.mark
    left = line
    while left:
        chunk = _read_at(handle, CHUNK_BYTES, place)
        if len(chunk) < kind.unit:
            return None
        budget.spend(len(chunk))
        units = _units(chunk, kind)
        ends = units.count(b"\n")
        if ends >= left:
            return place + _after(units, left) * kind.unit
        left -= ends
        place += len(units) * kind.unit
    return place


def _place_in_line(handle: int, kind: TextKind, line: int, column: int, budget: Budget) -> int:
    """Return the place so many bytes into a line, or that of its end if it is shorter."""
    place, left = line, column - column % kind.unit
    while left:
        units = _units(_read_at(handle, min(left, CHUNK_BYTES), place), kind)
        budget.spend(len(units) * kind.unit)
        end = units.find(b"\n")
        if end >= 0 or not units:
            return place + max(end, 0) * kind.unit
        place += len(units) * kind.unit
        left -= len(units) * kind.unit
    return place


def _units(chunk: bytes, kind: TextKind) -> bytes:
    r"""Return one byte for each code unit, which is "\n" exactly where the unit is."""
    if kind.unit == 1:
        return chunk
    even = len(chunk) - len(chunk) % 2
    low, high = chunk[0:even:2], chunk[1:even:2]
    if kind.codec == "utf-16-be":
        low, high = high, low
    ascii_only = int.from_bytes(high.translate(_ZERO_TO_ONES), "big")
    return (int.from_bytes(low, "big") & ascii_only).to_bytes(even // 2, "big")


def _after(units: bytes, ends: int) -> int:
    """Return how many units stand before the line after the end number `ends`."""
    return len(units) - len(units.split(b"\n", ends)[-1])


def _page(data: bytes, ask: _Ask, *, more: bool) -> LinePage:
    """Keep whole lines of the bytes, `limit` at most; `more` says whether bytes follow them."""
    kind, limit = ask.kind, ask.limit
    units = _units(data, kind)
    ends = units.count(b"\n")
    if limit is not None and limit <= ends:
        kept = data[: _after(units, limit) * kind.unit]
        lines = limit
        cut_inside = False
    elif more and ends:
        kept = data[: _after(units, ends) * kind.unit]
        lines = ends
        cut_inside = False
    else:
        kept = data
        lines = ends + (not units.endswith(b"\n") and bool(data))
        cut_inside = more
    text, replaced, used = _decoded(kept, kind, cut_inside=cut_inside)
    following = ask.offset + lines if more or len(kept) < len(data) else None
    column = ask.column + used if cut_inside else None
    return LinePage(text, lines, following, kind.codec, replaced, column)


def _decoded(data: bytes, kind: TextKind, *, cut_inside: bool) -> tuple[str, int, int]:
    """Return the text, how much of it is replaced, and how many bytes it is of.

    A character that the cut has split is not in it.
    """
    decoder = codecs.getincrementaldecoder(kind.codec)("replace")
    text = decoder.decode(data, not cut_inside)
    used = len(data) - len(decoder.getstate()[0])
    if "\ufffd" not in text:
        return text, 0, used
    kept = codecs.getincrementaldecoder(kind.codec)("ignore").decode(data, not cut_inside)
    return text, text.count("\ufffd") - kept.count("\ufffd"), used
