r"""Read some lines of a file of any size in bounded memory.

Only "\n" ends a line, as for grep and editors' line numbers; "\r" before it stays. Nothing reads a
whole line before knowing how long it is.
"""

from __future__ import annotations

import codecs
import os
from dataclasses import dataclass
from typing import Final, Literal

from lib.tools.builtin.files.budget import Budget

SNIFFED_BYTES: Final = 8192

BINARY: Final = "binary data"

Codec = Literal["utf-8", "utf-16-le", "utf-16-be"]

_MARKS: Final[tuple[tuple[bytes, Codec], ...]] = (
    (b"\xef\xbb\xbf", "utf-8"),
    (b"\xff\xfe", "utf-16-le"),
    (b"\xfe\xff", "utf-16-be"),
)
# Files that may hold no NUL byte in their beginning, and whose first bytes no text starts with.
_SIGNATURES: Final[tuple[tuple[bytes, str], ...]] = (
    (b"\x7fELF", "ELF program"),
    (b"\x89PNG\r\n\x1a\n", "PNG image"),
    (b"\xff\xd8\xff", "JPEG image"),
    (b"GIF87a", "GIF image"),
    (b"GIF89a", "GIF image"),
    (b"%PDF-", "PDF document"),
    (b"PK\x03\x04", "ZIP archive"),
    (b"PK\x05\x06", "ZIP archive"),
    (b"\x1f\x8b", "gzip archive"),
    *((b"BZh%d1AY&SY" % level, "bzip2 archive") for level in range(1, 10)),
    (b"\xfd7zXZ", "xz archive"),
    (b"\x28\xb5\x2f\xfd", "zstd archive"),
    (b"7z\xbc\xaf", "7z archive"),
    (b"Rar!\x1a", "RAR archive"),
    (b"OggS\0", "Ogg media"),
    (b"\xca\xfe\xba\xbe", "Java class or Mach-O program"),
    (b"\xcf\xfa\xed\xfe", "Mach-O program"),
    (b"\xd0\xcf\x11\xe0", "OLE document"),
    (b"SQLite format 3\0", "SQLite database"),
)
_TEXT_CONTROLS: Final = b"\t\n\r\x0c\x08\x1b"
_CONTROLS: Final = bytes(code for code in range(32) if code not in _TEXT_CONTROLS) + b"\x7f"
_CONTROL_SHARE: Final = 0.1


@dataclass(frozen=True, slots=True)
class TextKind:
    """The encoding of a text.

    Attributes:
        codec: name of the codec of its bytes after the mark.
        mark: bytes of the byte order mark before it.
        unit: bytes of a code unit.
    """

    codec: Codec
    mark: int
    unit: int


def text_kind(head: bytes) -> TextKind | str:
    """Return how the text is written, or, when it is none, what it looks like.

    Args:
        head: the file's first `SNIFFED_BYTES` bytes, or all.
    """
    for signature, kind in _SIGNATURES:
        if head.startswith(signature):
            return kind
    for mark, codec in _MARKS:
        if head.startswith(mark):
            return _without_nul(head, TextKind(codec, len(mark), 1 if codec == "utf-8" else 2))
    return _without_nul(head, TextKind("utf-8", 0, 1))


def _without_nul(head: bytes, kind: TextKind) -> TextKind | str:
    if kind.unit == 1:
        if b"\0" in head:
            return BINARY
        controls = len(head) - len(head.translate(None, _CONTROLS))
        return BINARY if controls > len(head) * _CONTROL_SHARE else kind
    return BINARY if "\0" in head.decode(kind.codec, "replace") else kind


CHUNK_BYTES: Final = 256 << 10
_CHARACTER_BYTES: Final = 4
"""Bytes of one character at most, in UTF-8 and in UTF-16."""
_ZERO_TO_ONES: Final = b"\xff" + bytes(255)


class NotText(Exception):
    """The file is binary; `kind` says what it looks like, `size` how many bytes it has."""

    def __init__(self, kind: str, size: int) -> None:
        self.kind: str = kind
        self.size: int = size
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
        handle: a descriptor open for reading, which no other thread uses meanwhile.
        offset: the first line, from 0.
        column: how many bytes of that line to skip; no more than it has before its end.
        limit: how many lines at most, None for as many as fit.
        max_bytes: bytes of the file; at least one character is read.
        budget: for finding the first line and the column.

    Raises:
        NotText: its beginning, or the requested part, is no text.
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
    """The request of a page: lines of a kind of text, from a column of a line on."""

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
