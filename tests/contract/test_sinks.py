"""Every sink keeps the contract; a new one is one more line of the table."""

import io
from collections.abc import Sequence

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from lib.observe import CallableSink, ConsoleSink, InMemorySink, OTelSink, Span, TraceSink
from lib.testing.sink import OpenSink, SinkContract, SinkKind


def open_memory() -> OpenSink:
    sink = InMemorySink()
    return OpenSink(sink, lambda span: sum(kept.span_id == span.span_id for kept in sink.spans))


def open_callable() -> OpenSink:
    taken: list[Span] = []
    return OpenSink(
        CallableSink(taken.extend), lambda span: sum(one.span_id == span.span_id for one in taken)
    )


def open_async_callable() -> OpenSink:
    taken: list[Span] = []

    async def take(spans: Sequence[Span]) -> None:
        taken.extend(spans)

    return OpenSink(
        CallableSink(take), lambda span: sum(one.span_id == span.span_id for one in taken)
    )


def broken_callable() -> TraceSink:
    def fail(_: object) -> None:
        raise ZeroDivisionError

    return CallableSink(fail)


def open_console() -> OpenSink:
    out = io.StringIO()
    return OpenSink(ConsoleSink(out), lambda span: out.getvalue().count(span.name.split()[-1]))


def broken_console() -> TraceSink:
    out = io.StringIO()
    out.close()
    return ConsoleSink(out)


def open_otel() -> OpenSink:
    exporter = InMemorySpanExporter()

    def count(span: Span) -> int:
        spans = exporter.get_finished_spans()
        ids = [one.context.span_id for one in spans if one.context is not None]
        return ids.count(int(span.span_id, 16))

    return OpenSink(OTelSink(exporter), count)


def broken_otel() -> TraceSink:
    exporter = InMemorySpanExporter()
    exporter.shutdown()
    return OTelSink(exporter)


SINKS = {
    "memory": SinkKind(open=open_memory, repeats="replace"),
    "callable": SinkKind(open=open_callable, repeats="append", open_broken=broken_callable),
    "async callable": SinkKind(open=open_async_callable, repeats="append"),
    "console": SinkKind(open=open_console, repeats="append", open_broken=broken_console),
    "otel": SinkKind(open=open_otel, repeats="append", open_broken=broken_otel, sends_open=False),
}


@pytest.fixture(params=SINKS.values(), ids=list(SINKS))
def each_kind(request: pytest.FixtureRequest) -> SinkKind:
    return request.param


class TestSinks(SinkContract):
    @pytest.fixture
    def kind(self, each_kind: SinkKind) -> SinkKind:
        return each_kind
