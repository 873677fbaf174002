"""One address of a model server: JSON goes in, JSON comes out, what may pass is tried again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar, cast

from lib._util.clock import Clock
from lib._util.json import parse
from lib.errors import InvalidReply, LLMError
from lib.resilience import RetryPolicy, retry
from lib.wire.failures import status_error, told_error
from lib.wire.http import Wire

T = TypeVar("T")

_OK: Final = 200


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
            ValueError: both `http` and `transport` are given.
        """
        self._url = url
        self._headers = {**headers, "accept": "application/json"}
        self._wire = Wire(
            http=http,
            transport=transport,
            timeout_s=timeout_s,
            max_bytes=max_bytes,
            failure=LLMError,
            unreadable=InvalidReply,
        )
        self._retries, self._clock, self._jitter = retries, clock, jitter

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

        async def attempt() -> T:
            answer = await self._post(content)
            return await asyncio.to_thread(lambda: read(_fields(answer)))

        return await retry(attempt, policy=self._retries, clock=self._clock, random=self._jitter)

    async def aclose(self) -> None:
        """Close the connections that it has opened."""
        await self._wire.aclose()

    async def _post(self, content: bytes) -> bytes:
        async with self._wire.post(self._url, content, self._headers) as answer:
            if answer.status != _OK:
                start = await answer.read_start()
                raise status_error(
                    answer.status, start, answer.headers, self._clock.now(), LLMError
                )
            if answer.media_type == "text/html":
                raise InvalidReply("the server answered with a web page: check base_url")
            return await answer.read()


def _fields(content: bytes) -> dict[str, Any]:
    """Return the answer's fields; an answer that is JSON but no object has none."""
    try:
        body = parse(content)
    except (ValueError, RecursionError):
        raise InvalidReply("the server's answer is not JSON", retryable=True) from None
    if not isinstance(body, dict):
        return {}
    if cast(dict[str, Any], body).get("error"):  # some servers write `null` where there is none
        raise told_error(cast(Any, body), LLMError)
    return cast(dict[str, Any], body)
