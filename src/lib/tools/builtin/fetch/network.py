"""Connections that are pinned to checked addresses, under the pool of httpcore2.

The pool knows a host by its name: TLS, SNI, the certificate's check and the Host header are the
name's. Only the opening of a socket is ours, and it is by address.

A connection serves one request and is closed. On a connection that is kept, whatever a server sends
beyond its answer would be the answer to the next request.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

import httpcore2
import httpx2

from lib.errors import FetchBlocked
from lib.tools.builtin.fetch.address import Address, read, text
from lib.tools.builtin.fetch.answer import Answer, Headers
from lib.tools.builtin.fetch.bounded_stream import BoundedBackend, BoundedStream, TooMuchSentError
from lib.tools.builtin.fetch.resolver import Addresses
from lib.tools.builtin.fetch.url import Target

MAX_CONNECTIONS: Final = 100
_ONCE: Final = (b"Connection", b"close")

FAILURES: Final = (
    httpcore2.TimeoutException,
    httpcore2.NetworkError,
    httpcore2.ProtocolError,
    httpcore2.ProxyError,
    httpcore2.UnsupportedProtocol,
    OSError,
    TooMuchSentError,
)


class PinnedBackend(httpcore2.AsyncNetworkBackend):
    """Opens sockets to checked addresses, one after the other, and to nothing else."""

    def __init__(self, addresses: Addresses) -> None:
        """Take what knows which addresses may be reached."""
        self._addresses = addresses
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
        """Connect to the first address of the host that takes the connection.

        Raises:
            FetchBlocked: an address of the host may not be reached.
            LookupFailedError: the host could not be looked up.
            httpcore2.ConnectError: no address took the connection.
            httpcore2.ConnectTimeout: none did in time.
        """
        limit_s = 60.0 if timeout is None else timeout
        until = asyncio.get_running_loop().time() + limit_s
        addresses = await self._addresses.of(host, port, timeout_s=limit_s)
        return await self._first(addresses, port, until)

    async def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: Iterable[Any] | None = None
    ) -> httpcore2.AsyncNetworkStream:
        """Refuse: no URL leads to a file."""
        raise FetchBlocked("unix sockets are not for fetching")

    async def sleep(self, seconds: float) -> None:
        """Wait; the pool would do so between attempts, of which it makes none."""
        await self._sockets.sleep(seconds)

    async def _first(
        self, addresses: Sequence[Address], port: int, until: float
    ) -> httpcore2.AsyncNetworkStream:
        """Try the addresses in their order; each gets its share of the time that is left."""
        last: Exception = httpcore2.ConnectTimeout()
        for tried, address in enumerate(addresses):
            left_s = until - asyncio.get_running_loop().time()
            share_s = max(left_s, 0.0) / (len(addresses) - tried)
            try:
                stream: httpcore2.AsyncNetworkStream = await self._sockets.connect_tcp(
                    text(address), port, timeout=share_s
                )
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                last = type(error)()  # without its text, which holds the address
            else:
                return await _verified(stream, address, port)
        raise last


async def _verified(
    stream: httpcore2.AsyncNetworkStream, address: Address, port: int
) -> httpcore2.AsyncNetworkStream:
    """Return the stream, to be read with care, if its other end is the address."""
    peer: Any = stream.get_extra_info("server_addr")
    if read(str(peer[0])) != address or peer[1] != port:
        await stream.aclose()
        raise FetchBlocked("connected elsewhere")
    return BoundedStream(stream)


class Network:
    """Asks over own connections, one a request: a pool for each event loop, closed with it."""

    failures: tuple[type[Exception], ...] = FAILURES

    def __init__(
        self,
        addresses: Addresses,
        *,
        verify: ssl.SSLContext | bool,
        proxy: str | None,
        max_bytes: int,
    ) -> None:
        """Prepare; nothing is opened yet.

        Raises:
            ValueError: the proxy's URL is not one of an HTTP proxy.
        """
        self._addresses, self._verify, self._max_bytes = addresses, verify, max_bytes
        self._proxy = None if proxy is None else _proxy(proxy)
        self._pools: dict[asyncio.AbstractEventLoop, _Pool] = {}

    async def ask(self, target: Target, headers: Headers, *, connect_timeout_s: float) -> Answer:
        """Send a GET request and return the answer when its headers are there."""
        pool = await self._pool().opened()
        request = httpcore2.Request(
            method=b"GET",
            url=httpcore2.URL(
                scheme=target.scheme.encode("ascii"),
                host=target.host.encode("ascii"),
                port=target.port,
                target=target.path.encode("ascii"),
            ),
            headers=[(b"Host", target.authority.encode("ascii")), *headers, _ONCE],
            # What is not limited here is limited by the deadline of the fetch.
            extensions={"timeout": {"connect": connect_timeout_s}},
        )
        response: Any = await pool.handle_async_request(request)
        stream = response.extensions.get("network_stream")
        if isinstance(stream, BoundedStream):
            stream.expect_body(self._max_bytes)
        return Answer(response.status, response.headers, response.stream, response.aclose)

    async def aclose(self) -> None:
        """Close the connections of this event loop; another request opens new ones."""
        pool = self._pools.pop(asyncio.get_running_loop(), None)
        if pool is not None:
            await pool.aclose()

    def _pool(self) -> _Pool:
        loop = asyncio.get_running_loop()
        if loop not in self._pools:
            for ended in [each for each in list(self._pools) if each.is_closed()]:
                self._pools.pop(ended, None)
            self._pools[loop] = _Pool(self._make)
        return self._pools[loop]

    def _make(self) -> httpcore2.AsyncConnectionPool:
        """Return a pool; reads the certificates of the system."""
        if not isinstance(self._verify, ssl.SSLContext):
            self._verify = httpx2.create_ssl_context(verify=self._verify, trust_env=False)
        # A proxy is the operator's and trusted; it opens the connections, and checks where to.
        backend = PinnedBackend(self._addresses) if self._proxy is None else BoundedBackend()
        return httpcore2.AsyncConnectionPool(
            ssl_context=self._verify,
            proxy=self._proxy,
            max_connections=MAX_CONNECTIONS,
            max_keepalive_connections=0,
            http2=False,
            retries=0,
            network_backend=backend,
        )


class _Pool:
    """The pool of one event loop, made with the first request."""

    def __init__(self, make: Callable[[], httpcore2.AsyncConnectionPool]) -> None:
        self._make = make
        self._making = asyncio.Lock()
        self._pool: httpcore2.AsyncConnectionPool | None = None
        self._life: AsyncGenerator[httpcore2.AsyncConnectionPool] | None = None

    async def opened(self) -> httpcore2.AsyncConnectionPool:
        async with self._making:
            if self._pool is None:
                self._life = _life(await asyncio.to_thread(self._make))
                self._pool = await anext(self._life)
            return self._pool

    async def aclose(self) -> None:
        if self._pool is not None:
            await self._pool.aclose()


async def _life(
    pool: httpcore2.AsyncConnectionPool,
) -> AsyncGenerator[httpcore2.AsyncConnectionPool]:
    """Yield the pool, and close it in the end.

    Event loops close the asynchronous generators that are still open when they end, and those
    that are no longer referenced: only as long as its loop runs can a connection be closed.
    """
    try:
        yield pool
    finally:
        # CPython before 3.13 breaks off a generator whose closing was cancelled before it began, as
        # `asyncio.run` does with what its last step has let go. The task outlives that.
        await asyncio.shield(asyncio.ensure_future(pool.aclose()))


def _proxy(url: Any) -> httpcore2.Proxy:
    if not isinstance(url, str):
        raise TypeError(f"proxy is a str, not {type(url).__name__}")
    try:
        parts = urlsplit(url)
        port, host = parts.port, (parts.hostname or "").encode("idna")
    except ValueError:
        parts, port, host = urlsplit(""), None, b""
    if parts.scheme not in {"http", "https"} or not host:
        raise ValueError("proxy is the URL of an HTTP proxy: http://host:port or https://host:port")
    auth = None if parts.username is None else (parts.username, parts.password or "")
    origin = httpcore2.URL(scheme=parts.scheme.encode("ascii"), host=host, port=port, target=b"/")
    return httpcore2.Proxy(url=origin, auth=auth)
