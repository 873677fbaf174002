"""Scenarios of the server by name: an answer as bytes, or a function with the connection.

Names are those of our corpus of fetches (`ssrf.jsonl`). Sizes are what broke other clients.
"""

from __future__ import annotations

import asyncio
import gzip
import re
import zlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeAlias

from fakes.hostile_server import bombs
from lib._util.clock import SYSTEM_CLOCK

Scenario: TypeAlias = bytes | Callable[[asyncio.StreamWriter], Awaitable[None]]

BOMB_MEBIBYTES: Final = 400
PACE_S: Final = 0.05

_TEXT: Final = b"Content-Type: text/plain; charset=utf-8"
_HTML: Final = b"Content-Type: text/html"


def answer(
    body: bytes, *headers: bytes, status: bytes = b"200 OK", version: bytes = b"HTTP/1.1"
) -> bytes:
    """Return a whole answer, plain text unless its headers say otherwise."""
    lines = [version + b" " + status, *(headers or (_TEXT,)), b"Content-Length: %d" % len(body)]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def raw(*headers: bytes, body: bytes = b"") -> bytes:
    """Return an answer with these headers and no other, whatever they say of the body."""
    return b"\r\n".join([b"HTTP/1.1 200 OK", *headers]) + b"\r\n\r\n" + body


def ends_by_itself(scenario: bytes) -> bool:
    """Tell whether a client finds the end of an answer before the connection is closed."""
    head, _, body = scenario.partition(b"\r\n\r\n")
    if b"Transfer-Encoding: chunked" in head:
        return b"0\r\n\r\n" in body
    length = re.search(rb"Content-Length: ([0-9]+)", head)
    return b" 204 " in head if length is None else len(body) >= int(length[1])


def coded(coding: bytes, body: bytes) -> bytes:
    """Return an answer that says how it is compressed."""
    return answer(body, _TEXT, b"Content-Encoding: " + coding)


def charset(name: bytes, body: bytes) -> bytes:
    """Return an answer that says how its text is encoded."""
    return answer(body, b"Content-Type: text/plain; charset=" + name)


def later(make: Callable[[], bytes]) -> Callable[[asyncio.StreamWriter], Awaitable[None]]:
    """Return a scenario whose bytes are made when it is requested, in a thread."""

    async def send(writer: asyncio.StreamWriter) -> None:
        writer.write(await asyncio.to_thread(make))

    return send


def dripping(start: bytes, drop: bytes) -> Callable[[asyncio.StreamWriter], Awaitable[None]]:
    """Return a scenario that begins, and then goes on in drops without an end."""

    async def send(writer: asyncio.StreamWriter) -> None:
        writer.write(start)
        while True:
            await SYSTEM_CLOCK.sleep(PACE_S)
            writer.write(drop)
            await writer.drain()

    return send


