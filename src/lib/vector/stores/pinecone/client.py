"""One request to Pinecone: JSON goes in, JSON comes out, what may pass is tried again."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

from lib._util.clock import Clock
from lib._util.json import parse
from lib.errors import StoreUnavailable
from lib.http.client import HTTPClient
from lib.http.failures import RETRYABLE, retry_after_s
from lib.resilience import RetryPolicy, retry

API_VERSION: Final = "2025-10"
"""Indexes are made by dimension and metric; from 2026-07 on by a schema, and then refuse vectors.

Source: https://docs.pinecone.io/reference/api/versioning, and the release notes of 2026-07.
"""
MAX_REPLY_BYTES: Final = 64 << 20
TIMEOUT_S: Final = 60.0

_HINTS: Final = {
    401: "check the API key",
    403: "check what the API key may do",
    404: "there is no such index",
    413: "the request is too large",
}
_NO_NAMESPACE: Final = b"namespace"


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer of status 2xx.

    Attributes:
        body: its JSON.
        headers: names in any case.
    """

    body: dict[str, Any]
    headers: Mapping[str, str]


class NoNamespace(StoreUnavailable):
    """The requested namespace holds nothing, which Pinecone answers with 404."""


class Api:
    """Asks Pinecone. No error tells the key, or what was sent or answered."""

    def __init__(
        self,
        api_key: str,
        *,
        client: Any,
        retries: RetryPolicy,
        clock: Clock,
        jitter: Callable[[], float],
    ) -> None:
        """Prepare; nothing is opened yet.

        Args:
            api_key: of the project.
            client: an `httpx2.AsyncClient` to use, or None for an own one.
            retries: how often and how long to try.
            clock: measures and waits between attempts.
            jitter: returns numbers from 0 up to 1, to spread the waits.
        """
        self._headers = {
            "api-key": api_key,
            "x-pinecone-api-version": API_VERSION,
            "accept": "application/json",
            "content-type": "application/json",
        }
        self._http = HTTPClient(
            http=client,
            timeout_s=TIMEOUT_S,
            max_bytes=MAX_REPLY_BYTES,
            failure=StoreUnavailable,
            unreadable=StoreUnavailable,
        )
        self._retries, self._clock, self._jitter = retries, clock, jitter

    async def get(self, url: str, **parameters: Any) -> Reply:
        """Ask; every call may be repeated, so it is where that can help.

        Raises:
            NoNamespace: Pinecone knows the index, but not the namespace.
            StoreUnavailable: it refuses, or cannot be reached; `retryable` if it may pass.
        """
        query = urlencode(
            {name: value for name, value in parameters.items() if value is not None}, doseq=True
        )
        return await self._retried("GET", f"{url}?{query}" if query else url, None)

    async def post(self, url: str, content: bytes) -> Reply:
        """Send JSON, with the same errors; every call may be repeated."""
        return await self._retried("POST", url, content)

    async def aclose(self) -> None:
        """Close the connections, unless they are the caller's."""
        await self._http.aclose()

    async def _retried(self, method: str, url: str, content: bytes | None) -> Reply:
        async def attempt() -> Reply:
            return await self._once(method, url, content)

        return await retry(attempt, policy=self._retries, clock=self._clock, random=self._jitter)

    async def _once(self, method: str, url: str, content: bytes | None) -> Reply:
        async with self._http.request(method, url, self._headers, content) as answer:
            if not 200 <= answer.status < 300:  # noqa: PLR2004 - HTTP
                start = await answer.read_start()
                wait_s = retry_after_s(answer.headers, self._clock.now())
                raise _refusal(answer.status, start, wait_s)
            return Reply(_object(await answer.read()), answer.headers)


def _refusal(status: int, start: bytes, wait_s: float | None) -> StoreUnavailable:
    if status == 404 and _NO_NAMESPACE in start.lower():  # noqa: PLR2004 - HTTP
        return NoNamespace("there is no such namespace", status=status)
    hint = f": {_HINTS[status]}" if status in _HINTS else ""
    return StoreUnavailable(
        f"Pinecone answered {status}{hint}",
        status=status,
        retryable=status in RETRYABLE or status >= 500,  # noqa: PLR2004 - HTTP
        retry_after_s=wait_s,
    )


def _object(content: bytes) -> dict[str, Any]:
    try:
        body = parse(content or b"{}")
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        raise StoreUnavailable("Pinecone's answer is not a JSON object", retryable=True)
    return body  # pyright: ignore[reportUnknownVariableType] - JSON


def checked_key(api_key: str | None) -> str:
    """Return `api_key`, or the key of the environment.

    Raises:
        ValueError: there is none, or it cannot be one.
    """
    key = (api_key or os.environ.get("PINECONE_API_KEY") or "").strip()
    if not key:
        raise ValueError("PineconeVectorStore needs a key: set PINECONE_API_KEY or pass api_key=")
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise ValueError("the API key holds characters that no key has")
    return key


def checked_host(host: str, what: str) -> str:
    """Return the address of a host, which may be whole already.

    Raises:
        ValueError: it is none.
    """
    address = host if "://" in host else f"https://{host}"
    parts = urlsplit(address)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query:
        raise ValueError(f"{what} is a host or an https address, got {host!r}")
    return address.rstrip("/")
