"""From the bytes of an answer to text, by its content type."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from lib.content.charset import decode
from lib.content.feeds import is_feed, read_feed
from lib.content.html.page import read_html
from lib.content.hygiene import clean
from lib.content.pdf.reader import read_pdf
from lib.content.text import read_json, read_markdown, read_plain
from lib.content.xml import elements, outline
from lib.errors import ToolError


@dataclass(frozen=True, slots=True, kw_only=True)
class Extracted:
    """Readable text, with what should be said of it.

    Attributes:
        title: the page's own title, cleaned, or None.
        text: the text, cleaned; a table is rows, a link is `[text](absolute url)`.
        note: what a reader should know of the reading, for example that the page seems to need
            JavaScript, or None.
        charset: the encoding that it was read in, by its WHATWG name in lower case; "binary" for
            what is no text, such as PDF.
    """

    title: str | None
    text: str
    note: str | None
    charset: str


MAX_CHARS: Final = 2_000_000
"""How long a text may be; what is longer is cut, and a note says so."""

MAX_TITLE: Final = 500

Kind: TypeAlias = Literal["html", "json", "xml", "markdown", "plain", "pdf"]
MainContent: TypeAlias = Literal["lib", "trafilatura"]
_Read: TypeAlias = tuple[str | None, str, str | None]

_KINDS: Final[dict[str, Kind]] = {
    "text/html": "html",
    "application/xhtml+xml": "html",
    "application/json": "json",
    "text/json": "json",
    "application/xml": "xml",
    "text/xml": "xml",
    "text/markdown": "markdown",
    "text/x-markdown": "markdown",
    "application/pdf": "pdf",
    "application/x-pdf": "pdf",
    "application/x-ndjson": "plain",
    "application/jsonl": "plain",
    "application/yaml": "plain",
    "application/toml": "plain",
    "application/javascript": "plain",
    "application/x-javascript": "plain",
    "application/sql": "plain",
}
_html_start: Final = re.compile(
    rb"(?:\xef\xbb\xbf)?[\t\n\f\r ]{0,100}(?:<!--[^>]{0,500}>[\t\n\f\r ]{0,100})?"
    rb"<(?:!doctype html|html|head|body|title|meta|script|h1|p|div|table|a|br|b)[\t\n\f\r />]",
    re.IGNORECASE,
).match
_xml_start: Final = re.compile(rb"(?:\xef\xbb\xbf)?[\t\n\f\r ]{0,100}<\?xml[\t\n\f\r ]").match
_BINARY: Final = bytes({*range(9), 0x0B, *range(0x0E, 0x1B), *range(0x1C, 0x20)})
_SNIFFED_BYTES: Final = 1_445
_MARKS: Final = (b"\xfe\xff", b"\xff\xfe")


def extract(
    body: bytes,
    *,
    content_type: str,
    charset: str | None,
    url: str,
    main_content: MainContent = "lib",
) -> Extracted:
    """Return what a reader of the body would read.

    Runs in linear time and bounded memory whatever the body is (PDF: within limits of time and
    memory, in a process of its own). It blocks, so call it in a thread.

    Args:
        body: the content, decompressed, possibly cut at its end.
        content_type: what it is said to be, such as "text/html"; parameters are ignored, and an
            empty one is guessed from the first bytes.
        charset: the encoding that the header names, or None; only WHATWG labels count.
        url: where it came from; relative links are resolved against it.
        main_content: who finds the main content of HTML; trafilatura takes long for some pages.

    Raises:
        ToolError: "unsupported" if it is of a type that is not read as text, or what reads it is
            not installed; "failed" if it is damaged.
    """
    kind = kind_of(content_type) or _guessed(body)
    if kind == "pdf":
        return _extracted(read_pdf(body, max_chars=MAX_CHARS), "binary")
    markup = kind if kind in {"html", "xml"} else ""
    decoded = decode(body, charset=charset, markup=markup)
    if kind == "html":
        read = _html(decoded.text, url, main_content)
    elif kind == "xml":
        read = _xml(decoded.text, url, main_content)
    else:
        read = _READERS[kind](decoded.text)
    if decoded.encoding == "replacement":
        read = read[0], read[1], "the text is in an encoding that is not read"
    return _extracted(read, decoded.encoding)


def kind_of(content_type: str) -> Kind | None:
    """Return how a media type is read, None for an empty one.

    Raises:
        ToolError: "unsupported": it is not read as text.
    """
    media_type = content_type.partition(";")[0].strip().lower()
    if not media_type:
        return None
    if media_type in _KINDS:
        return _KINDS[media_type]
    if media_type.endswith("+json"):
        return "json"
    if media_type.endswith("+xml") and media_type != "image/svg+xml":
        return "xml"
    if media_type.startswith("text/"):
        return "plain"
    raise ToolError("unsupported", "content of this type is not read as text")


def _guessed(body: bytes) -> Kind:
    start = body[:_SNIFFED_BYTES]
    if start.startswith(b"%PDF-"):
        return "pdf"
    if not start.startswith(_MARKS) and start.translate(None, _BINARY) != start:
        raise ToolError("unsupported", "the content is binary, and of no type that is read")
    return "html" if _html_start(start) else "xml" if _xml_start(start) else "plain"


def _html(source: str, url: str, main_content: MainContent) -> _Read:
    if main_content == "lib":
        return read_html(source, url=url, max_chars=MAX_CHARS)
    from lib.content.html.with_trafilatura import choice  # noqa: PLC0415 - an extra

    return read_html(source, url=url, max_chars=MAX_CHARS, choose=choice(source))


def _xml(source: str, url: str, main_content: MainContent) -> _Read:
    found, cut = elements(source)
    if found and found[0].name == "html":
        return _html(source, url, main_content)
    if is_feed(found):
        return read_feed(found, url=url)
    note = "only the beginning of the document was read" if cut else None
    return None, outline(found, max_chars=MAX_CHARS), note


def _json(source: str) -> _Read:
    return None, read_json(source, max_chars=MAX_CHARS), None


_READERS: Final[dict[str, Callable[[str], _Read]]] = {
    "json": _json,
    "markdown": lambda source: (*read_markdown(source), None),
    "plain": lambda source: (*read_plain(source), None),
}


def _extracted(read: _Read, charset: str) -> Extracted:
    title, text, note = read
    title = " ".join(clean(title or "").split())[:MAX_TITLE]
    text = clean(text)
    if len(text) > MAX_CHARS:
        text, note = text[:MAX_CHARS], note or "the text is cut, it is longer"
    return Extracted(title=title or None, text=text, note=note, charset=charset)


def page(text: str, *, start: int, max_chars: int) -> tuple[str, int | None]:
    """Return a piece of the text, and where the next piece starts, or None after the last.

    The pieces that follow each other are together the text. One ends after a line if a line ends
    in its last quarter, else after a space there, else where it is full.

    Args:
        text: the whole text.
        start: the offset of the piece in characters; one outside the text gives an empty piece.
        max_chars: how long the piece may be, at least 1.
    """
    start = max(start, 0)
    end = start + max(max_chars, 1)
    if end >= len(text):
        return text[start:], None
    for separator in ("\n", " "):
        found = text.rfind(separator, end - max_chars // 4, end)
        if found >= 0:
            return text[start : found + 1], found + 1
    return text[start:end], end
