"""Bytes to text, in the encoding that browsers would take, in linear time."""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from lib.content.markup import attributes, tokens

# The labels of the Encoding Standard alone name encodings on the web. Python's own names are never
# looked up: some take quadratic time, some are no encodings of text, and some raise other errors.
# Source: https://encoding.spec.whatwg.org/#names-and-labels (2026); utf-7 and utf-32 have no label.
CODECS: Final = {
    "utf-8": "utf-8",
    "ibm866": "cp866",
    "iso-8859-2": "iso8859-2",
    "iso-8859-3": "iso8859-3",
    "iso-8859-4": "iso8859-4",
    "iso-8859-5": "iso8859-5",
    "iso-8859-6": "iso8859-6",
    "iso-8859-7": "iso8859-7",
    "iso-8859-8": "iso8859-8",
    "iso-8859-8-i": "iso8859-8",
    "iso-8859-10": "iso8859-10",
    "iso-8859-13": "iso8859-13",
    "iso-8859-14": "iso8859-14",
    "iso-8859-15": "iso8859-15",
    "iso-8859-16": "iso8859-16",
    "koi8-r": "koi8_r",
    "koi8-u": "koi8_u",
    "macintosh": "mac_roman",
    "windows-874": "cp874",
    "windows-1250": "cp1250",
    "windows-1251": "cp1251",
    "windows-1252": "cp1252",
    "windows-1253": "cp1253",
    "windows-1254": "cp1254",
    "windows-1255": "cp1255",
    "windows-1256": "cp1256",
    "windows-1257": "cp1257",
    "windows-1258": "cp1258",
    "x-mac-cyrillic": "mac_cyrillic",
    "gbk": "gb18030",
    "gb18030": "gb18030",
    "big5": "big5hkscs",
    "euc-jp": "euc_jp",
    "iso-2022-jp": "iso2022_jp",
    "shift_jis": "cp932",
    "euc-kr": "cp949",
    "utf-16be": "utf-16-be",
    "utf-16le": "utf-16-le",
}
"""For each encoding that is read, the codec of the standard library that comes closest."""

UNREADABLE: Final = frozenset(
    ["csiso2022kr", "hz-gb-2312", "iso-2022-cn", "iso-2022-cn-ext", "iso-2022-kr", "replacement"]
)
"""Labels of encodings that browsers refuse, since the same bytes are another text elsewhere."""

_LABELS: Final = {
    "utf-8": ("unicode-1-1-utf-8 unicode11utf8 unicode20utf8 utf-8 utf8 x-unicode20utf8"),
    "ibm866": ("866 cp866 csibm866 ibm866"),
    "iso-8859-2": (
        "csisolatin2 iso-8859-2 iso-ir-101 iso8859-2 iso88592 iso_8859-2 iso_8859-2:1987 l2 latin2"
    ),
    "iso-8859-3": (
        "csisolatin3 iso-8859-3 iso-ir-109 iso8859-3 iso88593 iso_8859-3 iso_8859-3:1988 l3 latin3"
    ),
    "iso-8859-4": (
        "csisolatin4 iso-8859-4 iso-ir-110 iso8859-4 iso88594 iso_8859-4 iso_8859-4:1988 l4 latin4"
    ),
    "iso-8859-5": (
        "csisolatincyrillic cyrillic iso-8859-5 iso-ir-144 iso8859-5 iso88595 iso_8859-5 "
        "iso_8859-5:1988"
    ),
    "iso-8859-6": (
        "arabic asmo-708 csiso88596e csiso88596i csisolatinarabic ecma-114 iso-8859-6 "
        "iso-8859-6-e iso-8859-6-i iso-ir-127 iso8859-6 iso88596 iso_8859-6 iso_8859-6:1987"
    ),
    "iso-8859-7": (
        "csisolatingreek ecma-118 elot_928 greek greek8 iso-8859-7 iso-ir-126 iso8859-7 "
        "iso88597 iso_8859-7 iso_8859-7:1987 sun_eu_greek"
    ),
    "iso-8859-8": (
        "csiso88598e csisolatinhebrew hebrew iso-8859-8 iso-8859-8-e iso-ir-138 iso8859-8 "
        "iso88598 iso_8859-8 iso_8859-8:1988 visual"
    ),
    "iso-8859-8-i": ("csiso88598i iso-8859-8-i logical"),
    "iso-8859-10": ("csisolatin6 iso-8859-10 iso-ir-157 iso8859-10 iso885910 l6 latin6"),
    "iso-8859-13": ("iso-8859-13 iso8859-13 iso885913"),
    "iso-8859-14": ("iso-8859-14 iso8859-14 iso885914"),
    "iso-8859-15": ("csisolatin9 iso-8859-15 iso8859-15 iso885915 iso_8859-15 l9"),
    "iso-8859-16": ("iso-8859-16"),
    "koi8-r": ("cskoi8r koi koi8 koi8-r koi8_r"),
    "koi8-u": ("koi8-ru koi8-u"),
    "macintosh": ("csmacintosh mac macintosh x-mac-roman"),
    "windows-874": ("dos-874 iso-8859-11 iso8859-11 iso885911 tis-620 windows-874"),
    "windows-1250": ("cp1250 windows-1250 x-cp1250"),
    "windows-1251": ("cp1251 windows-1251 x-cp1251"),
    "windows-1252": (
        "ansi_x3.4-1968 ascii cp1252 cp819 csisolatin1 ibm819 iso-8859-1 iso-ir-100 iso8859-1 "
        "iso88591 iso_8859-1 iso_8859-1:1987 l1 latin1 us-ascii windows-1252 x-cp1252"
    ),
    "windows-1253": ("cp1253 windows-1253 x-cp1253"),
    "windows-1254": (
        "cp1254 csisolatin5 iso-8859-9 iso-ir-148 iso8859-9 iso88599 iso_8859-9 "
        "iso_8859-9:1989 l5 latin5 windows-1254 x-cp1254"
    ),
    "windows-1255": ("cp1255 windows-1255 x-cp1255"),
    "windows-1256": ("cp1256 windows-1256 x-cp1256"),
    "windows-1257": ("cp1257 windows-1257 x-cp1257"),
    "windows-1258": ("cp1258 windows-1258 x-cp1258"),
    "x-mac-cyrillic": ("x-mac-cyrillic x-mac-ukrainian"),
    "gbk": ("chinese csgb2312 csiso58gb231280 gb2312 gb_2312 gb_2312-80 gbk iso-ir-58 x-gbk"),
    "gb18030": ("gb18030"),
    "big5": ("big5 big5-hkscs cn-big5 csbig5 x-x-big5"),
    "euc-jp": ("cseucpkdfmtjapanese euc-jp x-euc-jp"),
    "iso-2022-jp": ("csiso2022jp iso-2022-jp"),
    "shift_jis": ("csshiftjis ms932 ms_kanji shift-jis shift_jis sjis windows-31j x-sjis"),
    "euc-kr": (
        "cseuckr csksc56011987 euc-kr iso-ir-149 korean ks_c_5601-1987 ks_c_5601-1989 ksc5601 "
        "ksc_5601 windows-949"
    ),
    "utf-16be": "unicodefffe utf-16be",
    "utf-16le": ("csunicode iso-10646-ucs-2 ucs-2 unicode unicodefeff utf-16 utf-16le"),
}

LABELS: Final = {
    label: encoding for encoding, labels in _LABELS.items() for label in labels.split()
}
"""The encoding of each label, in lower case."""


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
