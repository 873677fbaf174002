"""Close connections with their event loop, and those that hold unexpected bytes.

A server that sends two answers to one request, or that can be made to, would otherwise choose what
the next request is answered with. httpcore2 looks at the socket before it uses a connection again,
but not at what was read from the socket already: by the parser, with the end of the answer before,
or by the streams below it.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import suppress
from functools import cache
from typing import Any, Final

from lib._util.clock import SYSTEM_CLOCK

TURNS: Final = 5
"""Turns of the event loop in which bytes that were read already come out of the streams."""

_MAX_LAYERS: Final = 8


class LoopClient:
    """An httpx2 client of one event loop: made with the first request, closed with the loop."""

    def __init__(self, make: Callable[[], Any]) -> None:
        """Take what makes the client."""
        self._make = make
        self._making = asyncio.Lock()
        self._client: Any = None
        self._life: AsyncGenerator[Any] | None = None

    async def opened(self) -> Any:
        """Return the client, a new one if the last was closed."""
        async with self._making:
            if self._client is None or self._client.is_closed:
                # In a thread: the import and the certificates come from files. Where the call is
                # cancelled meanwhile, the client is dropped before it has opened anything.
                client = await asyncio.to_thread(self._make)
                self._life = _life(client)
                self._client = await anext(self._life)
            return self._client

    async def aclose(self) -> None:
        """Close the connections of the client, if there is one."""
        if self._client is not None:
            await self._client.aclose()


async def _life(client: Any) -> AsyncGenerator[Any]:
    """Yield the client, and close it in the end.

    An event loop closes the asynchronous generators that are still open when it ends, and those
    without a reference: only as long as its loop runs can a connection be closed.
    """
    try:
        yield client
    finally:
        # CPython before 3.13 breaks off a generator whose closing was cancelled before it began, as
        # `asyncio.run` does with what its last step has let go. The task outlives that.
        await asyncio.shield(asyncio.ensure_future(client.aclose()))


async def watch(response: Any) -> None:
    """Close the response's connection when it ends, if anything is left on it.

    It is also a hook for other clients: `event_hooks={"response": [watch]}`.

    Args:
        response: of httpx2, or of the older httpx; its content has not been read.
    """
    if response.extensions.get("network_stream") is not None and not _is_http2(response):
        package = sys.modules[type(response).__module__.partition(".")[0]]
        response.stream = _watched(package)(response)


def _is_http2(response: Any) -> bool:
    return response.extensions.get("http_version") == b"HTTP/2"


@cache
def _watched(package: Any) -> Any:
    """Return the class of such streams, which derives from the package's own."""

    class Watched(package.AsyncByteStream):
        def __init__(self, response: Any) -> None:
            self._response, self._stream = response, response.stream

        def __aiter__(self) -> AsyncIterator[bytes]:
            return aiter(self._stream)

        async def aclose(self) -> None:
            try:
                if await _has_more(self._response, self._stream):
                    with suppress(Exception):  # the answer itself is whole
                        await self._response.extensions["network_stream"].aclose()
            finally:
                await self._stream.aclose()

    return Watched


async def _has_more(response: Any, stream: Any) -> bool:
    """Return True unless the connection is certain to be empty."""
    parser = _parser(stream)
    if parser is None or parser.trailing_data[0]:
        return True
    if repr(parser.their_state) != "DONE":
        return False  # then it is closed, as the answer was not read to its end
    if "content-length" in response.headers and "transfer-encoding" in response.headers:
        return True  # two ways to find the end, which others on the way may read differently
    return await _has_bytes(response.extensions["network_stream"])


def _parser(stream: Any) -> Any:
    """Return the state of HTTP/1.1 below a response's stream, which has no public name."""
    for _ in range(_MAX_LAYERS):
        if (parser := getattr(stream, "_h11_state", None)) is not None:
            return parser
        names = ("_httpcore_stream", "_stream", "_connection")
        stream = next(filter(None, (getattr(stream, name, None) for name in names)), None)
    return None


async def _has_bytes(network_stream: Any) -> bool:
    """Return True if there are bytes, or the end, to read now, without waiting for more."""
    reading = asyncio.ensure_future(network_stream.read(1))
    try:
        for _ in range(TURNS):
            if reading.done():
                break
            await SYSTEM_CLOCK.sleep(0)
    finally:
        reading.cancel()
        await asyncio.wait([reading])
    if reading.cancelled():
        return False
    reading.exception()  # an error has been seen, too
    return True
