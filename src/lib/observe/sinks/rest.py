"""The REST side of a tracing backend, through which scores go.

JSON there and JSON back, over `lib.http`. Failures quote neither what was sent nor what came: both
can hold a key, a comment or a label.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

from lib._util.clock import Clock
from lib._util.json import canonical, parse
from lib._util.tasks import Calls
from lib.errors import ExportError, RemoteError
from lib.evals import Score
from lib.http.client import HTTPClient
from lib.http.failures import status_error

_MAX_BYTES: Final = 4 * 1024 * 1024
_REFUSED: Final = frozenset({400, 409, 413, 422})
"""The backend refuses what was sent; any other refusal is about how the sink is configured."""

_TIMEOUT_S: Final = 10.0
_AT_ONCE: Final = 16
"""How many scores may be under way at one backend."""

_JSON: Final = {"content-type": "application/json", "accept": "application/json"}


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer of a backend.

    Attributes:
        status: of HTTP.
        value: the content, None unless it is JSON.
    """

    status: int
    value: Any


class RestAPI:
    """Calls of one backend."""

    def __init__(
        self,
        backend: str,
        base_url: str,
        headers: Mapping[str, str],
        *,
        http: Any,
        clock: Clock,
    ) -> None:
        """Prepare; nothing is opened yet.

        Args:
            backend: its name, for messages.
            base_url: what paths are appended to, as `checked_url` returns it.
            headers: of every request, beside those of JSON.
            http: an `httpx2.AsyncClient` to use, which stays the caller's; None makes one.
            clock: the time against which a date in `Retry-After` counts.
        """
        self._backend, self._base_url, self._clock = backend, base_url, clock
        self._headers = {**_JSON, **headers}
        self._calls = Calls()
        self._http = HTTPClient(
            http=http,
            timeout_s=_TIMEOUT_S,
            max_bytes=_MAX_BYTES,
            failure=RemoteError,
            unreadable=RemoteError,
        )

    async def call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        also: Collection[int] = (),
    ) -> Reply:
        """Return the reply of one call, which is tried once.

        Args:
            method: of HTTP.
            path: from the base URL on.
            query: of the address.
            body: plain data, sent as JSON; None sends nothing.
            also: statuses that are no failure here, beside those from 200 to 299.

        Raises:
            ExportError: no answer, another status, or a body that is no JSON.
        """
        url = f"{self._base_url}{path}" + (f"?{urlencode(query)}" if query else "")
        content = None if body is None else _encoded(body)
        with self._calls.one():
            return await self._call(method, url, content, also)

    async def aclose(self) -> None:
        """Close the connections, unless they are the caller's; what is under way ends before."""
        await self._calls.ended(_TIMEOUT_S)
        await self._http.aclose()

    async def _call(
        self, method: str, url: str, content: bytes | None, also: Collection[int]
    ) -> Reply:
        try:
            async with self._http.request(method, url, self._headers, content) as answer:
                if answer.status // 100 == 2 or answer.status in also:  # noqa: PLR2004 - HTTP
                    return Reply(answer.status, _decoded(await answer.read()))
                start, headers = await answer.read_start(), answer.headers
                failed = status_error(answer.status, start, headers, self._clock.now(), RemoteError)
        except RemoteError as error:
            # Without its cause, which may repeat a header: the key.
            wrong = not error.retryable
            raise ExportError(
                f"{self._backend} gave no answer: {error}", permanent=wrong, setup=wrong
            ) from None
        raise ExportError(
            f"{self._backend} answered {failed.status}{_hint(failed.status)}",
            retry_after_s=failed.retry_after_s,
            permanent=not failed.retryable,
            setup=not failed.retryable and failed.status not in _REFUSED,
        )


async def send_each(scores: Sequence[Score], send: Callable[[Score], Awaitable[object]]) -> None:
    """Send scores: the first alone, then twice as many at once each time, up to 16.

    Two of one name are never under way together, since the later one counts. One that is refused
    for good holds none back.

    Raises:
        ExportError: one was not delivered: after the others if it is refused for what it is, else
            after those that were under way with it.
    """
    refused: ExportError | None = None
    sent, room = 0, 1
    while some := _different(scores[sent : sent + room]):
        results = await asyncio.gather(*map(send, some), return_exceptions=True)
        for index, error in enumerate(results, sent):
            if not isinstance(error, ExportError):
                _raise(error)
                continue
            error.taken_scores = index
            if error.setup or not error.permanent:
                if refused is not None:
                    error.add_note(f"a score before was refused for good: {refused}")
                raise error
            refused = refused or error
        sent, room = sent + len(some), min(2 * room, _AT_ONCE)
    if refused is not None:
        raise refused


def _different(scores: Sequence[Score]) -> Sequence[Score]:
    """Return the first scores of which no two have one name."""
    names = set[str]()
    for index, score in enumerate(scores):
        if score.name in names:
            return scores[:index]
        names.add(score.name)
    return scores


def _raise(result: object) -> None:
    """Raise what a call has raised."""
    if isinstance(result, BaseException):
        raise result


def checked_key(key: str, name: str) -> str:
    """Return a key that can stand in a header.

    Raises:
        ValueError: it is empty, or has other characters than those of ASCII that print.
    """
    if not key:
        raise ValueError(f"{name} is empty")
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise ValueError(f"{name} has a character that no key has, such as a space or a line break")
    return key


def checked_url(url: str, name: str) -> str:
    """Return a URL without a slash at its end.

    Raises:
        ValueError: it is no http or https URL, or has a user, a query or a fragment in it.
    """
    try:
        parts = urlsplit(url)
        named = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        named, parts = False, urlsplit("")
    if not named or "@" in parts.netloc or parts.query or parts.fragment:
        raise ValueError(
            f"{name} is not like https://host:port/path: keys go into parameters of their own"
        )
    return url.rstrip("/")


def address_of(url: str) -> str:
    """Return where a checked URL leads, without its scheme: host, port and path."""
    return url.partition("://")[2].lower()


def _encoded(body: Any) -> bytes:
    try:
        return canonical(body).encode()
    except (TypeError, ValueError, RecursionError):
        # Without its cause, which repeats the value.
        raise ExportError("the meta of a score is not JSON", permanent=True) from None


def _decoded(content: bytes) -> Any:
    try:
        return parse(content)
    except (ValueError, RecursionError):
        return None


_HINTS: Final[Mapping[int, str]] = {
    400: ": it refuses what was sent",
    401: ": check the key",
    403: ": check what the key may do",
    404: ": check the address",
    422: ": it refuses what was sent",
}


def _hint(status: int | None) -> str:
    if status is not None and status // 100 == 3:  # noqa: PLR2004 - HTTP
        return ", a redirect, which is not followed: give the address that it leads to"
    return _HINTS.get(status or 0, "")
