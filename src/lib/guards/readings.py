"""A text as a model may read it that is not fooled by how it is written. Pure.

Source: Unicode Technical Standard #39 (confusables); Rehberger, "ASCII Smuggler" (2024), on tags.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import html
import re
import unicodedata
from collections.abc import Iterator, Mapping
from typing import Any, Final, cast
from urllib.parse import unquote

from lib._util.json import parse
from lib.privacy.detect.escapes import levels
from lib.privacy.detect.plain import reads

_MAX_PACKED: Final = 3
"""How deep JSON in a string of JSON is read."""
_BETWEEN: Final = "\n" * 6  # what introduces a quotation is not that far from it
_VALUE: Final = re.compile(r"(\\{0,8})\"\s{0,4}:\s{0,4}\1\"")


def readings(text: str) -> Iterator[str]:
    """Yield the text, or the texts in it where it is JSON, and the same with its escapes read."""
    # What stands in quotation marks as a value of JSON is no quotation.
    joined = _BETWEEN.join(_texts(text)) if _is_packed(text) else text
    joined = _VALUE.sub(f'":{_BETWEEN}', joined)
    yield joined
    for each in levels(joined):
        yield each.text


def _is_packed(text: str) -> bool:
    return text.lstrip()[:1] in ("{", "[", '"')


def _texts(text: str) -> Iterator[str]:
    """Yield the keys and values of JSON that are texts, in order; the text if it is not JSON."""
    waiting: list[tuple[Any, int]] = [(text, 0)]
    while waiting:
        value, packed = waiting.pop()
        if isinstance(value, str):
            inner = _parsed(value) if packed < _MAX_PACKED else None
            if inner is None or inner == value:
                yield value
            else:
                waiting.append((inner, packed + 1))
        elif isinstance(value, Mapping):
            items = [*cast("Mapping[str, Any]", value).items()]
            for key, item in reversed(items):
                waiting += ((item, packed), (key, packed))
        elif isinstance(value, list):
            waiting.extend((item, packed) for item in reversed(cast("list[Any]", value)))


def _parsed(text: str) -> Any:
    """Return the value of a JSON object, list or string, None for another text."""
    if not _is_packed(text):
        return None
    try:
        return parse(text)
    except (RecursionError, ValueError):
        return None


_CONFUSABLE: Final = str.maketrans(
    # The small Cyrillic and Greek letters that look like Latin ones, and typographic apostrophes.
    "\u0430\u0435\u043e\u0440\u0441\u0443\u0445\u0456\u0458\u0455\u0501\u04bb\u03bf\u03b1\u2019\u02bc",
    "aeopcyxijsdhoa''",
)
# Capitals among Latin letters; their small forms look different.
_CAPITALS: Final = re.compile(
    "(?<=[A-Za-z])[\u0412\u041d\u041a\u041c\u0422\u0410\u0415\u041e\u0420\u0421\u0425]|[\u0412\u041d\u041a\u041c\u0422\u0410\u0415\u041e\u0420\u0421\u0425](?=[A-Za-z])"
)
_LATIN: Final = str.maketrans(
    "\u0412\u041d\u041a\u041c\u0422\u0410\u0415\u041e\u0420\u0421\u0425", "BHKMTAEOPCX"
)
_BASE64: Final = re.compile(r"(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/_-]{24,20000}={0,2}")
_HEX: Final = re.compile(r"(?<![0-9A-Za-z])(?:0x)?((?:[0-9a-fA-F]{2}){16,10000})(?![0-9A-Za-z])")
_BITS: Final = re.compile(r"(?<![0-9])[01]{8}(?: ?[01]{8}){7,4000}(?![0-9])")
# Flags of England, Scotland and Wales are written with tags, too.
_TAGS: Final = re.compile("(?<![\U0001f3f4\U000e0020-\U000e007e])[\U000e0020-\U000e007e]+")
# One invisible character may be a mark of direction or part of an emoji; between two Latin letters
# it is there to split a word.
_SPLIT: Final = re.compile("(?<=[A-Za-z])[\u00ad\u200b-\u200d\u2060-\u2064\ufeff]+(?=[A-Za-z])")
_MIN_SPLITS: Final = 3
_OVERRIDES: Final = frozenset("\u202d\u202e")
_SPACED: Final = re.compile(r"(?<![^\W_])[^\W_]([ .\-_*|/])[^\W_](?:\1[^\W_])+(?![^\W_])")
_PERCENT: Final = re.compile(r"(?:%[0-9a-fA-F]{2}){3}|%20\w{1,20}%20")
_ENTITY: Final = re.compile(r"&#?\w{2,8};")
_LEET: Final = re.compile(
    r"(?<![a-z0-9@$+!\u20ac])(?=[a-z]{0,12}[0-9@$+!\u20ac])[a-z0-9@$+!\u20ac]{3,24}"
)
_PLAIN: Final = str.maketrans("013457@$+!\u20ac", "oieastastie")
_JOINED: Final = re.compile(r"[\"']\s{0,3}\+\s{0,3}[\"']")
_PIECE: Final = re.compile(r"[\"']([^\"'\n]{2,60})[\"']")
_MAX_PIECES: Final = 12
# Words that only stand in a text that is written backwards or in ROT13.
_CUES: Final = ("ignore", "previous", "instructions", "system", "prompt", "reveal", "disregard")
_CUES_LEET: Final = frozenset((*_CUES, "forget", "bypass", "rules", "guidelines", "unrestricted"))
_CUES_TURNED: Final = re.compile("|".join(cue[::-1] for cue in _CUES))
_CUES_ROT13: Final = re.compile("|".join(codecs.encode(cue, "rot13") for cue in _CUES))


def fold(text: str) -> str:
    """Return the text in lower case, without accents, with look-alike letters as Latin ones."""
    if text.isascii():
        return text.casefold()
    latin = _CAPITALS.sub(lambda found: found[0].translate(_LATIN), reads(text))
    folded = latin.casefold().translate(_CONFUSABLE)
    marks = {ord(char): _base(char) for char in set(folded) if not char.isascii()}
    return folded.translate(marks)


def _base(char: str) -> str:
    parts = unicodedata.normalize("NFD", char)
    return "".join(part for part in parts if unicodedata.category(part) != "Mn")


def plainly(folded: str) -> Iterator[str]:
    """Yield a folded text with spaced letters joined, and other readings that differ from it."""
    joined = _SPACED.sub(lambda found: found[0].replace(found[1], ""), folded)
    yield joined
    if any(found[0].translate(_PLAIN) in _CUES_LEET for found in _LEET.finditer(joined)):
        yield _LEET.sub(lambda found: found[0].translate(_PLAIN), joined)


def hidden(text: str) -> Iterator[str]:
    """Yield what stands in the text in another form, as far as it is text."""
    for candidate in _BASE64.finditer(text):
        packed = candidate[0].rstrip("=").replace("-", "+").replace("_", "/")
        packed = packed[: len(packed) - (len(packed) % 4 == 1)]
        yield from _readable(base64.b64decode(packed + "=" * (-len(packed) % 4)))
    for candidate in _HEX.finditer(text):
        yield from _readable(binascii.unhexlify(candidate[1]))
    for candidate in _BITS.finditer(text):
        bits = candidate[0].replace(" ", "")
        yield from _readable(bytes(int(bits[i : i + 8], 2) for i in range(0, len(bits), 8)))
    # All in one: each reading has a price, and a megabyte has room for half a million of them.
    if tags := " ".join(_TAGS.findall(text)):
        yield "".join(chr(ord(char) - 0xE0000) if char > " " else char for char in tags)
    yield from _turned(text)


def _turned(text: str) -> Iterator[str]:
    """Yield the text without escapes of web pages, backwards, in ROT13, and with pieces joined."""
    if _PERCENT.search(text):
        yield unquote(text, errors="replace")
    if len(_ENTITY.findall(text)) >= _MIN_SPLITS:
        yield html.unescape(text)
    small = text.casefold()
    if _CUES_TURNED.search(small):
        yield text[::-1]
    if _CUES_ROT13.search(small):
        yield codecs.encode(text, "rot13")
    if _JOINED.search(text):
        yield _JOINED.sub("", text)
    pieces = _PIECE.findall(text)
    if 1 < len(pieces) <= _MAX_PIECES:
        yield "".join(pieces)


def _readable(raw: bytes) -> Iterator[str]:
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return
    if all(char.isprintable() or char in "\n\r\t" for char in text):
        yield text


def is_hiding(text: str) -> bool:
    """Return True if the text holds what only a program reads, or words split by it."""
    if text.isascii():
        return False
    return (
        len(_TAGS.findall(text)) > 0
        or len(_SPLIT.findall(text)) >= _MIN_SPLITS
        or any(char in text for char in _OVERRIDES)
    )
