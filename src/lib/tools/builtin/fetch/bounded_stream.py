"""Connections that are read in small steps and up to a limit.

A server decides what its bytes cost: 64 KiB of "103 Early Hints", or of chunks of one byte, keep an
event loop busy for a quarter of a second, and there is no end to them. So, until the headers of an
answer are there, little is read at a time; others have a turn before every read; and what comes is
counted as it comes, framing included.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from typing import Any, Final

import httpcore2

from lib._util.clock import SYSTEM_CLOCK

MAX_READ_BYTES: Final = 64 * 1024
MAX_HEAD_READ_BYTES: Final = 8 * 1024
"""How much is read at a time before the headers of an answer are there."""

MAX_HEAD_WIRE_BYTES: Final = 256 * 1024
"""How much a server may send before the headers of its answer are complete, interim ones too."""

OVERHEAD_BYTES: Final = 256 * 1024
"""How much it may send around a body, besides a quarter of the body: framing and trailers."""


class TooMuchSentError(Exception):
    """A server sends more than an answer needs."""


def wire_limit(max_bytes: int) -> int:
    """Return how many bytes a body of at most `max_bytes` may take on its way."""
    return max_bytes + max_bytes // 4 + OVERHEAD_BYTES


class BoundedStream(httpcore2.AsyncNetworkStream):
    """A connection on which an answer can take only so much."""

    def __init__(self, stream: Any, *, tls: bool = False) -> None:
        """Take the connection; a limit of headers is in force."""
        self._stream, self._tls = stream, tls
        self._left, self._step = MAX_HEAD_WIRE_BYTES, MAX_HEAD_READ_BYTES

    def expect_body(self, max_bytes: int) -> None:
        """Note that the headers are there, and that so much of the body is wanted."""
        self._left, self._step = wire_limit(max_bytes), MAX_READ_BYTES

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Return what has come.

        Raises:
            TooMuchSentError: that is more than an answer needs.
        """
        if self._left <= 0:
            raise TooMuchSentError
        if self._tls:  # anyio gives others a turn when it reads a socket, but not what TLS has read
            await SYSTEM_CLOCK.sleep(0)
        read = await self._stream.read(min(max_bytes, self._step, self._left), timeout)
        self._left -= len(read)
        return read

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Send a part of a request, to which another answer will come."""
        self._left, self._step = MAX_HEAD_WIRE_BYTES, MAX_HEAD_READ_BYTES
        await self._stream.write(buffer, timeout)

    async def aclose(self) -> None:
        """Close the connection."""
        await self._stream.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> BoundedStream:
        """Return the connection with TLS on it."""
        stream = await self._stream.start_tls(ssl_context, server_hostname, timeout)
        return BoundedStream(stream, tls=True)

    def get_extra_info(self, info: str) -> Any:
        """Return what is known of the connection."""
        return self._stream.get_extra_info(info)


class BoundedBackend(httpcore2.AsyncNetworkBackend):
    """Opens connections to any address: to a proxy, which the operator has named."""

    def __init__(self) -> None:
        """Prepare."""
        # A stand-in class without types where anyio is missing, which httpx2 requires.
        self._sockets: Any = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """Connect."""
        return BoundedStream(await self._sockets.connect_tcp(host, port, timeout=timeout))

    async def sleep(self, seconds: float) -> None:
        """Wait; the pool would do so between attempts, of which it makes none."""
        await self._sockets.sleep(seconds)
