"""Sends spans over OTLP/HTTP, without a word of OpenTelemetry's packages.

The exporter of OpenTelemetry takes a redirect for success, and does not read that a backend has
dropped some spans; it blocks a thread, retries there and then says nothing of the reason. Here,
what did not arrive is an `ExportError`, and retrying is up to the caller.

Source: OTLP 1.10, "OTLP/HTTP Response" and "OTLP/HTTP Throttling".
"""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from lib._util.clock import SYSTEM_CLOCK, Clock
from lib._util.version import __version__
from lib.errors import ExportError, RemoteError
from lib.http.client import Answer, HTTPClient
from lib.http.failures import retry_after_s
from lib.observe.dialect import AttributeValue, Dialect
from lib.observe.otlp.answer import rejected_spans
from lib.observe.otlp.batches import FRAME_BYTES, SLICE_BYTES, Batches, Encoded
from lib.observe.otlp.calls import Calls
from lib.observe.otlp.encode import encode_request
from lib.observe.sink import OnTaken
from lib.observe.span import Span

_log = logging.getLogger("lib.observe")
GZIP_LEVEL: Final = 1
MAX_ANSWER_BYTES: Final = 4 << 20

_TOO_LARGE: Final = 413
_REFUSED: Final = frozenset({400, _TOO_LARGE, 422})
"""The backend has looked at these spans and does not want them; it may want others."""

_MAY_PASS: Final = frozenset({408, 425, 429})
_HINTS: Final[Mapping[int, str]] = {
    400: "a span is not what it expects",
    401: "check the API key",
    403: "check what the API key may do",
    404: "check the address",
    405: "check the address",
    413: "a request, or a span, is too large for it",
    415: "it does not take OTLP as protobuf",
    422: "a span is not what it expects",
}


