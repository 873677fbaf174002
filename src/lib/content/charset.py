"""Bytes to text, in the encoding that browsers would take, in linear time."""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from lib.content.encodings import CODECS, LABELS, UNREADABLE
from lib.content.markup import attributes, tokens

PRESCAN_BYTES: Final = 1_024
"""How much of a page is searched for a meta element that names its encoding."""

_MARKS: Final = ((b"\xef\xbb\xbf", "utf-8"), (b"\xfe\xff", "utf-16be"), (b"\xff\xfe", "utf-16le"))
# UTF-32, which no page of the web is in, first: one of its marks begins like that of UTF-16.
_FILE_MARKS: Final = (
    (codecs.BOM_UTF32_LE, "utf-32le"),
    (codecs.BOM_UTF32_BE, "utf-32be"),
    *_MARKS,
)
_WIDE: Final = frozenset({"utf-16be", "utf-16le"})
_MULTIBYTE: Final = frozenset(
    {"utf-8", "gbk", "gb18030", "big5", "euc-jp", "iso-2022-jp", "shift_jis", "euc-kr", *_WIDE}
)
_in_content: Final = re.compile(
    r"charset[\t\n\f\r ]*=[\t\n\f\r ]*(?:\"([^\"]*)\"|'([^']*)'|([^\t\n\f\r ;\"']+))", re.IGNORECASE
).search
_in_declaration: Final = re.compile(
    rb"<\?xml[^>]{0,200}?\sencoding[\t\n\r ]{0,20}=[\t\n\r ]{0,20}[\"']([A-Za-z0-9._:-]{1,40})[\"']"
).match


@dataclass(frozen=True, slots=True)
class Decoded:
    """A text and the encoding that it was read in, by its WHATWG name; "replacement" if none."""

    text: str
    encoding: str


def decode(body: bytes, *, charset: str | None, markup: str = "") -> Decoded:
    """Return the text of a body; what cannot be read becomes U+FFFD.

    The encoding is, in this order: that of a byte order mark, of the header if it has a label of
    the Encoding Standard, of what the beginning of HTML or XML says, UTF-8 if the body is that,
    and windows-1252. A character that is cut at the end of the body is left out.

    Args:
        body: the content, possibly cut.
        charset: what the header says, or None.
        markup: "html" or "xml" if the beginning of the body may name its encoding, else "".
    """
    for mark, encoding in _MARKS:
        if body.startswith(mark):
            return Decoded(_decoded(body[len(mark) :], encoding), encoding)
    encoding = encoding_of(charset) or _named_inside(body, markup)
    if encoding == "replacement":
        return Decoded("\ufffd" if body else "", encoding)
    if encoding is not None:
        return Decoded(_decoded(body, encoding), encoding)
    text = _as_utf8(body)
    if text is not None:
        return Decoded(text, "utf-8")
    return Decoded(_decoded(body, "windows-1252"), "windows-1252")


def decode_file(body: bytes, *, markup: str = "") -> Decoded:
    """Return the text of a whole file, in the encoding that `decode` would take.

    UTF-32 counts, too, where a byte order mark names it.

    Args:
        body: the file's content.
        markup: as for `decode`.

    Raises:
        ValueError: it is not in the encoding of its byte order mark; the message names that.
    """
    for mark, encoding in _FILE_MARKS:
        if body.startswith(mark):
            try:
                return Decoded(body[len(mark) :].decode(encoding), encoding)
            except UnicodeDecodeError:
                raise ValueError(encoding) from None
    return decode(body, charset=None, markup=markup)


def _as_utf8(body: bytes) -> str | None:
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(body)
    except UnicodeDecodeError:
        return None
    # Where only the last character is none of ASCII, and is not whole, it says nothing for UTF-8.
    return None if text.isascii() and len(text) < len(body) else text


def encoding_of(label: str | None) -> str | None:
    """Return the encoding of a label, "replacement" for one that browsers refuse, None if none."""
    if not label:
        return None
    label = label.strip("\t\n\f\r \"'").lower()
    return "replacement" if label in UNREADABLE else LABELS.get(label)


def _named_inside(body: bytes, markup: str) -> str | None:
    named = None
    if markup == "html":
        named = _named_by_meta(body[:PRESCAN_BYTES].decode("latin-1"))
    elif markup == "xml" and (found := _in_declaration(body)):
        named = encoding_of(found[1].decode("ascii"))
    return "utf-8" if named in _WIDE else named  # or the name could not have been read


def _named_by_meta(start: str) -> str | None:
    for kind, name, begin, end in tokens(start, skipped=("script", "style"), raw=("title",)):
        if kind != "open" or name != "meta":
            continue
        found = attributes(start[begin:end], limit=PRESCAN_BYTES) or {}
        label = found.get("charset")
        if label is None and found.get("http-equiv", "").strip().lower() == "content-type":
            in_content = _in_content(found.get("content", ""))
            label = next(filter(None, in_content.groups()), None) if in_content else None
        if encoding := encoding_of(label):
            return encoding
    return None


def _decoded(body: bytes, encoding: str) -> str:
    codec = CODECS[encoding]
    if encoding in _MULTIBYTE:
        return codecs.getincrementaldecoder(codec)("replace").decode(body)
    return codecs.charmap_decode(body, "strict", _table(codec))[0]


@cache
def _table(codec: str) -> Any:
    """Return the 256 characters of an encoding; decoding by it needs no handling of errors."""
    return "".join(bytes([code]).decode(codec, "replace") for code in range(256))
