"""An answer whose headers have come, with a body still to be read."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Iterable, Sequence
from typing import Any, Final, Protocol

from lib._util.clock import SYSTEM_CLOCK
from lib.errors import FetchBlocked, ToolError
from lib.tools.builtin.fetch.url import Target

Headers = Sequence[tuple[bytes, bytes]]

CHUNKS_PER_TURN: Final = 32
"""After how many chunks, which may have one byte each, other tasks have a turn."""

MAX_HEADERS: Final = 256
MAX_HEADER_BYTES: Final = 64 * 1024

_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_MEDIA_TYPE: Final = re.compile(r"[a-z0-9!#$&^_.+-]{1,64}/[a-z0-9!#$&^_.+-]{1,100}", re.ASCII)
_CHARSET: Final = re.compile(
    r";\s*charset\s*=\s*(?:\"([^\"\\;]{1,64})\"|'([^'\\;]{1,64})'|([^\s\"';]{1,64}))",
    re.IGNORECASE | re.ASCII,
)


class Sender(Protocol):
    """Asks for a URL that has passed the rules; see `Network` and `CustomTransport`."""

    failures: tuple[type[Exception], ...]

    async def ask(self, target: Target, headers: Headers, *, connect_timeout_s: float) -> Answer:
        """Send a GET request and return the answer when its headers are there."""
        ...

    async def aclose(self) -> None:
        """Close what is open."""
        ...


class Answer:
    """Status, headers and a body to read; to be closed."""

    def __init__(
        self,
        status: int,
        headers: Iterable[tuple[bytes, bytes]],
        stream: AsyncIterable[bytes] | Any,
        close: Callable[[], Awaitable[None]],
    ) -> None:
        """Take what came."""
        self.status = status
        self._headers = [(name.lower(), value) for name, value in headers]
        self._stream = stream
        self.aclose = close

    def check(self) -> None:
        """Pass an answer whose headers are of a usual size.

        Raises:
            ToolError: it has too many, or the status is none of a final answer.
        """
        size = sum(len(name) + len(value) for name, value in self._headers)
        if len(self._headers) > MAX_HEADERS or size > MAX_HEADER_BYTES:
            raise ToolError("too_large", "the server's answer has too many headers")
        if not 200 <= self.status <= 599:  # noqa: PLR2004 - what HTTP has
            raise ToolError("failed", "the server's answer is not valid HTTP")

    def values(self, name: bytes) -> list[str]:
        """Return what the headers of this name say, each once."""
        return list(dict.fromkeys(self.lines(name)))

    def lines(self, name: bytes) -> list[str]:
        """Return what the headers of this name say, as often as they say it."""
        found = [value for header, value in self._headers if header == name]
        return [value.decode("latin-1").strip() for value in found]

    @property
    def location(self) -> str | None:
        """The target of a redirect, None if the answer is none.

        Raises:
            FetchBlocked: that can be read in more than one way.
            ToolError: it does not say where to.
        """
        if self.status not in _REDIRECTS:
            return None
        found = [value for header, value in self._headers if header == b"location"]
        if not found:
            raise ToolError("failed", f"the server answered {self.status} and not where to")
        if len(found) > 1:
            raise FetchBlocked("a redirect to two places")
        try:
            return found[0].decode("utf-8")
        except UnicodeDecodeError:
            return "\x00"  # which no URL may hold

    @property
    def content_type(self) -> tuple[str, str | None]:
        """The media type in lower case, "" without the header, and the charset as it is called.

        Raises:
            FetchBlocked: there are two different ones, or it cannot be read.
        """
        found = self.values(b"content-type")
        media_types = {value.partition(";")[0].strip().lower() for value in found}
        if not media_types:
            return "", None
        media_type = media_types.pop()
        if media_types or not _MEDIA_TYPE.fullmatch(media_type):
            raise FetchBlocked("a content type that cannot be read")
        charset = next(filter(None, map(_CHARSET.search, found)), None)
        return media_type, next(filter(None, charset.groups())).lower() if charset else None

    async def chunks(self) -> AsyncGenerator[bytes]:
        """Yield the body as it was sent, and give other tasks a turn now and then."""
        stream, number = aiter(self._stream), 0
        try:
            async for chunk in stream:
                yield chunk
                number += 1
                if number % CHUNKS_PER_TURN == 0:
                    await SYSTEM_CLOCK.sleep(0)  # chunks that have come are read without a pause
        finally:
            close = getattr(stream, "aclose", None)  # an iterator need not have it
            if close is not None:
                await close()
