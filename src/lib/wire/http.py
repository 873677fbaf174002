"""HTTP with bounds: one deadline over the whole answer, a limit on its size, typed failures.

Nothing here knows a provider. httpx2 is imported with the first request.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Awaitable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

from lib.errors import RemoteError

T = TypeVar("T")

CONNECT_S: Final = 10.0
MAX_CONNECTIONS: Final = 1_000
MAX_IDLE_CONNECTIONS: Final = 100
MAX_ERROR_BYTES: Final = 64 * 1024


class Wire:
    """Posts requests. Closing it closes its connections, unless they are somebody else's."""

    def __init__(
        self,
        *,
        http: Any = None,
        transport: Any = None,
        timeout_s: float,
        max_bytes: int,
        failure: type[RemoteError],
        unreadable: type[RemoteError],
    ) -> None:
        """Prepare; nothing is opened yet.

        Args:
            http: an `httpx2.AsyncClient` to use, which stays the caller's.
            transport: an httpx2 transport to make an own client with.
            timeout_s: seconds, for each whole answer.
            max_bytes: of an answer's content.
            failure: the error of a call that brought no whole answer.
            unreadable: the error of an answer that is too large.

        Raises:
            ValueError: both `http` and `transport` are given.
        """
        if http is not None and transport is not None:
            raise ValueError("give http or transport, not both")
        self._client, self._transport = http, transport
        self._owned = http is None
        self.timeout_s, self.max_bytes = timeout_s, max_bytes
        self._failure, self._unreadable = failure, unreadable

    @asynccontextmanager
    async def post(
        self, url: str, content: bytes, headers: Mapping[str, str]
    ) -> AsyncGenerator[Answer]:
        """Post and give the answer, whatever its status, as soon as its headers are there.

        Raises:
            RemoteError: no answer came, retryable where another attempt may bring one.
        """
        async with self.request("POST", url, headers, content) as answer:
            yield answer

    @asynccontextmanager
    async def request(
        self, method: str, url: str, headers: Mapping[str, str], content: bytes | None = None
    ) -> AsyncGenerator[Answer]:
        """Do the same with another method than POST."""
        client = await self._opened()
        guard = _Guard(self.timeout_s, _package(client), self._failure)
        request = client.build_request(method, url, content=content, headers=headers)
        response = await guard.run(client.send(request, stream=True, follow_redirects=False))
        try:
            yield Answer(response, guard, self.max_bytes, self._unreadable)
        finally:
            await response.aclose()

    async def aclose(self) -> None:
        """Close the connections; another request opens new ones."""
        if self._owned and self._client is not None:
            client, self._client = self._client, None
            await client.aclose()

    async def _opened(self) -> Any:
        if self._client is None:
            # In a thread: the import and the certificates come from files.
            client = await asyncio.to_thread(_make_client, self._transport, self.timeout_s)
            self._client = self._client or client  # another task may have been faster
        return self._client


class Answer:
    """An answer whose content is still on its way."""

    def __init__(
        self, response: Any, guard: _Guard, max_bytes: int, unreadable: type[RemoteError]
    ) -> None:
        """Wrap a response; `Wire.post` does."""
        self.status: int = response.status_code
        self.headers: Mapping[str, str] = response.headers
        self._chunks = response.aiter_bytes()
        self._guard = guard
        self._max_bytes = self._left = max_bytes
        self._unreadable = unreadable

    @property
    def media_type(self) -> str:
        """The content's media type, in lower case and without parameters."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    async def chunk(self) -> bytes | None:
        """Return the next bytes, None at the end.

        Raises:
            RemoteError: the connection broke, the deadline has passed, or there is more content
                than allowed.
        """
        chunk: bytes | None = await self._guard.run(anext(self._chunks, None))
        self._left -= len(chunk or b"")
        if self._left < 0:
            raise self._unreadable(f"the server's answer is larger than {self._max_bytes} bytes")
        return chunk

    async def read(self) -> bytes:
        """Return the whole content."""
        chunks: list[bytes] = []
        while (chunk := await self.chunk()) is not None:
            chunks.append(chunk)
        return b"".join(chunks)

    async def read_start(self) -> bytes:
        """Return the first bytes of an error's content; what cannot be read is left out."""
        content = b""
        try:
            while len(content) < MAX_ERROR_BYTES and (chunk := await self.chunk()) is not None:
                content += chunk
        except RemoteError:
            pass  # the status says enough
        return content[:MAX_ERROR_BYTES]

    async def drain(self, limit_s: float) -> None:
        """Read to the end, so that the connection can serve again; give up after `limit_s`."""
        try:
            async with asyncio.timeout(limit_s):
                while await self.chunk() is not None:
                    pass
        except (RemoteError, TimeoutError):
            pass  # then it is closed, which costs the next request a handshake


class _Guard:
    """Waits for the network until the deadline, and names what goes wrong there."""

    def __init__(self, timeout_s: float, package: Any, failure: type[RemoteError]) -> None:
        self._timeout_s = timeout_s
        self._deadline = asyncio.get_running_loop().time() + timeout_s
        self._package, self._failure = package, failure

    async def run(self, waiting: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout_at(self._deadline):
                return await waiting
        except TimeoutError:
            raise self._failure(
                f"no complete answer within {self._timeout_s:g} s", retryable=True
            ) from None
        except self._package.HTTPError as error:
            raise self._failure(
                f"the connection to the server failed: {type(error).__name__}",
                retryable=type(error).__name__ not in _PERMANENT,
            ) from error


_PERMANENT: Final = frozenset({"UnsupportedProtocol", "LocalProtocolError", "DecodingError"})


def _make_client(transport: Any, timeout_s: float) -> Any:
    package = _package(transport)
    return package.AsyncClient(
        transport=transport,
        timeout=package.Timeout(timeout_s, connect=min(timeout_s, CONNECT_S)),
        limits=package.Limits(
            max_connections=MAX_CONNECTIONS, max_keepalive_connections=MAX_IDLE_CONNECTIONS
        ),
    )


def _package(of: Any) -> Any:
    """Return the package that the client or transport belongs to: httpx2, or the older httpx."""
    for base in type(of).__mro__:
        name = base.__module__.partition(".")[0]
        if name in {"httpx", "httpx2"}:
            return sys.modules[name]
    import httpx2  # noqa: PLC0415 - loaded with the first request

    return httpx2
