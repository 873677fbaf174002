"""Sends spans over OTLP/HTTP, without a word of OpenTelemetry's packages.

The exporter of OpenTelemetry takes a redirect for success, and does not read that a backend has
dropped some spans; it blocks a thread, retries there and then says nothing of the reason. Here,
what did not arrive is an `ExportError`, and retrying is up to the caller.

Source: OTLP 1.10, "OTLP/HTTP Response", "OTLP/HTTP Throttling" and "Partial Success";
collector/trace/v1/trace_service.proto: in JSON its names are in lowerCamelCase, and integers of
64 bits may be strings.
"""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, cast
from urllib.parse import urlsplit

from lib._util.clock import SYSTEM_CLOCK, Clock
from lib._util.json import parse
from lib._util.tasks import Calls
from lib._util.version import __version__
from lib.errors import ExportError, RemoteError
from lib.http.client import Answer, HTTPClient
from lib.http.failures import retry_after_s
from lib.observe.dialect import AttributeValue, Dialect
from lib.observe.otlp.encode import encode_request, encode_span
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


SLICE_SPANS: Final = 64
SLICE_BYTES: Final = 128 * 1024
SLICE_S: Final = 0.001
"""Limits of encoding, or compressing, without yielding to the event loop."""

HUGE_CHARS: Final = 256 * 1024
"""A span that holds more is encoded in a thread: it cannot be sliced."""

FRAME_BYTES: Final = 6
"""Of a span in a request, at most: a tag, and a length of at most five bytes."""

_VALUE_CHARS: Final = 32  # what one value costs, however short it is


class Encoded(NamedTuple):
    """A span as it is sent."""

    span_id: str
    content: bytes


class Batches:
    """Encodes spans request by request."""

    def __init__(
        self,
        spans: Iterable[Span],
        dialect: Dialect,
        batch_size: int,
        max_bytes: int,
        clock: Clock,
    ) -> None:
        """Take what is to be sent.

        Args:
            spans: looked at one by one, when their turn comes.
            dialect: names their attributes.
            batch_size: the most spans of a request.
            max_bytes: the most bytes of all spans of a request, unless it has but one.
            clock: yields to the event loop.
        """
        self._spans, self._dialect = iter(spans), dialect
        self._batch_size, self._max_bytes, self._clock = batch_size, max_bytes, clock
        self._left: Encoded | None = None  # encoded, and too much for the batch before

    async def following(self) -> list[Encoded]:
        """Return the spans of the next request, none at the end."""
        batch: list[Encoded] = []
        size = 0
        turn = _Turn(self._clock)
        while (encoded := await self._next()) is not None:
            size += len(encoded.content) + FRAME_BYTES
            if batch and size > self._max_bytes:
                self._left = encoded
                break
            batch.append(encoded)
            await turn.spent(len(encoded.content))
            if len(batch) == self._batch_size:
                break
        return batch

    async def _next(self) -> Encoded | None:
        left, self._left = self._left, None
        if left is not None:
            return left
        span = next(self._spans, None)
        if span is None:
            return None
        if is_huge(span):
            return await asyncio.to_thread(self._encode, span)
        return self._encode(span)

    def _encode(self, span: Span) -> Encoded:
        return Encoded(span.span_id, encode_span(span, self._dialect.attributes(span)))


class _Turn:
    """Yields to the event loop after enough work."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._spans = self._bytes = 0
        self._began_s = clock.monotonic()

    async def spent(self, encoded: int) -> None:
        self._spans += 1
        self._bytes += encoded
        taken_s = self._clock.monotonic() - self._began_s
        if self._spans >= SLICE_SPANS or self._bytes >= SLICE_BYTES or taken_s >= SLICE_S:
            await self._clock.sleep(0)
            self._spans = self._bytes = 0
            self._began_s = self._clock.monotonic()


def is_huge(span: Span) -> bool:
    """Return True if encoding a span at once would block the event loop; estimated quickly."""
    left = HUGE_CHARS
    waiting: list[Any] = [span.attributes, span.input, span.output, span.status_message]
    waiting += [event.attributes for event in span.events]
    while waiting:
        value = waiting.pop()
        left -= _VALUE_CHARS
        if isinstance(value, str):
            left -= len(value)
        elif isinstance(value, Mapping):
            waiting += cast(Mapping[Any, Any], value).values()
        elif isinstance(value, list | tuple):
            waiting += cast(list[Any], value)
        if left < 0:
            return True
    return False


_PROTOBUF: Final = frozenset({"application/x-protobuf", "application/protobuf"})
_FIXED_SIZE: Final = {1: 8, 5: 4}
_MOST_VARINT_BYTES: Final = 10


def rejected_spans(media_type: str, body: bytes) -> int:
    """Return how many spans of a request that was answered with success were not taken.

    An answer of neither protobuf nor a JSON object cannot tell, and counts as 0.

    Args:
        media_type: of the answer, in lower case and without parameters.
        body: its content.

    Raises:
        ValueError: this is no OTLP backend: the content is not what its type says, or a web page.
    """
    if media_type == "text/html":
        raise ValueError("a web page")
    if not body:
        return 0
    if media_type in _PROTOBUF:
        return max(0, _in_protobuf(body))
    if media_type == "application/json":
        return max(0, _in_json(_parsed(body)))
    return 0


def _parsed(body: bytes) -> Any:
    try:
        return parse(body)
    except RecursionError:
        raise ValueError("too deep") from None


def _in_protobuf(body: bytes) -> int:
    rejected = 0
    for number, value in _fields(body):
        if number == 1 and isinstance(value, bytes):  # partial_success
            counts = [count for name, count in _fields(value) if name == 1]  # rejected_spans
            rejected = counts[-1] if counts and isinstance(counts[-1], int) else rejected
    return rejected if rejected < 2**63 else 0  # a negative number


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield number and value of each field of a protobuf message: a varint, or bytes."""
    position = 0
    while position < len(message):
        tag, position = _varint(message, position)
        kind = tag & 7
        if kind == 0:
            value, position = _varint(message, position)
            yield tag >> 3, value
            continue
        if kind == 2:  # noqa: PLR2004 - what is preceded by its length
            size, position = _varint(message, position)
        elif kind in _FIXED_SIZE:
            size = _FIXED_SIZE[kind]
        else:
            raise ValueError("a field of no known layout")
        if position + size > len(message):
            raise ValueError("a field beyond the end")
        yield tag >> 3, message[position : position + size]
        position += size


def _varint(message: bytes, position: int) -> tuple[int, int]:
    """Return the number that begins there, and where it ends."""
    number = 0
    for shift, byte in enumerate(message[position : position + _MOST_VARINT_BYTES]):
        number |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:  # noqa: PLR2004 - the top bit says that there is more
            return number, position + shift + 1
    raise ValueError("a number without an end")


def _in_json(answer: Any) -> int:
    if not isinstance(answer, dict):
        return 0  # "ok", null: answers of some backends that keep everything
    partial = _member(cast(Any, answer), "partialSuccess", "partial_success")
    rejected = _member({} if partial is None else partial, "rejectedSpans", "rejected_spans")
    return int(str(rejected or 0))


def _member(value: Any, *names: str) -> Any:
    if not isinstance(value, dict):
        raise ValueError("not an object")  # noqa: TRY004 - the content is wrong, not the call
    fields = cast(dict[str, Any], value)
    return next((fields[name] for name in names if name in fields), None)