class OTLPSender:
    """Posts spans to one address; may be used from several event loops and tasks at once."""

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str],
        http: Any = None,
        batch_size: int = 512,
        max_bytes: int = 4 << 20,
        timeout_s: float = 10.0,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Prepare; nothing is opened yet.

        Args:
            url: where spans are posted, such as `http://localhost:4318/v1/traces`.
            headers: sent with each request; where they name what is set here, they win.
            http: an `httpx2.AsyncClient` to use, which stays the caller's; for one event loop.
            batch_size: the most spans of a request.
            max_bytes: the most bytes of a request, before it is compressed; a span that has more
                travels alone.
            timeout_s: seconds, for each request with its answer.
            clock: for dates in `Retry-After`, and to let others have their turn.

        Raises:
            ValueError: the address is not one of http or https, or a limit is not above zero.
            TypeError: `http` is no such client.
        """
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ValueError("the address of an OTLP backend begins with http:// or https://")
        if min(batch_size, max_bytes, timeout_s) <= 0:
            raise ValueError("batch_size, max_bytes and timeout_s are above zero")
        self._url, self._batch_size, self._max_bytes = url, batch_size, max_bytes
        self._server = parts.netloc.rpartition("@")[2]  # a key may stand before its host
        self._clock, self._timeout_s, self._calls = clock, timeout_s, Calls()
        self._headers = {
            "content-type": "application/x-protobuf",
            "content-encoding": "gzip",
            "user-agent": f"lib-agents/{__version__}",
            **{name.lower(): value for name, value in headers.items()},
        }
        self._http = HTTPClient(
            http=http,
            timeout_s=timeout_s,
            max_bytes=MAX_ANSWER_BYTES,
            failure=RemoteError,
            unreadable=RemoteError,
        )

    async def send(
        self,
        spans: Sequence[Span],
        *,
        dialect: Dialect,
        resource: Mapping[str, AttributeValue],
        on_taken: OnTaken | None = None,
    ) -> None:
        """Send spans in their order, in as many requests as it takes, one after the other.

        Nothing is sent twice by it, but for a request that is too large for the backend: its spans
        follow in two halves. Where the backend refuses the spans of a request and may take others,
        the rest is sent before the error is raised; any other failure ends it at once.

        Args:
            spans: to send; none sends nothing.
            dialect: names their attributes.
            resource: attributes of what they come from.
            on_taken: called with the ids of the spans of each accepted request, so that a caller
                that cancels this knows them.

        Raises:
            ExportError: not all were taken. Those named in `taken` are not to be sent again: they
                have arrived, or belong to a request that was answered with a partial success; of
                these, the backend has dropped as many as `lost` says.
        """
        tally = _Tally(len(spans), on_taken)
        room = self._max_bytes - _overhead(resource)
        batches = Batches(spans, dialect, self._batch_size, room, self._clock)
        with self._calls.one():
            try:
                while batch := await batches.following():
                    await self._deliver(batch, resource, tally)
            except asyncio.CancelledError:
                tally.abandon()
                raise
        tally.close()

    async def aclose(self) -> None:
        """Close the connections of this event loop; another export opens new ones.

        Exports under way are waited for, no longer than one request may take.
        """
        await self._calls.ended(self._timeout_s)
        await self._http.aclose()

    async def _deliver(
        self, batch: Sequence[Encoded], resource: Mapping[str, AttributeValue], tally: _Tally
    ) -> None:
        waiting = [batch]
        while waiting:
            some = waiting.pop()
            request = encode_request([one.content for one in some], resource=resource)
            body = await gzipped(request, self._clock)
            status, rejected = await self._post(body, len(some), tally)
            if status == _TOO_LARGE and len(some) > 1:
                middle = len(some) // 2
                waiting += [some[middle:], some[:middle]]
            else:
                tally.add([one.span_id for one in some], rejected, status)

    async def _post(self, body: bytes, count: int, tally: _Tally) -> tuple[int, int]:
        """Return the status, and how many of the spans were not taken; raise what ends it all."""
        try:
            async with self._http.post(self._url, body, self._headers) as answer:
                return answer.status, await self._judged(answer, count, tally)
        except RemoteError as error:
            # Its cause may quote a header that is not valid, so it is left behind.
            wrong = not error.retryable
            text = f"{self._server}: {error}"
            raise tally.error(text, permanent=wrong, setup=wrong) from None

    async def _judged(self, answer: Answer, count: int, tally: _Tally) -> int:
        status = answer.status
        if 200 <= status < 300:  # noqa: PLR2004 - HTTP
            try:
                return min(count, rejected_spans(answer.media_type, await answer.read()))
            except ValueError:
                message = f"the server answered {status}, but not as an OTLP backend does"
                text = f"{message}: check the address"
                raise tally.error(text, permanent=True, setup=True) from None
        await answer.read_start()  # so that the connection can serve again
        if status in _REFUSED:
            return count
        wrong = status < 500 and status not in _MAY_PASS  # noqa: PLR2004 - HTTP
        raise tally.error(
            _describe(status),
            permanent=wrong,
            setup=wrong,
            retry_after_s=retry_after_s(answer.headers, self._clock.now()),
        )


class _Tally:
    """Counts the outcomes of the spans of one call."""

    def __init__(self, spans: int, on_taken: OnTaken | None) -> None:
        self._spans, self._on_taken = spans, on_taken
        self._settled = self._lost = 0
        self._taken = set[str]()
        self._refused = Counter[str]()

    def add(self, span_ids: Sequence[str], rejected: int, status: int) -> None:
        """Note how the next of them came out."""
        self._settled += len(span_ids)
        if rejected:
            self._refused[_describe(status)] += rejected
        if status in _REFUSED:
            return
        self._lost += rejected
        self._taken.update(span_ids)
        if self._on_taken is not None:
            self._on_taken(span_ids)

    def error(self, message: str, **facts: Any) -> ExportError:
        """Return the error that ends the call here."""
        if self._settled:
            message += f"; {self._settled} of {self._spans} spans were sent before"
        if refused := self._refused.total():
            message += f", of which {refused} were refused"
        return ExportError(message, taken=frozenset(self._taken), lost=self._lost, **facts)

    def abandon(self) -> None:
        """Log how many spans are lost, since no error is raised."""
        if self._lost:
            _log.error("a backend has taken requests, but dropped %d spans of them", self._lost)

    def close(self) -> None:
        """Raise if not all were taken."""
        if refused := self._refused.total():
            reasons = "; ".join(sorted(self._refused))
            raise ExportError(
                f"{refused} of {self._spans} spans were refused: {reasons}",
                permanent=True,
                taken=frozenset(self._taken),
                lost=self._lost,
            )


async def gzipped(body: bytes, clock: Clock) -> bytes:
    """Return the content compressed, the same bytes for the same content; others get their turn."""
    packer = zlib.compressobj(GZIP_LEVEL, zlib.DEFLATED, zlib.MAX_WBITS | 16)
    pieces: list[bytes] = []
    view = memoryview(body)
    for start in range(0, len(body), SLICE_BYTES):
        await clock.sleep(0)
        pieces.append(packer.compress(view[start : start + SLICE_BYTES]))
    return b"".join([*pieces, packer.flush()])


def _overhead(resource: Mapping[str, AttributeValue]) -> int:
    """Return how many bytes a request has beside its spans, at most."""
    lengths = 2 * FRAME_BYTES  # which are longer in a request that is not empty
    return len(encode_request([], resource=resource)) + lengths


def _describe(status: int) -> str:
    if 200 <= status < 300:  # noqa: PLR2004 - HTTP
        return f"the server answered {status} with a partial success"
    if 300 <= status < 400:  # noqa: PLR2004 - HTTP
        return f"the address redirects ({status}): give the one it leads to, such as https"
    hint = _HINTS.get(status)
    return f"the server answered {status}" + (f": {hint}" if hint else "")
