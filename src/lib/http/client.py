"""A client with bounds: one deadline over the whole answer, a limit on its size, typed failures.

Nothing here knows a provider. httpx2 is imported with the first request.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Awaitable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any, Final, TypeVar

from lib.errors import RemoteError
from lib.http.lifetime import LoopClient, watch

T = TypeVar("T")

CONNECT_S: Final = 10.0
MAX_CONNECTIONS: Final = 1_000
MAX_IDLE_CONNECTIONS: Final = 100
MAX_ERROR_BYTES: Final = 64 * 1024


class HTTPClient:
    """Posts requests and keeps no cookies. Closing it closes the connections that are its own.

    Connections belong to the event loop that opened them, so that each loop has its own. They are
    closed with the loop (by `asyncio.run` and all that shut down asynchronous generators). One on
    which anything is left after an answer is closed at once.
    """

    def __init__(
        self,
        *,
        http: Any = None,
        transport: Any = None,
        timeout_s: float,
        idle_timeout_s: float | None = None,
        max_bytes: int,
        failure: type[RemoteError],
        unreadable: type[RemoteError],
        environment_proxy: bool = True,
    ) -> None:
        """Prepare; nothing is opened yet.

        Args:
            http: an `httpx2.AsyncClient` to use, which stays the caller's; for one event loop.
            transport: an httpx2 transport to make an own client with; it is closed with it.
            timeout_s: seconds, for each whole answer.
            idle_timeout_s: seconds between two pieces of an answer's content; None for no limit.
            max_bytes: of an answer's content.
            failure: the error of a call that brought no whole answer.
            unreadable: the error of an answer that is too large.
            environment_proxy: whether an own client uses a proxy that the environment names.

        Raises:
            ValueError: both `http` and `transport` were passed.
            TypeError: `http` is no such client.
        """
        if http is not None and transport is not None:
            raise ValueError("pass http or transport, not both")
        if http is not None and not _is_client(http):
            raise TypeError(
                f"expected an httpx2.AsyncClient as http, got {type(http).__qualname__}"
            )
        self._client, self._transport = http, transport
        self._own: dict[asyncio.AbstractEventLoop, LoopClient] = {}
        self.timeout_s: float = timeout_s
        self._idle_timeout_s = idle_timeout_s
        self.max_bytes: int = max_bytes
        self._failure, self._unreadable = failure, unreadable
        self._environment_proxy = environment_proxy

    @asynccontextmanager
    async def post(
        self, url: str, content: bytes, headers: Mapping[str, str]
    ) -> AsyncGenerator[Answer]:
        """Yield the answer to a POST, whatever its status, as soon as its headers are there.

        Raises:
            RemoteError: no answer came, retryable where another attempt may bring one. Also for
                whatever else the caller's client raises, such as its hooks.
        """
        async with self.request("POST", url, headers, content) as answer:
            yield answer

    @asynccontextmanager
    async def request(
        self, method: str, url: str, headers: Mapping[str, str], content: bytes | None = None
    ) -> AsyncGenerator[Answer]:
        """Send with any method; see `post`.

        A header `authorization` wins over the `auth` of the caller's client.
        """
        own = self._own_client() if self._client is None else None
        # What is own is held until the end: without an owner, a client closes.
        client: Any = self._client if own is None else await own.opened()
        package = _package(client)
        guard = _Guard(self.timeout_s, package, self._failure, own=own is not None)
        if client.is_closed:
            raise self._failure("the client passed as http is closed")
        try:
            request = client.build_request(method, url, content=content, headers=headers)
        except (package.InvalidURL, UnicodeError):  # whose messages repeat parts of them
            raise self._failure("the server's address or a header is not valid") from None
        # The client's own `auth` would replace the header.
        auth: dict[str, Any] = {"auth": None} if _has_authorization(headers) else {}
        sending = client.send(request, stream=True, follow_redirects=False, **auth)
        response = await guard.run(sending)
        await watch(response)
        try:
            yield Answer(response, guard, self.max_bytes, self._unreadable, self._idle_timeout_s)
        finally:
            await response.aclose()

    async def aclose(self) -> None:
        """Close the connections of this event loop; another request opens new ones."""
        own = self._own.pop(asyncio.get_running_loop(), None)
        if own is not None:
            await own.aclose()

    def _own_client(self) -> LoopClient:
        loop = asyncio.get_running_loop()
        for ended in [each for each in list(self._own) if each.is_closed()]:
            self._own.pop(ended, None)
        if loop not in self._own:
            make = partial(
                _make_client,
                self._transport,
                self.timeout_s,
                environment_proxy=self._environment_proxy,
            )
            self._own[loop] = LoopClient(make)
        return self._own[loop]


class Answer:
    """An answer whose content is still on its way."""

    def __init__(
        self,
        response: Any,
        guard: _Guard,
        max_bytes: int,
        unreadable: type[RemoteError],
        idle_timeout_s: float | None,
    ) -> None:
        """Wrap a response; `HTTPClient.post` does."""
        self.status: int = response.status_code
        self.headers: Mapping[str, str] = response.headers
        self._chunks = response.aiter_bytes()
        self._guard = guard
        self._max_bytes = self._left = max_bytes
        self._unreadable = unreadable
        self._idle_timeout_s = idle_timeout_s

    @property
    def media_type(self) -> str:
        """The content's media type, in lower case and without parameters."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    async def chunk(self) -> bytes | None:
        """Return the next bytes, None at the end.

        Raises:
            RemoteError: the connection broke, the deadline has passed, nothing came for too long,
                or there is more content than allowed.
        """
        chunk: bytes | None = await self._guard.run(anext(self._chunks, None), self._idle_timeout_s)
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

    def __init__(
        self, timeout_s: float, package: Any, failure: type[RemoteError], *, own: bool
    ) -> None:
        self._timeout_s, self._own = timeout_s, own
        self._deadline = asyncio.get_running_loop().time() + timeout_s
        self._package, self._failure = package, failure

    async def run(self, waiting: Awaitable[T], idle_timeout_s: float | None = None) -> T:
        deadline, missing = self._deadline, f"no complete answer within {self._timeout_s:g} s"
        if idle_timeout_s is not None:
            idle = asyncio.get_running_loop().time() + idle_timeout_s
            if idle < deadline:
                deadline, missing = idle, f"nothing came for {idle_timeout_s:g} s in an answer"
        try:
            async with asyncio.timeout_at(deadline):
                return await waiting
        except TimeoutError:
            raise self._failure(missing, retryable=True) from None
        except self._package.HTTPError as error:
            raise self._failure(
                f"the connection to the server failed: {type(error).__name__}",
                retryable=type(error).__name__ not in _PERMANENT,
            ) from error
        except Exception as error:  # around a client: it may be closed meanwhile, or have hooks
            raise self._failure(
                f"the HTTP client failed: {type(error).__name__}",
                retryable=self._own or isinstance(error, OSError),
            ) from error


# Where HTTP_PROXY, HTTPS_PROXY and ALL_PROXY apply; without a transport, the client's own is used.
_PROXIED: Final = ("http://", "https://", "all://")
_PERMANENT: Final = frozenset({"UnsupportedProtocol", "LocalProtocolError", "DecodingError"})


def _is_client(http: Any) -> bool:
    return any(
        base.__name__ == "AsyncClient" and base.__module__.partition(".")[0] in {"httpx", "httpx2"}
        for base in type(http).__mro__
    )


def _has_authorization(headers: Mapping[str, str]) -> bool:
    return any(name.lower() == "authorization" for name in headers)


def _make_client(transport: Any, timeout_s: float, *, environment_proxy: bool) -> Any:
    package = _package(transport)
    return package.AsyncClient(
        transport=transport,
        mounts=None if environment_proxy else dict.fromkeys(_PROXIED),
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())),  # no server's are kept
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
