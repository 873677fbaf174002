"""Bodies: bombs, codings, and what is left of a text that was cut."""

import asyncio
import gzip
import sys
import time
import tracemalloc
import zlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from effort import effort_below
from fakes.hostile_server import HostileServer, bombs
from fakes.hostile_server.scenarios import BOMB_MEBIBYTES
from lib.errors import FetchBlocked, ToolError
from lib.testing.aio import run
from lib.tools.builtin.fetch.body import (
    Body,
    decoders_for,
    looks_binary,
    read_body,
    sniffed_type,
    whole_letters,
)
from lib.tools.builtin.fetch.fetcher import Page, SafeFetcher

MEBIBYTE = 1 << 20
TEXT = b"some text that is worth compressing " * 100


def read(sent: bytes, *codings: str, size: int = 7, max_bytes: int = MEBIBYTE) -> Body:
    async def chunks() -> AsyncIterator[bytes]:
        for start in range(0, len(sent), size):
            yield sent[start : start + size]

    return run(read_body(chunks(), decoders_for(codings), max_bytes=max_bytes, ended_early=never))


def never(error: Exception) -> bool:
    return False


def deflated(window_bits: int, content: bytes = TEXT) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, window_bits)
    return packer.compress(content) + packer.flush()


def brotli(content: bytes) -> bytes:
    import brotli

    packer: Any = brotli
    return packer.compress(content)


def zstd(content: bytes) -> bytes:
    import zstandard

    return zstandard.ZstdCompressor().compress(content)


CODED: dict[str, tuple[bytes, tuple[str, ...]]] = {
    "plain": (TEXT, ()),
    "identity": (TEXT, ("identity",)),
    "nothing": (TEXT, ("", " , Identity")),
    "gzip": (gzip.compress(TEXT), ("gzip",)),
    "x-gzip": (gzip.compress(TEXT), ("X-GZip",)),
    "gzip members": (gzip.compress(TEXT[:9]) + gzip.compress(TEXT[9:]), ("gzip",)),
    "padded gzip": (gzip.compress(TEXT) + b"\x00" * 20, ("gzip",)),
    "zlib": (deflated(15), ("deflate",)),
    "raw deflate": (deflated(-15), ("deflate",)),
    "zlib and junk": (deflated(15) + b"junk", ("deflate",)),
    "gzip twice": (gzip.compress(gzip.compress(TEXT)), ("gzip", "gzip")),
    "gzip over zlib": (gzip.compress(deflated(15)), ("deflate, gzip",)),
    "gzip over raw deflate": (gzip.compress(deflated(-15)), ("deflate", "gzip")),
    "brotli": (brotli(TEXT), ("br",)),
    "zstd": (zstd(TEXT), ("zstd",)),
    "zstd frames": (zstd(TEXT[:9]) + zstd(TEXT[9:]), ("zstd",)),
}


@pytest.mark.parametrize("size", [1, 7, 100_000])
@pytest.mark.parametrize("name", CODED)
def test_a_body_is_read_however_it_is_coded_and_cut(name: str, size: int) -> None:
    sent, codings = CODED[name]

    assert read(sent, *codings, size=size) == Body(TEXT, truncated=False)


@pytest.mark.parametrize("size", [63, 64, 65, 66, 67, 100])
def test_what_a_decoder_holds_back_at_the_end_of_a_piece_is_not_lost(size: int) -> None:
    content = bytes(3_000_000)

    body = read(gzip.compress(content, mtime=0), "gzip", size=size, max_bytes=1 << 22)

    assert body == Body(content, truncated=False)


