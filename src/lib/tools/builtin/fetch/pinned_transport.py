"""An httpx2 transport to what a policy allows, for clients of protocols other than fetching."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator
from typing import Any, Final

import httpcore2
import httpx2

from lib.errors import FetchBlocked, ToolError
from lib.tools.builtin.fetch.bounded_stream import BoundedStream
from lib.tools.builtin.fetch.network import FAILURES, MAX_CONNECTIONS, PinnedBackend
from lib.tools.builtin.fetch.policy import FetchPolicy, Rules
from lib.tools.builtin.fetch.resolver import Addresses, Resolve, Resolver
from lib.tools.builtin.fetch.url import parse

_log = logging.getLogger(__name__)

_NOT_SENT: Final = (httpcore2.ConnectError, httpcore2.ConnectTimeout, httpcore2.PoolTimeout)


class NotSentError(httpx2.ConnectError):
    """A request did not leave: its host cannot be reached, or a rule forbids it."""


class PinnedTransport(httpx2.AsyncBaseTransport):
    """Sends requests that the policy allows, to addresses that were checked, and to no others.

    Each request is held against the policy by itself, one to which a redirect leads included.
    Connections are not kept; the environment's proxies are ignored. A body is not decompressed, has
    at most the policy's `max_bytes`, and ends early where its connection breaks.
    """

    def __init__(
        self,
        policy: FetchPolicy,
        *,
        resolver: Resolver | Resolve | None = None,
        verify: ssl.SSLContext | bool = True,
    ) -> None:
        """Prepare; nothing is opened yet. The arguments are those of `SafeFetcher`."""
        self._policy, self._rules, self._verify = policy, Rules(policy), verify
        self._addresses = Addresses(self._rules, resolver)
        self._making = asyncio.Lock()
        self._pool: httpcore2.AsyncConnectionPool | None = None

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request and return the response when its headers are there.

        Raises:
            NotSentError: nothing was sent.
            httpx2.TransportError: the connection has failed.
        """
        try:
            target = parse(str(request.url))
            self._rules.check(target)
            response: Any = await (await self._opened()).handle_async_request(
                httpcore2.Request(
                    method=request.method.encode("ascii"),
                    url=httpcore2.URL(
                        scheme=target.scheme.encode("ascii"),
                        host=target.host.encode("ascii"),
                        port=target.port,
                        target=target.path.encode("ascii"),
                    ),
                    headers=_headers(request, target.authority),
                    content=request.stream,
                    extensions={"timeout": {"connect": self._policy.connect_timeout_s}},
                )
            )
        except (*_NOT_SENT, FetchBlocked, ToolError) as error:
            why = error.message if isinstance(error, ToolError) else "it cannot be reached"
            fault: Exception = NotSentError(why, request=request)
        except FAILURES:
            fault = httpx2.ReadError("the connection has failed", request=request)
        else:
            return self._response(response)
        raise fault from None  # what it rests on may hold an address

    async def aclose(self) -> None:
        """Close all connections."""
        if self._pool is not None:
            await self._pool.aclose()

    def _response(self, response: Any) -> httpx2.Response:
        stream = response.extensions.get("network_stream")
        if isinstance(stream, BoundedStream):
            stream.expect_body(self._policy.max_bytes)
        headers = [pair for pair in response.headers if pair[0].lower() != b"content-encoding"]
        return httpx2.Response(response.status, headers=headers, stream=_Body(response))

    async def _opened(self) -> httpcore2.AsyncConnectionPool:
        async with self._making:
            if self._pool is None:
                self._pool = await asyncio.to_thread(self._make)
            return self._pool

    def _make(self) -> httpcore2.AsyncConnectionPool:
        """Return a pool; reads the certificates of the system."""
        verify = self._verify
        if not isinstance(verify, ssl.SSLContext):
            verify = httpx2.create_ssl_context(verify=verify, trust_env=False)
        return httpcore2.AsyncConnectionPool(
            ssl_context=verify,
            max_connections=MAX_CONNECTIONS,
            max_keepalive_connections=0,
            http2=False,
            retries=0,
            network_backend=PinnedBackend(self._addresses),
        )


def _headers(request: httpx2.Request, authority: str) -> list[tuple[bytes, bytes]]:
    ours = {b"host", b"accept-encoding", b"connection"}
    kept = [pair for pair in request.headers.raw if pair[0].lower() not in ours]
    host = (b"Host", authority.encode("ascii"))
    return [host, *kept, (b"Accept-Encoding", b"identity"), (b"Connection", b"close")]


class _Body(httpx2.AsyncByteStream):
    """The body of a response; one that breaks off ends there."""

    def __init__(self, response: Any) -> None:
        self._response = response

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._response.stream:
                yield chunk
        except FAILURES as error:
            _log.debug("a response broke off: %s", type(error).__name__)

    async def aclose(self) -> None:
        await self._response.aclose()
