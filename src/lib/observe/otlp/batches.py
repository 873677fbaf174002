"""Batches of encoded spans for requests; encoding yields to the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple, cast

from lib._util.clock import Clock
from lib.observe.dialect import Dialect
from lib.observe.otlp.encode import encode_span
from lib.observe.span import Span

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
