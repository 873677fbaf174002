"""Spans through an exporter of OpenTelemetry's SDK.

Source: opentelemetry-sdk 1.45, `opentelemetry.sdk.trace.export.SpanExporter`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, cast

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import (
    Link,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    TraceState,
)

from lib._util.version import __version__
from lib.errors import ExportError
from lib.observe import span as ours
from lib.observe.attributes import SCHEMA_URL
from lib.observe.dialect import AttributeValue, Dialect
from lib.observe.dialects.values import clean, clean_text
from lib.observe.sink import OnTaken
from lib.observe.sinks.thread import OneThread

_SCOPE: Final = InstrumentationScope("lib.observe", __version__, SCHEMA_URL)
_SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED)
_REMOTE: Final[frozenset[ours.SpanKind]] = frozenset({"llm", "embedding", "retriever", "reranker"})
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class ExporterSender:
    """Sends spans through an exporter, in a thread of its own, since exporters block.

    Success means what the exporter reports as success: those of the SDK include redirects, and
    answers that reject some of the spans.
    """

    def __init__(self, exporter: Any, *, batch_size: int) -> None:
        """Take the exporter, which belongs to the sender from now on.

        Args:
            exporter: a `SpanExporter`.
            batch_size: how many spans to hand over at once, at most.
        """
        self._exporter = cast(SpanExporter, exporter)
        self._batch_size = batch_size
        self._name = type(exporter).__name__
        self._thread = OneThread(self._name)
        self._resource: Resource | None = None
        self._closed = False

    async def send(
        self,
        spans: Sequence[ours.Span],
        *,
        dialect: Dialect,
        resource: Mapping[str, AttributeValue],
        on_taken: OnTaken | None = None,
    ) -> None:
        """Export the spans in batches; `on_taken` is called after each with their ids.

        Raises:
            ExportError: the exporter failed, raised, has not returned from its last call, or is
                closed; the batches before have been delivered.
        """
        if self._closed:
            raise ExportError(f"{self._name} is closed", permanent=True)
        if self._resource is None:  # one for all spans: exporters group by it
            self._resource = Resource(dict(resource))
        taken = set[str]()
        for first in range(0, len(spans), self._batch_size):
            batch, ids = spans[first : first + self._batch_size], list[str]()
            try:
                await self._export(batch, dialect, self._resource, ids)
            except ExportError as error:
                error.taken = frozenset(taken)
                raise
            taken.update(ids)
            if on_taken is not None:
                on_taken(ids)

    async def _export(
        self, spans: Sequence[ours.Span], dialect: Dialect, resource: Resource, ids: list[str]
    ) -> None:
        def work() -> SpanExportResult:
            batch = list(spans)  # here, since it may be work to look at one
            ids.extend(span.span_id for span in batch)
            return self._exporter.export([readable(span, dialect, resource) for span in batch])

        result = await self._call(work)
        if result is not SpanExportResult.SUCCESS:
            raise ExportError(f"{self._name} did not deliver {len(spans)} spans: its log says why")

    async def aclose(self) -> None:
        """Flush and shut the exporter down; safe to repeat.

        Raises:
            ExportError: the exporter could not flush, raised, or has not returned.
        """
        if self._closed:
            return
        flushed = await self._call(self._close)
        self._closed = True
        if not flushed:
            raise ExportError(f"{self._name} could not deliver all spans before it closed")

    def _close(self) -> bool:
        try:
            return self._exporter.force_flush()
        finally:
            self._exporter.shutdown()

    async def _call(self, work: Any) -> Any:
        try:
            return await self._thread.run(work)
        except ExportError:
            raise
        except Exception as error:  # around an exporter: whatever it raises, it did not deliver
            raise ExportError(f"{self._name} raised {type(error).__name__}") from error


def readable(span: ours.Span, dialect: Dialect, resource: Resource) -> ReadableSpan:
    """Return a span as the SDK has them; one that is open ends when it starts.

    It is made without a tracer, which would drop attributes beyond 128.
    """
    return ReadableSpan(
        clean_text(span.name),
        context=_context(span.trace_id, span.span_id, _state_of(span)),
        parent=_parent_of(span),
        resource=resource,
        attributes=dialect.attributes(span),
        events=[
            Event(clean_text(event.name), clean(event.attributes), _nanoseconds(event.at))
            for event in span.events
        ],
        links=[
            Link(_context(link.trace_id, link.span_id, link.trace_state, remote=True))
            for link in span.links
        ],
        kind=SpanKind.CLIENT if span.kind in _REMOTE else SpanKind.INTERNAL,
        status=_status(span),
        start_time=_nanoseconds(span.start),
        end_time=_nanoseconds(span.end or span.start),
        instrumentation_scope=_SCOPE,
    )


def _status(span: ours.Span) -> Status:
    if span.status == "error":
        return Status(StatusCode.ERROR, clean_text(span.status_message or "") or None)
    return Status(StatusCode.UNSET if span.end is None else StatusCode.OK)


def _parent_of(span: ours.Span) -> SpanContext | None:
    if not span.parent_id:
        return None
    remote = ours.has_remote_parent(span)
    return _context(span.trace_id, span.parent_id, _state_of(span), remote=remote)


def _state_of(span: ours.Span) -> str:
    """Return the `tracestate` of the trace that the span is in."""
    remote = span.remote_parent
    return remote.trace_state if remote is not None and remote.trace_id == span.trace_id else ""


def _context(trace_id: str, span_id: str, state: str, *, remote: bool = False) -> SpanContext:
    return SpanContext(
        int(trace_id, 16),
        int(span_id, 16),
        is_remote=remote,
        trace_flags=_SAMPLED,
        trace_state=TraceState.from_header([state]) if state else None,
    )


def _nanoseconds(at: datetime) -> int:
    passed = at - _EPOCH
    return (passed.days * 86_400 + passed.seconds) * 10**9 + passed.microseconds * 1000