async def _flood_1xx(writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" * 100)
        await writer.drain()
        await SYSTEM_CLOCK.sleep(0.001)


def endless(
    start: bytes, more: bytes, times: int
) -> Callable[[asyncio.StreamWriter], Awaitable[None]]:
    """Return a scenario that begins, and then goes on as fast as it is read, without an end."""

    async def send(writer: asyncio.StreamWriter) -> None:
        writer.write(start)
        while True:
            writer.write(more * times)
            await writer.drain()
            await SYSTEM_CLOCK.sleep(0)

    return send


async def _endless_body(writer: asyncio.StreamWriter) -> None:
    writer.write(raw(_TEXT))
    while True:
        writer.write(b"more " * 4_000)
        await writer.drain()


def _chunked(body: bytes, *, trailer: bytes = b"") -> bytes:
    return raw(
        _TEXT,
        b"Transfer-Encoding: chunked",
        body=b"%x\r\n%b\r\n0\r\n" % (len(body), body) + trailer,
    )


_ZIPPED: Final = gzip.compress(b"a compressed page " * 2_000, mtime=0)
_DEFLATER: Final = zlib.compressobj(9, zlib.DEFLATED, -15)
_RAW_DEFLATED: Final = _DEFLATER.compress(b"a deflated page") + _DEFLATER.flush()

_CODINGS: Final[Mapping[str, Scenario]] = {
    "gzip_bomb": later(lambda: coded(b"gzip", bombs.deflated(BOMB_MEBIBYTES, 31))),
    "deflate_bomb": later(lambda: coded(b"deflate", bombs.deflated(BOMB_MEBIBYTES, 15))),
    "gzip_gzip_bomb": later(lambda: coded(b"gzip, gzip", bombs.gzipped_twice(BOMB_MEBIBYTES))),
    "br_bomb": later(lambda: coded(b"br", bombs.brotli(BOMB_MEBIBYTES))),
    "zstd_bomb": later(lambda: coded(b"zstd", bombs.zstandard(BOMB_MEBIBYTES))),
    "gzip_twice_in_two_lines": answer(
        gzip.compress(gzip.compress(b"a page", mtime=0), mtime=0),
        *(_TEXT, b"Content-Encoding: gzip", b"Content-Encoding: gzip"),
    ),
    "raw_deflate": coded(b"deflate", _RAW_DEFLATED),
    "zlib_deflate": coded(b"deflate", zlib.compress(b"a deflated page")),
    "gzip_members": coded(b"gzip", gzip.compress(b"one ") + gzip.compress(b"two")),
    "empty_members": coded(b"gzip", gzip.compress(b"", mtime=0) * 100_000),
    "fifty_encodings": coded(b", ".join([b"gzip"] * 50), b"x"),
    "unknown_encoding": coded(b"compress", b"\x1f\x9d\x90"),
    "identity_encoding": coded(b"identity", b"a page"),
    "bad_gzip": coded(b"gzip", b"this is not compressed"),
    "truncated_gzip": coded(b"gzip", _ZIPPED[: len(_ZIPPED) // 2]),
}

_CHUNKED: Final = raw(_TEXT, b"Transfer-Encoding: chunked")

_TIME: Final[Mapping[str, Scenario]] = {
    "slow_body": dripping(raw(_TEXT), b"x"),
    "slow_headers": dripping(b"HTTP/1.1 200 OK\r\n", b"X-Slow: 1\r\n"),
    "silence": dripping(b"", b""),
    "flood_1xx": _flood_1xx,
    "endless_body": _endless_body,
    "endless_tiny_chunks": endless(_CHUNKED, b"1\r\nx\r\n", 20_000),
    "endless_extensions": endless(_CHUNKED, b"1;" + b"e" * 15_000 + b"\r\nx\r\n", 10),
    "endless_hints": endless(b"", b"HTTP/1.1 103 X\r\n\r\n", 5_000),
}

_FRAMING: Final[Mapping[str, Scenario]] = {
    "switch_101": b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
    "huge_header": raw(_TEXT, b"X-Huge: " + b"x" * 2_000_000),
    "many_headers": raw(_TEXT, *(b"X-%d: 1" % number for number in range(9_000))),
    "huge_trailers": _chunked(b"a page", trailer=b"X-T: 1\r\n" * 200_000 + b"\r\n"),
    "chunk_extension": raw(
        _TEXT, b"Transfer-Encoding: chunked", body=b"6;" + b"x" * 2_000_000 + b"\r\na page\r\n0\r\n"
    ),
    "tiny_chunks": raw(
        _TEXT, b"Transfer-Encoding: chunked", body=b"2\r\nab\r\n" * 5_000 + b"0\r\n\r\n"
    ),
    "incomplete_chunks": raw(
        _TEXT, b"Transfer-Encoding: chunked", body=b"6\r\na page\r\n20\r\nand"
    ),
    "content_length_small": raw(_TEXT, b"Content-Length: 3", body=b"a page and more"),
    "content_length_large": raw(_TEXT, b"Content-Length: 300", body=b"a page"),
    "content_length_two": raw(_TEXT, b"Content-Length: 3", b"Content-Length: 6", body=b"a page"),
    "content_length_negative": raw(_TEXT, b"Content-Length: -3", body=b"a page"),
    "content_length_huge": raw(_TEXT, b"Content-Length: 99999999999999999999", body=b"a page"),
    "cl_and_te": raw(
        _TEXT,
        b"Content-Length: 3",
        b"Transfer-Encoding: chunked",
        body=b"6\r\na page\r\n0\r\n\r\n",
    ),
    "http_1_0": b"HTTP/1.0 200 OK\r\n" + _TEXT + b"\r\n\r\na page",
    "http_0_9": b"a page without a status line\n",
    "status_999": answer(b"a page", status=b"999 What"),
    "nul_in_header": raw(_TEXT, b"X-Nul: a\x00b", body=b"a page"),
    "two_locations": (
        b"HTTP/1.1 302 Found\r\nLocation: /one\r\nLocation: /two\r\nContent-Length: 0\r\n\r\n"
    ),
    "no_location": b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\n\r\n",
    "location_latin1": b"HTTP/1.1 302 Found\r\nLocation: /caf\xe9\r\nContent-Length: 0\r\n\r\n",
    "endless_redirect": (
        b"HTTP/1.1 302 Found\r\nLocation: /endless_redirect\r\nContent-Length: 0\r\n\r\n"
    ),
    "partial": answer(b"a page", _TEXT, status=b"206 Partial Content"),
}

_POISON: Final = answer(b"an answer that was sent ahead")

SENT_AHEAD: Final[Mapping[str, bytes]] = {
    "sent_ahead": answer(b"a page") + _POISON,
    "sent_ahead_after_chunks": _chunked(b"a page", trailer=b"\r\n") + _POISON,
    "sent_ahead_after_a_part": raw(_TEXT, b"Content-Length: 3", body=b"a p" + _POISON),
    "sent_ahead_after_204": b"HTTP/1.1 204 None\r\n\r\n" + _POISON,
    "sent_ahead_after_304": b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n" + _POISON,
    "sent_ahead_after_a_redirect": (
        b"HTTP/1.1 302 Found\r\nLocation: /harmless\r\nContent-Length: 0\r\n\r\n" + _POISON
    ),
    "sent_ahead_in_two_ways": raw(
        _TEXT,
        *(b"Content-Length: 100", b"Transfer-Encoding: chunked"),
        body=b"6\r\na page\r\n0\r\n\r\n" + _POISON,
    ),
    "sent_ahead_at_the_end_of_a_read": answer(b"x" * (64 * 1024 - 100)) + b"\r\n" * 50 + _POISON,
}
"""Answers with a second one behind them, which was not requested."""

_TYPES: Final[Mapping[str, Scenario]] = {
    "no_content_type_html": raw(
        body=b"\n<!doctype html><title>t</title><p>a page of some words</p>"
    ),
    "no_content_type_text": raw(body=b"a page"),
    "no_content_type_binary": raw(body=b"\x00\x01\x02\x03 binary"),
    "ctype_image": answer(b"\x89PNG\r\n\x1a\n", b"Content-Type: image/png"),
    "ctype_octet": answer(b"a page", b"Content-Type: application/octet-stream"),
    "ctype_params": answer(b"<p>caf\xc3\xa9", b'Content-Type: Text/HTML ; Charset="UTF-8"'),
    "ctype_two": answer(b"a page", _TEXT, _HTML),
    "ctype_twice_the_same": answer(b"a page", b"Content-Type: Text/Plain", _TEXT),
    "ctype_svg": answer(b"<svg/>", b"Content-Type: image/svg+xml"),
    "ctype_json": answer(b'{"a": 1}', b"Content-Type: application/json"),
    "ctype_problem_json": answer(b'{"a": 1}', b"Content-Type: application/problem+json"),
    "ctype_garbage": answer(b"a page", b"Content-Type: text"),
    "ctype_mismatch": answer(b"<html><p>a page</p></html>", b"Content-Type: text/plain"),
    "ctype_lie_binary": answer(b"PK\x03\x04\x14\x00\x00\x00", _HTML),
}

_HIDDEN: Final = (
    b"<html><body><p>Everybody sees this sentence, it is long enough to be the text of a page.</p>"
    b'<p style="display:none">secret one</p><p hidden>secret two</p><!-- secret three -->'
    b'<p aria-hidden="true">secret four</p><p style="font-size:0">secret five</p></body></html>'
)
_WORDS: Final = "日本語のページ"

_TEXTS: Final[Mapping[str, Scenario]] = {
    "charset_utf16_bom": answer(
        b"\xff\xfe" + "a page é".encode("utf-16-le"), b"Content-Type: text/plain"
    ),
    "charset_meta": answer(
        f"<html><head><meta charset=shift_jis></head><p>{_WORDS}</p>".encode("shift_jis"), _HTML
    ),
    "charset_unknown": charset(b"klingon", "a page é".encode()),
    "charset_punycode": charset(b"punycode", b"a page " * 45_000),
    "charset_rot13": charset(b"rot_13", b"a page"),
    "charset_zip": charset(b"zip", b"a page"),
    "charset_idna": charset(b"idna", b"a page " * 45_000),
    "charset_utf7": charset(b"utf-7", b"a page +AGE-"),
    "charset_utf32": charset(b"utf-32", "a page".encode("utf-32-le")),
    "charset_bad_bytes": charset(b"utf-8", b"a page caf\xe9 here"),
    "split_multibyte": charset(b"utf-8", b"x" + "é".encode() * 600_000),
    "deep_html": answer(b"<div>" * 200_000, _HTML),
    "lt_run": answer(b"<" * 1_000_000, _HTML),
    "hidden_text": answer(_HIDDEN, _HTML),
    "status_401_challenge": answer(
        b"who?", b'WWW-Authenticate: Basic realm="x"', status=b"401 Unauthorized"
    ),
    "status_404": answer(b"not here", status=b"404 Not Found"),
    "status_500": answer(b"a traceback", status=b"500 Oh"),
    "set_cookie": answer(b"a page", _TEXT, b"Set-Cookie: session=1; Path=/"),
    "retry_after": answer(b"later", b"Retry-After: 30", status=b"429 Too Many Requests"),
    "retry_after_huge": answer(
        b"later", b"Retry-After: " + b"9" * 5_000, status=b"429 Too Many Requests"
    ),
    "retry_after_odd": answer(
        b"later", b"Retry-After: \xb2\xb3", status=b"503 Service Unavailable"
    ),
}

SCENARIOS: Final[Mapping[str, Scenario]] = {
    **_CODINGS,
    **_TIME,
    **_FRAMING,
    **SENT_AHEAD,
    **_TYPES,
    **_TEXTS,
}
"""What is served at the path of each name."""
