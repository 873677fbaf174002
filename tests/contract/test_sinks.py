"""Every sink keeps the contract; a new one is one more line of the table."""

import io
from collections.abc import AsyncGenerator, Callable, Sequence, Sized
from contextlib import asynccontextmanager
from typing import Any, Generic, Literal, TypeVar

import httpx2
import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from fakes.trace_servers import LangfuseServer, LangSmithServer, PhoenixServer, TraceServer
from fakes.trace_servers.langfuse import PUBLIC_KEY, SECRET_KEY
from fakes.trace_servers.langsmith import API_KEY
from lib.errors import ExportError
from lib.evals import Score
from lib.observe import (
    CallableSink,
    ConsoleSink,
    InMemorySink,
    LangfuseSink,
    LangSmithSink,
    OTelSink,
    PhoenixSink,
    SinkTraits,
    Span,
    TraceSink,
)
from lib.testing.sink import OpenSink, SinkContract, SinkKind, make_trace


def open_memory() -> OpenSink:
    sink = InMemorySink()
    return OpenSink(
        sink,
        lambda span: sum(kept.span_id == span.span_id for kept in sink.spans),
        lambda: repr(sink.spans),
    )


def open_callable() -> OpenSink:
    taken: list[Span] = []
    return OpenSink(CallableSink(taken.extend), *looks(taken))


def open_async_callable() -> OpenSink:
    taken: list[Span] = []

    async def take(spans: Sequence[Span]) -> None:
        taken.extend(spans)

    return OpenSink(CallableSink(take), *looks(taken))


def looks(taken: list[Span]) -> tuple[Callable[[Span], int], Callable[[], str]]:
    def count(span: Span) -> int:
        return sum(one.span_id == span.span_id for one in taken)

    return count, lambda: repr(taken)


def broken(sink: TraceSink) -> OpenSink:
    return OpenSink(sink, lambda _: 0, str)


def broken_callable() -> OpenSink:
    def fail(_: object) -> None:
        raise ZeroDivisionError

    return broken(CallableSink(fail))


def open_console() -> OpenSink:
    out = io.StringIO()
    return OpenSink(
        ConsoleSink(out),
        lambda span: out.getvalue().count(span.name.split()[-1]),
        out.getvalue,
    )


def broken_console() -> OpenSink:
    out = io.StringIO()
    out.close()
    return broken(ConsoleSink(out))


def open_otel() -> OpenSink:
    exporter = InMemorySpanExporter()

    def count(span: Span) -> int:
        spans = exporter.get_finished_spans()
        ids = [one.context.span_id for one in spans if one.context is not None]
        return ids.count(int(span.span_id, 16))

    def received() -> str:
        return "".join(span.to_json() for span in exporter.get_finished_spans())

    def scores() -> int:
        spans = exporter.get_finished_spans()
        judged = [one.context for one in spans if one.name.startswith("evaluate ")]
        return len({context.span_id for context in judged if context is not None})

    return OpenSink(OTelSink(exporter), count, received, scores)


def broken_otel() -> OpenSink:
    exporter = InMemorySpanExporter()
    exporter.shutdown()
    return broken(OTelSink(exporter))


S = TypeVar("S", bound=TraceServer)


class Served(Generic[S]):
    """A sink that is made when its server has begun, and so has an address."""

    traits = SinkTraits(destination="served", reports_taken=True)

    def __init__(self, server: S, sink: Callable[[S], OTelSink]) -> None:
        self._server, self._make = server, sink
        self._sink: Any = None

    @asynccontextmanager
    async def serve(self) -> AsyncGenerator[None]:
        async with self._server:
            self._sink = self._make(self._server)
            yield

    async def export(self, spans: Sequence[Span], **options: Any) -> None:
        await self._sink.export(spans, **options)

    async def score(
        self, trace_id: str, scores: Sequence[Score], *, span_id: str | None = None
    ) -> None:
        await self._sink.score(trace_id, scores, span_id=span_id)

    async def aclose(self) -> None:
        await self._sink.aclose()


def langfuse(server: LangfuseServer, http: Any = None) -> LangfuseSink:
    return LangfuseSink(PUBLIC_KEY, SECRET_KEY, server.host, http=http)


def langsmith(server: LangSmithServer, http: Any = None) -> LangSmithSink:
    return LangSmithSink(API_KEY, endpoint=server.endpoint, http=http)


def phoenix(server: PhoenixServer, http: Any = None) -> PhoenixSink:
    return PhoenixSink(server.url, http=http)


def opener(
    server: Callable[[], S],
    sink: Callable[[S], OTelSink],
    scores: Callable[[S], Sized],
    *script: int,
) -> Callable[[], OpenSink]:
    def opened() -> OpenSink:
        backend = server()
        backend.script += script
        served = Served(backend, sink)

        def count(span: Span) -> int:
            return sum(one.span_id.hex() == span.span_id for one in backend.spans)

        def received() -> str:
            return backend.received.decode("latin-1")

        return OpenSink(served, count, received, lambda: len(scores(backend)), served.serve)

    return opened


def vendor(
    server: Callable[[], S],
    sink: Callable[[S], OTelSink],
    scores: Callable[[S], Sized],
    repeats: Literal["replace", "append"],
) -> SinkKind:
    return SinkKind(
        open=opener(server, sink, scores),
        repeats=repeats,
        open_broken=opener(server, sink, scores, 503),
        sends_open=False,
    )


SINKS = {
    "memory": SinkKind(open=open_memory, repeats="replace"),
    "callable": SinkKind(open=open_callable, repeats="append", open_broken=broken_callable),
    "async callable": SinkKind(open=open_async_callable, repeats="append"),
    "console": SinkKind(open=open_console, repeats="append", open_broken=broken_console),
    "otel": SinkKind(open=open_otel, repeats="append", open_broken=broken_otel, sends_open=False),
    "langfuse": vendor(LangfuseServer, langfuse, lambda server: server.scores, "append"),
    # The next two keep the first, which is the same if no open span is sent.
    "langsmith": vendor(LangSmithServer, langsmith, lambda server: server.feedback, "replace"),
    "phoenix": vendor(PhoenixServer, phoenix, lambda server: server.annotations, "replace"),
}


@pytest.fixture(params=SINKS.values(), ids=list(SINKS))
def each_kind(request: pytest.FixtureRequest) -> SinkKind:
    return request.param


class TestSinks(SinkContract):
    @pytest.fixture
    def kind(self, each_kind: SinkKind) -> SinkKind:
        return each_kind


@pytest.mark.parametrize(
    ("server", "sink"),
    [(LangfuseServer, langfuse), (LangSmithServer, langsmith), (PhoenixServer, phoenix)],
)
async def test_a_client_that_is_closed_fails_with_an_export_error_and_no_other(
    server: Callable[[], Any], sink: Callable[[Any, Any], OTelSink]
) -> None:
    http = httpx2.AsyncClient()
    spans = make_trace()
    score = Score(name="quality", value=1, at=spans[0].start)

    await http.aclose()
    async with server() as backend:
        broken = sink(backend, http)
        for call in (
            broken.export(spans),
            broken.score(spans[0].trace_id, [score], span_id=spans[0].span_id),
        ):
            with pytest.raises(ExportError, match="passed as http is closed") as raised:
                await call
            assert raised.type is ExportError
            assert raised.value.permanent
        await broken.aclose()
