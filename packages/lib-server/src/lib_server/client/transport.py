"""Sends requests, and sends them again: every one of this client may be repeated."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from functools import partial
from typing import Any, Final, TypeVar
from urllib.parse import urlencode

import httpx2
from pydantic import BaseModel, ValidationError

from lib._util.clock import Clock
from lib.resilience import RetryPolicy, retry
from lib_server.client.errors import ClientError, error_of

M = TypeVar("M", bound=BaseModel)

CONNECT_S: Final = 10.0
ANSWER_S: Final = 60.0
SILENCE_S: Final = 45.0
"""Seconds without a byte, or a heart-beat, after which a stream counts as cut."""

_MAX_ERROR_BYTES: Final = 64 * 1024
_OK: Final = range(200, 300)


class Transport:
    """The connections of one client."""

    def __init__(
        self,
        base_url: str,
        *,
        api_key: str | None,
        http: httpx2.AsyncClient | None,
        retries: RetryPolicy,
        clock: Clock,
        random: Callable[[], float],
    ) -> None:
        """Prepare; see `Client`.

        Raises:
            ValueError: the URL has no scheme of HTTP.
        """
        if not base_url.startswith(("http://", "https://")):
            raise ValueError("expected a base_url such as 'http://127.0.0.1:8000'")
        self.retries = retries
        self.clock = clock
        self.random = random
        self._base_url = base_url.rstrip("/")
        self._headers = {} if api_key is None else {"authorization": f"Bearer {api_key}"}
        self._http = http
        self._is_own = http is None

    async def open(self) -> None:
        """Open the connections, in a thread: certificates are read."""
        if self._http is None:
            self._http = await asyncio.to_thread(partial(httpx2.AsyncClient, limits=_LIMITS))

    async def aclose(self) -> None:
        """Close the connections that are its own."""
        if self._is_own and self._http is not None:
            http, self._http = self._http, None
            await http.aclose()

    async def read(self, answer: type[M], method: str, path: str, **request: Any) -> M:
        """Send a request, again where that may help, and return what is answered.

        Raises:
            ClientError: it was refused, or no answer came.
        """
        content = await self.send(method, path, **request)
        try:
            return answer.model_validate_json(content)
        except ValidationError:
            raise ClientError(f"the answer to {method} is no {answer.__name__}") from None

    async def send(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: BaseModel | None = None,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        answer_s: float = ANSWER_S,
    ) -> bytes:
        """Send a request, again where that may help, and return the content of the answer.

        Raises:
            ClientError: it was refused, or no answer came.
        """
        sent = dict(headers or {})
        if body is not None:
            content = body.model_dump_json(exclude_none=True).encode()
            sent["content-type"] = "application/json"
        target = _with_query(path, query)

        async def attempt() -> bytes:
            request = self._request(method, target, sent, content, answer_s)
            async with _good_answer(self._client, request) as answer:
                try:
                    return await answer.aread()
                except httpx2.HTTPError as error:
                    raise no_answer(error) from None

        return await retry(attempt, policy=self.retries, clock=self.clock, random=self.random)

    @asynccontextmanager
    async def stream(
        self, path: str, headers: Mapping[str, str]
    ) -> AsyncGenerator[httpx2.Response]:
        """Yield the answer to one attempt at a stream, as soon as its headers are there.

        Raises:
            ClientError: it was refused, or no answer came.
        """
        request = self._request("GET", path, headers, None, SILENCE_S)
        async with _good_answer(self._client, request) as answer:
            yield answer

    @property
    def _client(self) -> httpx2.AsyncClient:
        if self._http is None:
            raise RuntimeError("expected an open client: async with Client(…) as client")
        return self._http

    def _request(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        content: bytes | None,
        answer_s: float,
    ) -> httpx2.Request:
        timeout = httpx2.Timeout(answer_s, connect=CONNECT_S)
        return self._client.build_request(
            method,
            f"{self._base_url}{path}",
            headers={**self._headers, **headers},
            content=content,
            timeout=timeout,
        )


_LIMITS: Final = httpx2.Limits(max_connections=1000, max_keepalive_connections=100)


@asynccontextmanager
async def _good_answer(
    client: httpx2.AsyncClient, request: httpx2.Request
) -> AsyncGenerator[httpx2.Response]:
    """Yield a good answer, whose content is still on its way, and close it.

    Raises:
        ClientError: it is none, or none came.
    """
    try:
        answer = await client.send(request, stream=True, follow_redirects=False)
    except httpx2.HTTPError as error:
        raise no_answer(error) from None
    try:
        if answer.status_code not in _OK:
            content = await _start_of(answer)
            raise error_of(answer.status_code, answer.headers, content)
        yield answer
    finally:
        await answer.aclose()


async def _start_of(answer: httpx2.Response) -> bytes:
    """Return as much of an error as is worth reading."""
    content = b""
    try:
        async with aclosing(answer.aiter_bytes()) as chunks:
            async for chunk in chunks:
                content += chunk
                if len(content) > _MAX_ERROR_BYTES:
                    break
    except httpx2.HTTPError:  # its status says enough
        pass
    return content


def no_answer(error: httpx2.HTTPError) -> ClientError:
    """Return the error of a request without a whole answer; addresses stay out of it."""
    return ClientError(f"no whole answer came ({type(error).__name__})", retryable=True)


def _with_query(path: str, query: Mapping[str, Any] | None) -> str:
    found = {
        name: str(value).lower() if isinstance(value, bool) else value
        for name, value in (query or {}).items()
        if value is not None
    }
    return f"{path}?{urlencode(found)}" if found else path
