"""Shared by tests of `OTelSink`: an exporter of the SDK, and a sender, that keep what they get."""

import threading
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from lib.errors import ExportError
from lib.observe import Dialect, OTelSink, Span
from lib.observe.dialect import AttributeValue
from lib.observe.sink import OnTaken

AT = datetime(2026, 11, 21, 3, 0, 0, 123456, tzinfo=UTC)


class Exporter(SpanExporter):
    """Keeps batches and answers as configured: one call at a time, blocking, as exporters do."""

    def __init__(self, *answers: SpanExportResult | Exception, flushes: bool = True) -> None:
        self.answers = list(answers)
        self.flushes = flushes
        self.batches: list[Sequence[ReadableSpan]] = []
        self.calls: list[str] = []
        self.threads: set[threading.Thread] = set()
        self.go_on = threading.Event()
        self.go_on.set()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.threads.add(threading.current_thread())
        self.go_on.wait(10)
        answer = self.answers.pop(0) if self.answers else SpanExportResult.SUCCESS
        if isinstance(answer, Exception):
            raise answer
        self.batches.append(spans)
        return answer

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        self.calls.append("flush")
        return self.flushes

    def shutdown(self) -> None:
        self.calls.append("shutdown")


class Sending:
    """A sender that keeps what it is given, or fails."""

    url = "https://user:password@backend.example:8443/v1/traces?key=secret#part"

    def __init__(self, error: ExportError | None = None) -> None:
        self.error = error
        self.sent: list[tuple[Span, dict[str, Any]]] = []
        self.resource: Mapping[str, AttributeValue] = {}
        self.closed = 0

    async def send(
        self,
        spans: Sequence[Span],
        *,
        dialect: Dialect,
        resource: Mapping[str, AttributeValue],
        on_taken: OnTaken | None = None,
    ) -> None:
        self.resource = resource
        self.sent += [(span, dict(dialect.attributes(span))) for span in spans]
        if self.error is not None:
            raise self.error
        if on_taken is not None:
            on_taken([span.span_id for span in spans])

    async def aclose(self) -> None:
        self.closed += 1


async def exported(spans: Sequence[Span], **options: Any) -> list[ReadableSpan]:
    exporter = Exporter()
    await OTelSink(exporter, **options).export(spans)
    return [span for batch in exporter.batches for span in batch]
