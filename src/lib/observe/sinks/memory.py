"""The sink that keeps everything: for tests, and the reference for all other sinks."""

from __future__ import annotations

from collections.abc import Sequence

from lib._util.contexts import AsyncClosable
from lib.observe.sink import SinkTraits
from lib.observe.span import Span


class InMemorySink(AsyncClosable):
    """Keeps the last version of each span."""

    traits: SinkTraits = SinkTraits(destination=None)  # its spans are gone with the process

    def __init__(self) -> None:
        """Begin without spans."""
        self._spans: dict[str, Span] = {}

    async def export(self, spans: Sequence[Span]) -> None:
        """Keep the spans; a later version of a span replaces the earlier one in place."""
        self._spans |= {span.span_id: span for span in spans}

    @property
    def spans(self) -> list[Span]:
        """Every span, in the order in which they first came."""
        return list(self._spans.values())

    def trace(self, trace_id: str) -> list[Span]:
        """Return the spans of one trace, in the order in which they first came."""
        return [span for span in self._spans.values() if span.trace_id == trace_id]
