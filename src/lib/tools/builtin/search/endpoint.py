"""One GET of JSON from a search server, with bounds, and failures that a model may read."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, cast
from urllib.parse import quote, urlencode, urlsplit

from lib._util.json import parse
from lib._util.version import __version__
from lib.errors import RemoteError
from lib.http.client import Answer, HTTPClient
from lib.tools.builtin.search.provider import SearchFailedError

_log = logging.getLogger(__name__)

MAX_BODY_BYTES: Final = 2_000_000
_GRACE_S: Final = 5.0
_ODD: Final = re.compile(r"[\s\\\x00-\x1f\x7f]")


class _TooLarge(RemoteError):
    pass


@dataclass(frozen=True, slots=True)
class Answered:
    """The answer of a server; of an error, with the start of the body."""

    status: int
    headers: Mapping[str, str]
    media_type: str
    body: bytes

    def json(self) -> dict[str, Any] | None:
        """Return the body as a JSON object, None if it is none or says that it is none."""
        if self.media_type and not self.media_type.endswith(("/json", "+json")):
            return None
        try:
            value = parse(self.body)
        except (ValueError, RecursionError):
            return None
        return cast(dict[str, Any], value) if isinstance(value, dict) else None


class Endpoint:
    """A URL that answers searches. Redirects are not followed, and cookies not kept."""

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str],
        *,
        what: str,
        timeout_s: float,
        transport: Any = None,
        environment_proxy: bool = False,
    ) -> None:
        """Prepare; nothing is opened yet.

        Args:
            url: without a query.
            headers: of every request.
            what: what it is called in messages.
            timeout_s: seconds for a whole search; see `deadline`.
            transport: an httpx2 or httpx transport instead of the network.
            environment_proxy: whether a proxy of the environment is used.

        Raises:
            ValueError: `timeout_s` is not above 0.
        """
        if not timeout_s > 0:
            raise ValueError(f"timeout_s is above 0 seconds, not {timeout_s}")
        self._url, self._what, self._timeout_s = url, what, timeout_s
        self._headers = {
            # Not "python...", which the limiter of SearXNG turns away.
            "user-agent": f"lib-agents/{__version__}",
            "accept-encoding": "gzip, deflate",
            **headers,
        }
        self._http = HTTPClient(
            transport=transport,
            environment_proxy=environment_proxy,
            timeout_s=timeout_s + _GRACE_S,  # the deadline counts, not this
            max_bytes=MAX_BODY_BYTES,
            failure=RemoteError,
            unreadable=_TooLarge,
        )

    @asynccontextmanager
    async def deadline(self) -> AsyncGenerator[None]:
        """Bound what is done inside, all attempts together.

        Raises:
            ToolError: it took longer.
        """
        try:
            async with asyncio.timeout(self._timeout_s):
                yield
        except TimeoutError:
            message = f"{self._what} did not answer within {self._timeout_s:g} s"
            raise SearchFailedError("timeout", message) from None

    async def get(self, parameters: Mapping[str, str]) -> Answered:
        """Ask once and return the answer, whatever its status.

        Raises:
            ToolError: no answer came, or one that is too large.
        """
        url = f"{self._url}?{urlencode(parameters, quote_via=quote)}"
        try:
            async with self._http.request("GET", url, self._headers) as answer:
                body = await _body(answer)
                return Answered(answer.status, answer.headers, answer.media_type, body)
        except _TooLarge:
            message = f"{self._what} answered with more than {MAX_BODY_BYTES} bytes"
            raise SearchFailedError("too_large", message) from None
        except RemoteError as error:
            # The cause may name addresses: it stays out of the message and of the traceback.
            _log.debug("%s: %s", self._what, error, exc_info=error)
            raise SearchFailedError("unavailable", f"{self._what} could not be reached") from None

    async def aclose(self) -> None:
        """Close the connections of this event loop."""
        await self._http.aclose()


async def _body(answer: Answer) -> bytes:
    if answer.status == 200:  # noqa: PLR2004 - HTTP
        return await answer.read()
    return await answer.read_start()


def checked_address(base_url: str) -> str:
    """Return the address without a final slash.

    Raises:
        ValueError: it is no plain http or https address. The message does not repeat it.
    """
    message = "base_url is an http or https address such as http://127.0.0.1:8080, without a query"
    try:
        parts = urlsplit(base_url)
        usable = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:
        raise ValueError(message) from None
    if not usable or parts.query or parts.fragment or _ODD.search(base_url):
        raise ValueError(message)
    if "@" in parts.netloc:
        raise ValueError("base_url holds a user or a password, which would end up in logs")
    return base_url.rstrip("/?#")
