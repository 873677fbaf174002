"""Small bodies that stand for large ones."""

from __future__ import annotations

import importlib
import zlib
from functools import cache
from typing import Any

MEBIBYTE = 1 << 20


@cache
def deflated(mebibytes: int, window_bits: int) -> bytes:
    """Return zeros, compressed: as gzip with 31 window bits, as zlib with 15.

    A part that was flushed fully can be repeated: nothing refers back over a full flush.
    """
    part = bytes(MEBIBYTE)
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    packed = packer.compress(part) + packer.flush(zlib.Z_FULL_FLUSH)
    raw = packed * mebibytes + packer.flush(zlib.Z_FINISH)
    checksum = _checksum(mebibytes, zlib.crc32 if window_bits == 31 else zlib.adler32)
    if window_bits == 15:
        return b"\x78\xda" + raw + checksum.to_bytes(4, "big")
    size = mebibytes * MEBIBYTE % (1 << 32)
    trailer = checksum.to_bytes(4, "little") + size.to_bytes(4, "little")
    return b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\xff" + raw + trailer


def gzipped_twice(mebibytes: int) -> bytes:
    """Return zeros, compressed by gzip, and compressed again."""
    return zlib.compress(deflated(mebibytes, 31), 9, 31)


def zstandard(mebibytes: int) -> bytes:
    """Return zeros as zstd: a head, and four bytes for each 128 KiB (RFC 8878, 3.1.1)."""
    size = 128 * 1024
    blocks = [_rle_block(size, last=False)] * (mebibytes * 8 - 1)
    window = (17 - 10) << 3  # 128 KiB
    return (
        b"\x28\xb5\x2f\xfd\x00" + bytes([window]) + b"".join(blocks) + _rle_block(size, last=True)
    )


@cache
def brotli(mebibytes: int) -> bytes:
    """Return zeros as br; needs brotli."""
    packer: Any = importlib.import_module("brotli").Compressor(quality=9, lgwin=24)
    part = bytes(16 * MEBIBYTE)
    packed = b"".join(packer.process(part) for _ in range(mebibytes // 16))
    return packed + packer.finish()


def _checksum(mebibytes: int, add: Any) -> int:
    part, total = bytes(MEBIBYTE), add(b"")
    for _ in range(mebibytes):
        total = add(part, total)
    return total


def _rle_block(size: int, *, last: bool) -> bytes:
    return (size << 3 | 1 << 1 | last).to_bytes(3, "little") + b"\x00"
