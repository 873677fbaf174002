"""Bodies: decompressed piece by piece, and cut off at a limit whatever they would grow to.

Only so much is ever decompressed as is still wanted, so that a bomb costs its compressed size and
`max_bytes`, and no more. What was sent is limited as well.

Source: RFC 9110, 8.4 (content codings); RFC 1950 to 1952.
"""

from __future__ import annotations

import importlib
import re
import zlib
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from lib.errors import FetchBlocked, ToolError

MAX_CODINGS: Final = 5
"""How many codings may lie on one another, as in httpx2."""

PIECE_BYTES: Final = 64 * 1024
"""How much one step of a decoder may return."""

MAX_CHUNKS: Final = 16_384
"""How many chunks of a body are read, which may have one byte each: each takes time of its own."""

_ZSTD_STEP_BYTES: Final = 64  # at most 16 blocks, each of at most 128 KiB
_SMALL_BYTES: Final = 4 * 1024
_SLACK_BYTES: Final = 64 * 1024
_SNIFFED_BYTES: Final = 1_024

# Whole signatures: a text may begin with the first letters of some of them.
_BINARY: Final = re.compile(
    rb"%PDF-[0-9]|PK\x03\x04|\x89PNG|GIF8[79]a|\xff\xd8\xff|\x1f\x8b|\x7fELF|Rar!\x1a\x07"
    rb"|7z\xbc\xaf|OggS\x00|ID3[\x02-\x04][^\xff]|RIFF.{4}(?:WAVE|AVI |WEBP|RMID|ACON|CDXA|sfbk)"
    rb"|\x28\xb5\x2f\xfd|BZh[1-9](?:1AY&SY|\x17\x72\x45\x38\x50\x90)|MZ\x90",
    re.DOTALL,
)
_HTML: Final = (b"<!doctype html", b"<html", b"<head", b"<body", b"<title", b"<!--")
_CONTROLS: Final = frozenset({*range(1, 7), *range(0x0E, 0x1B), *range(0x1C, 0x20)})
_WIDE_BOMS: Final = (b"\xff\xfe", b"\xfe\xff")


