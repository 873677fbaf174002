"""Model servers over HTTP, as embedders and rerankers use them: addresses, keys, one request.

JSON goes in, JSON comes out; failures that may pass are retried.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Mapping
from copy import copy
from typing import Any, Final, TypeVar, cast

from lib._util.clock import Clock
from lib._util.json import parse
from lib.errors import InvalidReply, LLMError
from lib.http.client import HTTPClient
from lib.http.failures import reported_error, status_error
from lib.llm.api.endpoint import server_address, server_headers
from lib.resilience import RetryPolicy, retry
from lib.resilience.protect import Protection
from lib.resilience.services import elsewhere

T = TypeVar("T")

COHERE_URL: Final = "https://api.cohere.com"
VOYAGE_URL: Final = "https://api.voyageai.com"
_ATLAS_URL: Final = "https://ai.mongodb.com"
_ATLAS_KEY: Final = "al-"
_OK: Final = 200
_BYTES_PER_TOKEN: Final = 4


def cohere_account(
    what: str, path: str, api_key: str | None, base_url: str
) -> tuple[str, dict[str, str]]:
    """Return the URL of one of Cohere's endpoints and the headers of its requests.

    Args:
        what: the class that needs the key, for the error.
        path: of the endpoint, such as "/v2/rerank".
        api_key: defaults to CO_API_KEY, then COHERE_API_KEY.
        base_url: where it is Cohere's own, CO_API_URL counts.

    Raises:
        ValueError: there is no key, or a key or address that cannot be one.

    Source: Cohere's Python SDK 7.3, `client.py`.
    """
    key = _key(what, api_key, "CO_API_KEY", "COHERE_API_KEY")
    if base_url == COHERE_URL:
        base_url = os.environ.get("CO_API_URL") or COHERE_URL
    return _account(base_url, path, key)


def voyage_account(
    what: str, path: str, api_key: str | None, base_url: str
) -> tuple[str, dict[str, str]]:
    """Return the URL of one of Voyage's endpoints and the headers of its requests.

    Args:
        what: the class that needs the key, for the error.
        path: of the endpoint, such as "/v1/rerank".
        api_key: defaults to VOYAGE_API_KEY.
        base_url: where it is Voyage's own, keys of MongoDB Atlas ("al-...") go to MongoDB.

    Raises:
        ValueError: there is no key, or a key or address that cannot be one.

    Source: Voyage's Python SDK 0.5, `util.py`.
    """
    key = _key(what, api_key, "VOYAGE_API_KEY")
    if base_url == VOYAGE_URL and key.startswith(_ATLAS_KEY):
        base_url = _ATLAS_URL
    return _account(base_url, path, key)


def _key(what: str, api_key: str | None, *names: str) -> str:
    for key in (api_key, *map(os.environ.get, names)):
        if key and key.strip():
            return key.strip()
    raise ValueError(f"{what} needs a key: set {names[0]} or pass api_key=")


def _account(base_url: str, path: str, key: str) -> tuple[str, dict[str, str]]:
    if not base_url:
        raise ValueError("base_url is empty: leave it out, or give an http or https address")
    address, host = server_address(base_url)
    version = path[: path.index("/", 1)]  # some write it into the address, as the SDKs do
    return address.removesuffix(version) + path, server_headers(key, host)


class ModelServer:
    """Asks one address. It tells on neither the key nor what was sent, in no error."""

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str],
        *,
        timeout_s: float,
        max_bytes: int,
        retries: RetryPolicy,
        clock: Clock,
        jitter: Callable[[], float],
        http: Any = None,
        transport: Any = None,
    ) -> None:
        """Prepare; nothing is opened before the first call.

        Args:
            url: where to post.
            headers: of every request, the key's included.
            timeout_s: seconds for each whole answer.
            max_bytes: of an answer's content.
            retries: how often and how long to try.
            clock: measures and waits between attempts.
            jitter: returns numbers from 0 up to 1, to spread the waits.
            http: an `httpx2.AsyncClient` to use; it is not closed.
            transport: an httpx2 transport to make an own client with.

        Raises:
            ValueError: there are both `http` and `transport`.
        """
        self._url = url
        self._headers = {**headers, "accept": "application/json"}
        self._http = HTTPClient(
            http=http,
            transport=transport,
            timeout_s=timeout_s,
            max_bytes=max_bytes,
            failure=LLMError,
            unreadable=InvalidReply,
        )
        self._retries, self._clock, self._jitter = retries, clock, jitter
        self._protection: Protection | None = None

    def protected(self, protection: Protection) -> ModelServer:
        """Return the same server behind a breaker and a limiter: each request is one attempt."""
        server = copy(self)
        server._protection = protection  # noqa: SLF001 - a copy of its own
        return server

    async def ask(self, body: Mapping[str, Any], read: Callable[[dict[str, Any]], T]) -> T:
        """Return what `read` makes of the answer.

        Args:
            body: sent as JSON; a lone surrogate becomes a question mark.
            read: called in a thread; what it raises is tried again if that says so.

        Raises:
            LLMError: the server refuses, or cannot be reached; `retryable` if it may pass.
            InvalidReply: its answer cannot be read.
        """
        # Strict servers refuse a whole request for a lone surrogate in one text.
        content = json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")

        def make(answer: bytes) -> tuple[T, int | None]:
            fields = _fields(answer)
            return read(fields), _used(fields)

        async def attempt() -> T:
            if self._protection is None:
                return (await asyncio.to_thread(make, await self._post(content)))[0]
            async with self._protection.attempt(len(content) // _BYTES_PER_TOKEN) as made:
                result, made.tokens = await asyncio.to_thread(make, await self._post(content))
            return result

        return await retry(
            attempt,
            policy=self._retries,
            clock=self._clock,
            random=self._jitter,
            is_retryable=elsewhere(),  # a refusal is for the caller, who may know another server
        )

    async def aclose(self) -> None:
        """Close the connections that it has opened."""
        await self._http.aclose()

    async def _post(self, content: bytes) -> bytes:
        async with self._http.post(self._url, content, self._headers) as answer:
            if answer.status != _OK:
                start = await answer.read_start()
                raise status_error(
                    answer.status, start, answer.headers, self._clock.now(), LLMError
                )
            if answer.media_type == "text/html":
                raise InvalidReply("the server answered with a web page: check base_url")
            return await answer.read()


def _used(answer: Mapping[str, Any]) -> int | None:
    """Return the tokens that an answer says were used, None if it says nothing."""
    usage = answer.get("usage")
    total = cast("dict[str, Any]", usage).get("total_tokens") if isinstance(usage, dict) else None
    return total if isinstance(total, int) and total > 0 else None


def _fields(content: bytes) -> dict[str, Any]:
    """Return the answer's fields; an answer that is JSON but no object has none."""
    try:
        body = parse(content)
    except (ValueError, RecursionError):
        raise InvalidReply("the server's answer is not JSON", retryable=True) from None
    if not isinstance(body, dict):
        return {}
    if cast(dict[str, Any], body).get("error"):  # some servers write `null` where there is none
        raise reported_error(cast(Any, body), LLMError)
    return cast(dict[str, Any], body)
