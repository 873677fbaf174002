"""The peers of `benchmarks/export.py`: OpenTelemetry's exporter, given what ours is given.

Its modules are loaded when one of them is made: who measures lib alone does not have them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

from lib.observe import Span
from lib.observe.dialects import GENAI

BATCH = 512
RESOURCE = {"service.name": "bench"}


class OpenTelemetry:
    compressed = False

    def __init__(self, url: str, spans: Sequence[Span], *, queue: int | None) -> None:
        from opentelemetry.exporter.otlp.proto.http import Compression
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        logging.disable(logging.WARNING)  # one for each span that is dropped
        self.spans = readable(spans)
        gzip = Compression.Gzip if self.compressed else Compression.NoCompression
        exporter = OTLPSpanExporter(url, compression=gzip)
        size: dict[str, Any] = {} if queue is None else {"max_queue_size": queue}
        self.processor = BatchSpanProcessor(exporter, max_export_batch_size=BATCH, **size)

    async def export(self) -> None:
        for number, span in enumerate(self.spans):
            self.processor.on_end(span)
            if number % 64 == 63:
                await asyncio.sleep(0)  # noqa: TID251 - as the tasks that end them would
        await asyncio.to_thread(self.processor.force_flush, 120_000)

    async def close(self) -> None:
        await asyncio.to_thread(self.processor.shutdown)


class Compressed(OpenTelemetry):
    compressed = True


class Traced(OpenTelemetry):
    """Spans are made by a tracer, as they are in an application."""

    def __init__(self, url: str, spans: Sequence[Span], *, queue: int | None) -> None:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider

        super().__init__(url, spans, queue=queue)
        provider = TracerProvider(resource=Resource(RESOURCE), shutdown_on_exit=False)
        provider.add_span_processor(self.processor)
        self.tracer = provider.get_tracer("bench", "1")

    async def export(self) -> None:
        from opentelemetry.trace import NonRecordingSpan, SpanKind, set_span_in_context
        from opentelemetry.trace.status import Status, StatusCode

        for number, span in enumerate(self.spans):
            made = self.tracer.start_span(
                span.name,
                set_span_in_context(NonRecordingSpan(span.parent)),
                SpanKind.CLIENT,
                start_time=span.start_time,
            )
            made.set_attributes(span.attributes)
            made.set_status(Status(StatusCode.OK))
            made.end(span.end_time)
            if number % 64 == 63:
                await asyncio.sleep(0)  # noqa: TID251 - as the tasks that end them would
        await asyncio.to_thread(self.processor.force_flush, 120_000)


def readable(spans: Sequence[Span]) -> list[Any]:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    from opentelemetry.trace import SpanContext, SpanKind, TraceFlags
    from opentelemetry.trace.status import Status, StatusCode

    resource, scope = Resource(RESOURCE), InstrumentationScope("bench", "1")

    def context(trace_id: str, span_id: str | None) -> SpanContext:
        ids = int(trace_id, 16), int(span_id or "0", 16)
        return SpanContext(*ids, is_remote=False, trace_flags=TraceFlags(1))

    return [
        ReadableSpan(
            span.name,
            context(span.trace_id, span.span_id),
            context(span.trace_id, span.parent_id),
            resource,
            GENAI.attributes(span),
            kind=SpanKind.CLIENT,
            status=Status(StatusCode.OK),
            start_time=int(span.start.timestamp() * 1e9),
            end_time=int((span.end or span.start).timestamp() * 1e9),
            instrumentation_scope=scope,
        )
        for span in spans
    ]


PEERS: dict[str, Callable[..., Any]] = {
    "otel": OpenTelemetry,
    "otel gzip": Compressed,
    "otel tracer": Traced,
}