@pytest.mark.parametrize("name", ["gzip", "zlib", "raw deflate", "brotli", "zstd"])
def test_a_body_that_stops_early_says_so(name: str) -> None:
    sent, (coding, *_) = CODED[name]
    for length in (1, len(sent) // 2, len(sent) - 1):
        body = read(sent[:length], coding)

        assert body.truncated
        assert TEXT.startswith(body.content)
    assert read(b"", coding) == Body(b"", truncated=False)


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd"])
def test_a_body_that_is_not_coded_as_said_is_an_error(coding: str) -> None:
    with pytest.raises(ToolError, match="not compressed as it says"):
        read(b"\xff\xfethis is no such thing at all" * 9, coding)


@pytest.mark.parametrize("codings", [["compress"], ["gzip, compress"], ["gzip"] * 6, ["*"]])
def test_unrequested_codings_are_refused(codings: list[str]) -> None:
    with pytest.raises(FetchBlocked):
        decoders_for(codings)


@pytest.mark.parametrize("coding", ["br", "zstd"])
def test_codings_whose_package_is_missing_are_refused(
    coding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("brotli", "zstandard"):
        monkeypatch.setitem(sys.modules, name, None)

    with pytest.raises(FetchBlocked):
        decoders_for([coding])


@pytest.mark.parametrize(
    ("max_bytes", "truncated"), [(len(TEXT), False), (len(TEXT) - 1, True), (1, True)]
)
def test_a_body_is_cut_at_the_limit_exactly(max_bytes: int, truncated: bool) -> None:
    for sent, coding in ((TEXT, ""), (gzip.compress(TEXT), "gzip")):
        assert read(sent, coding, max_bytes=max_bytes) == Body(TEXT[:max_bytes], truncated)


def test_what_stands_for_nothing_is_limited_too() -> None:
    with effort_below(5):
        body = read(gzip.compress(b"", mtime=0) * 200_000, "gzip", size=1 << 22, max_bytes=1_000)

        assert body == Body(b"", truncated=True)


@pytest.mark.parametrize(
    "bomb", ["gzip_bomb", "deflate_bomb", "gzip_gzip_bomb", "br_bomb", "zstd_bomb"]
)
async def test_a_bomb_costs_no_more_than_what_is_wanted_of_it(bomb: str, internet: Any) -> None:
    for made in (
        lambda: bombs.deflated(BOMB_MEBIBYTES, 31),
        lambda: bombs.deflated(BOMB_MEBIBYTES, 15),
        lambda: bombs.brotli(BOMB_MEBIBYTES),
    ):
        made()

    async def resolve(host: str, port: int) -> list[str]:
        return ["93.184.216.34"]

    async def main() -> tuple[Page, int]:
        async with HostileServer() as internet.server, SafeFetcher(resolver=resolve) as fetcher:
            await fetcher.fetch("http://srv.test/")
            tracemalloc.start()
            try:
                page = await fetcher.fetch(f"http://srv.test/{bomb}")
                return page, tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()

    page, peak = await main()

    assert (len(page.body), page.truncated) == (1_000_000, True)
    assert peak < 1_000_000 + 4 * MEBIBYTE


def test_a_body_in_tiny_chunks_costs_what_it_holds() -> None:
    sent = bytes(range(256)) * 120  # in fewer chunks than are read at most
    tracemalloc.start()
    try:
        body = read(sent, size=2)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert body == Body(sent, truncated=False)
    assert peak < MEBIBYTE / 3  # a list of the chunks would take more


async def test_a_body_without_end_is_cut(internet: Any) -> None:
    async def resolve(host: str, port: int) -> list[str]:
        return ["93.184.216.34"]

    async with HostileServer() as internet.server, SafeFetcher(resolver=resolve) as fetcher:
        page = await fetcher.fetch("http://srv.test/endless_body")

    assert (len(page.body), page.truncated) == (1_000_000, True)


def test_an_error_of_the_network_that_is_no_end_is_passed_on() -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield b"a"
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        run(read_body(chunks(), [], max_bytes=9, ended_early=never))


@pytest.mark.parametrize(
    ("start", "charset", "declared", "binary"),
    [
        (b"a page", None, False, False),
        (b"%PDF-1.7", None, True, True),
        (b"PK\x03\x04", "utf-8", True, True),
        *((b"BZh91AY&SY\x00", None, True, True), (b"GIF89a\x01\x00", None, True, True)),
        *((b"RIFF\x24\x08\x00\x00WAVEfmt ", None, True, True), (b"Rar!\x1a\x07", None, True, True)),
        *((b"OggS\x00\x02", None, True, True), (b"ID3\x03\x00\x00", None, True, True)),
        *((b"ID3 tags explained", None, False, False), (b"RIFF is a format", None, True, False)),
        *((b"Rar! said the cat", None, False, False), (b"GIF89 or GIF87", None, True, False)),
        *((b"OggS pages", None, False, False), (b"BZh is how it begins", None, True, False)),
        (b"a\x00b", None, False, True),
        (b"a\x00b", None, True, False),
        (b"a\x00\x01b", None, True, True),
        (b"\xff\xfea\x00", None, False, False),
        (b"a\x00\x01\x00", "utf-16le", True, False),
        (b"x" * 2_000 + b"\x00\x01", None, False, False),
    ],
)
def test_what_is_taken_for_binary(
    start: bytes, charset: str | None, declared: bool, binary: bool
) -> None:
    assert looks_binary(start, charset, declared=declared) is binary


def test_what_has_no_type_is_html_if_it_begins_so() -> None:
    assert sniffed_type(b"\xef\xbb\xbf \n<!DOCTYPE html>") == "text/html"
    assert sniffed_type(b"<p>" + b" " * 2_000 + b"<html>") == "text/plain"


@pytest.mark.parametrize(
    ("content", "charset", "whole"),
    [
        ("aé".encode()[:-1], None, b"a"),
        ("aé".encode(), "utf-8", "aé".encode()),
        ("a€".encode()[:-1], "utf-8", b"a"),
        ("a€".encode()[:-2], "utf-8", b"a"),
        ("a😀".encode()[:-1], "utf8", b"a"),
        ("a😀".encode(), None, "a😀".encode()),
        (b"\x80\x80\x80\x80", None, b"\x80\x80\x80\x80"),
        (b"caf\xe9", "latin-1", b"caf\xe9"),
        (b"\xff\xfea\x00b", None, b"\xff\xfea\x00"),
        (b"", None, b""),
    ],
)
def test_a_text_that_was_cut_ends_with_a_whole_letter(
    content: bytes, charset: str | None, whole: bytes
) -> None:
    assert whole_letters(content, charset) == whole


async def test_other_tasks_run_while_a_body_is_read(internet: Any) -> None:
    async def resolve(host: str, port: int) -> list[str]:
        return ["93.184.216.34"]

    longest = 0.0

    async def watch() -> None:
        nonlocal longest
        while True:
            began = time.thread_time()
            await asyncio.sleep(0)  # noqa: TID251 - lets others run
            longest = max(longest, time.thread_time() - began)

    async with HostileServer() as internet.server, SafeFetcher(resolver=resolve) as fetcher:
        watching = asyncio.create_task(watch())
        await fetcher.fetch("http://srv.test/empty_members")
        watching.cancel()
    assert longest < 0.5
