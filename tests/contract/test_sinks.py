"""Every sink keeps the contract; a new one is one more line of the table."""

import asyncio
import io
from collections.abc import Callable, Sequence
from typing import Literal, TypeVar

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from lib.observe import (
    CallableSink,
    ConsoleSink,
    InMemorySink,
    LangfuseSink,
    LangSmithSink,
    OTelSink,
    PhoenixSink,
    Span,
    TraceSink,
)
from lib.testing.sink import OpenSink, SinkContract, SinkKind
from lib.testing.trace_servers import LangfuseServer, LangSmithServer, PhoenixServer, TraceServer
from lib.testing.trace_servers.langfuse import PUBLIC_KEY, SECRET_KEY
from lib.testing.trace_servers.langsmith import API_KEY


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


class Served:
    """A sink whose server is there during each export, since servers end with their event loop."""

    def __init__(self, server: TraceServer, sink: Callable[[], OTelSink]) -> None:
        self._server, self._sink = server, sink
        self._exports = 0
        self._opening = asyncio.Lock()

    async def export(self, spans: Sequence[Span]) -> None:
        async with self._opening:
            if not self._exports:
                await self._server.__aenter__()
            self._exports += 1
        sink = self._sink()
        try:
            await sink.export(spans)
        finally:
            await sink.aclose()
            self._exports -= 1
            if not self._exports:
                await self._server.__aexit__(None, None, None)


def langfuse(server: LangfuseServer) -> Served:
    return Served(server, lambda: LangfuseSink(PUBLIC_KEY, SECRET_KEY, server.host))


def langsmith(server: LangSmithServer) -> Served:
    return Served(server, lambda: LangSmithSink(API_KEY, endpoint=server.endpoint))


def phoenix(server: PhoenixServer) -> Served:
    return Served(server, lambda: PhoenixSink(server.url))


S = TypeVar("S", bound=TraceServer)


def opener(server: Callable[[], S], sink: Callable[[S], Served]) -> Callable[[], OpenSink]:
    def opened() -> OpenSink:
        backend = server()

        def count(span: Span) -> int:
            return sum(one.span_id.hex() == span.span_id for one in backend.spans)

        return OpenSink(sink(backend), count)

    return opened


def breaker(server: Callable[[], S], sink: Callable[[S], Served]) -> Callable[[], TraceSink]:
    def broken() -> TraceSink:
        backend = server()
        backend.script = [503]
        return sink(backend)

    return broken


def vendor(
    server: Callable[[], S], sink: Callable[[S], Served], repeats: Literal["replace", "append"]
) -> SinkKind:
    return SinkKind(
        open=opener(server, sink),
        repeats=repeats,
        open_broken=breaker(server, sink),
        sends_open=False,
    )


SINKS = {
    "memory": SinkKind(open=open_memory, repeats="replace"),
    "callable": SinkKind(open=open_callable, repeats="append", open_broken=broken_callable),
    "async callable": SinkKind(open=open_async_callable, repeats="append"),
    "console": SinkKind(open=open_console, repeats="append", open_broken=broken_console),
    "otel": SinkKind(open=open_otel, repeats="append", open_broken=broken_otel, sends_open=False),
    "langfuse": vendor(LangfuseServer, langfuse, "append"),
    # The next two keep the first, which is the same to who sends no open span.
    "langsmith": vendor(LangSmithServer, langsmith, "replace"),
    "phoenix": vendor(PhoenixServer, phoenix, "replace"),
}


@pytest.fixture(params=SINKS.values(), ids=list(SINKS))
def each_kind(request: pytest.FixtureRequest) -> SinkKind:
    return request.param


class TestSinks(SinkContract):
    @pytest.fixture
    def kind(self, each_kind: SinkKind) -> SinkKind:
        return each_kind