class Decoder(Protocol):
    """One content coding."""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield what the data stands for, in pieces; work is done as they are consumed.

        Raises:
            ValueError: it is not in this coding.
        """
        ...

    @property
    def complete(self) -> bool:
        """True if what came so far may be all."""
        ...


class _Inflate:
    """gzip, whose members may follow each other, or deflate, with or without its header."""

    def __init__(self, *, gzip: bool) -> None:
        self._gzip = gzip
        self._start = b""
        self._inflater: Any = zlib.decompressobj(31) if gzip else None
        self.complete = True

    def feed(self, data: bytes) -> Iterator[bytes]:
        if self._inflater is None:
            self._start = data = self._start + data
            if len(data) < 2:  # noqa: PLR2004 - the header's length
                self.complete = not data
                return
            self._inflater = zlib.decompressobj(15 if _has_zlib_header(data) else -15)
        try:
            yield from self._inflated(data)
        except zlib.error as error:
            raise ValueError("not compressed as said") from error

    def _inflated(self, data: bytes) -> Iterator[bytes]:
        while data:
            if self._inflater.eof:
                if not self._gzip or not data.startswith(b"\x1f"):
                    break  # padding
                self._inflater = zlib.decompressobj(31)
            piece = self._inflater.decompress(data, PIECE_BYTES)
            if piece:
                yield piece
            data = self._inflater.unconsumed_tail or self._inflater.unused_data
        while not self._inflater.eof and (piece := self._inflater.decompress(b"", PIECE_BYTES)):
            yield piece
        self.complete = self._inflater.eof


class _Brotli:
    """br, by a release of brotli that can limit its output."""

    def __init__(self) -> None:
        self._package = importlib.import_module("brotli")
        self._decoder: Any = self._package.Decompressor()
        self.complete = True

    def feed(self, data: bytes) -> Iterator[bytes]:
        try:
            piece = self._decoder.process(data, output_buffer_limit=PIECE_BYTES)
            while piece or not self._decoder.can_accept_more_data():
                yield piece
                piece = self._decoder.process(b"", output_buffer_limit=PIECE_BYTES)
        except self._package.error as error:
            raise ValueError("not compressed as said") from error
        self.complete = self._decoder.is_finished()


class _Zstd:
    """zstd, fed in steps so small that what they stand for is bounded."""

    def __init__(self) -> None:
        self._package = importlib.import_module("zstandard")
        self._decoder: Any = self._new()
        self.complete = True

    def feed(self, data: bytes) -> Iterator[bytes]:
        try:
            for start in range(0, len(data), _ZSTD_STEP_BYTES):
                yield from self._step(data[start : start + _ZSTD_STEP_BYTES])
        except self._package.ZstdError as error:
            raise ValueError("not compressed as said") from error

    def _step(self, data: bytes) -> Iterator[bytes]:
        while data:
            if self._decoder.eof:
                self._decoder = self._new()
            yield self._decoder.decompress(data)
            data = self._decoder.unused_data
        self.complete = self._decoder.eof

    def _new(self) -> Any:
        return self._package.ZstdDecompressor(max_window_size=8 << 20).decompressobj()


_DECODERS: Final[dict[str, Callable[[], Decoder]]] = {
    "gzip": lambda: _Inflate(gzip=True),
    "x-gzip": lambda: _Inflate(gzip=True),
    "deflate": lambda: _Inflate(gzip=False),
    "br": _Brotli,
    "zstd": _Zstd,
}


def decoders_for(content_encoding: Sequence[str]) -> list[Decoder]:
    """Return the decoders of a Content-Encoding header, in the order in which they apply.

    br and zstd, which no request names, are read where brotli >= 1.2 or zstandard is installed.

    Raises:
        FetchBlocked: there are more than five codings, or one that is not known here.
    """
    listed = [coding.strip().lower() for value in content_encoding for coding in value.split(",")]
    codings = [coding for coding in listed if coding not in {"", "identity"}]
    if len(codings) > MAX_CODINGS:
        raise FetchBlocked("too many content codings on one another")
    return [_decoder(coding) for coding in reversed(codings)]


def _decoder(coding: str) -> Decoder:
    make = _DECODERS.get(coding)
    try:
        decoder = None if make is None else make()
    except ImportError:
        decoder = None
    if decoder is None:
        raise FetchBlocked("a content coding that was not requested")
    return decoder


@dataclass(frozen=True, slots=True)
class Body:
    """The bytes that were read.

    Attributes:
        content: at most as many bytes as were wanted.
        truncated: whether there is more, or should have been: it was cut, or ended early.
    """

    content: bytes
    truncated: bool


async def read_body(
    chunks: AsyncIterator[bytes],
    decoders: Sequence[Decoder],
    *,
    max_bytes: int,
    ended_early: Callable[[Exception], bool],
) -> Body:
    """Read and decompress until the end or the limit.

    Args:
        chunks: the body as it was sent.
        decoders: of its codings, see `decoders_for`.
        max_bytes: of the result.
        ended_early: whether an error says that the other side stopped before the end.

    Raises:
        ToolError: it is not compressed as said.
    """
    content, sent, number = _Content(max_bytes), 0, 0
    try:
        async for chunk in chunks:
            number += 1
            for part in _parts(chunk):
                sent += len(part)
                content.take(_decoded(part, decoders))
                too_much = sent > max_bytes + _SLACK_BYTES or number >= MAX_CHUNKS
                if content.full or too_much:
                    return content.body(truncated=True)
    except ValueError:
        fault = ToolError("failed", "the server's answer is not compressed as it says")
    except Exception as error:
        if not ended_early(error):
            raise
        return content.body(truncated=True)
    else:
        complete = all(decoder.complete for decoder in decoders)
        return content.body(truncated=not complete)
    raise fault


def looks_binary(start: bytes, charset: str | None, *, declared: bool) -> bool:
    """Return True if a body that should be text is none, by its first bytes.

    Args:
        start: of the body; a fixed number of its bytes is looked at.
        charset: what the server calls its encoding.
        declared: whether the server says that it is text; then zeros alone do not tell against it.
    """
    start = start[:_SNIFFED_BYTES]
    if _BINARY.match(start):
        return True
    wide = start.startswith(_WIDE_BOMS) or (charset or "").startswith(("utf-16", "utf-32", "ucs-"))
    if b"\x00" not in start or wide:
        return False
    return not declared or not _CONTROLS.isdisjoint(start)


def sniffed_type(start: bytes) -> str:
    """Return what a body without a content type is taken for: HTML or plain text."""
    head = start[:_SNIFFED_BYTES].removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    return "text/html" if head.startswith(_HTML) else "text/plain"


def whole_letters(content: bytes, charset: str | None) -> bytes:
    """Return a text that was cut off without the part of a letter that may be at its end."""
    if content.startswith(_WIDE_BOMS):
        return content[: len(content) & ~1]
    if charset not in {None, "utf-8", "utf8"}:
        return content
    for back in range(1, min(3, len(content)) + 1):
        lead = content[-back]
        if lead >= 0xC0:  # noqa: PLR2004 - the first byte of a letter of two to four
            length = 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4  # noqa: PLR2004 - UTF-8
            return content[:-back] if length > back else content
        if lead < 0x80:  # noqa: PLR2004 - a letter of one
            break
    return content


def _parts(chunk: bytes) -> Iterator[bytes]:
    """Yield a chunk in parts of limited size: decoders copy what they have not read."""
    for start in range(0, len(chunk), PIECE_BYTES):
        yield chunk[start : start + PIECE_BYTES]


class _Content:
    """The decompressed bytes, at most one piece more than is wanted.

    Small pieces are gathered, as a list of them would cost many times their size.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._size = 0
        self._pieces: list[bytes] = []
        self._small = bytearray()

    @property
    def full(self) -> bool:
        return self._size > self._max_bytes

    def take(self, pieces: Iterator[bytes]) -> None:
        for piece in pieces:
            self._size += len(piece)
            if len(piece) < _SMALL_BYTES:
                self._small += piece
            if len(piece) >= _SMALL_BYTES or len(self._small) >= PIECE_BYTES:
                self._gather()
            if len(piece) >= _SMALL_BYTES:
                self._pieces.append(piece)
            if self.full:
                return

    def body(self, *, truncated: bool) -> Body:
        self._gather()
        return Body(b"".join(self._pieces)[: self._max_bytes], truncated)

    def _gather(self) -> None:
        if self._small:
            self._pieces.append(bytes(self._small))
            self._small.clear()


def _decoded(chunk: bytes, decoders: Sequence[Decoder]) -> Iterator[bytes]:
    if not decoders:
        yield chunk
        return
    for piece in decoders[0].feed(chunk):
        yield from _decoded(piece, decoders[1:])


def _has_zlib_header(data: bytes) -> bool:
    return data[0] & 0x0F == 8 and int.from_bytes(data[:2], "big") % 31 == 0  # noqa: PLR2004 - zlib


__all__ = [
    "MAX_CODINGS",
    "Body",
    "Decoder",
    "decoders_for",
    "looks_binary",
    "read_body",
    "sniffed_type",
    "whole_letters",
]
