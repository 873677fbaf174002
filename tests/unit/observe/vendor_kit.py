"""Shared by tests of the sinks of vendors: work with a sink and a stand-in for its backend."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

import pytest

from fakes.pinecone_server.clock import HurryingClock
from fakes.trace_servers import LangfuseServer, LangSmithServer, PhoenixServer, TraceServer
from fakes.trace_servers.langfuse import PUBLIC_KEY, SECRET_KEY
from fakes.trace_servers.langsmith import API_KEY
from lib.errors import ExportError
from lib.evals import Score
from lib.observe import LangfuseSink, LangSmithSink, OTelSink, PhoenixSink
from lib.testing.aio import run
from lib.testing.sink import make_trace

TRACE = make_trace()
ROOT = TRACE[0]
SECRET = "swordfish"
AT = datetime(2026, 1, 1, 12, tzinfo=UTC)
SCORE = Score(name="quality", value=0.5, at=AT)
PHOENIX_KEY = "px-0123456789"

Sink = TypeVar("Sink", bound=OTelSink)
Server = TypeVar("Server", bound=TraceServer)


@dataclass(frozen=True, kw_only=True)
class Vendor(Generic[Sink, Server]):
    """A backend, and the sink in front of it.

    Attributes:
        serve: makes a stand-in for the backend.
        sink: makes a sink for a stand-in, with these options.
        secrets: what no error may tell.
    """

    serve: Callable[[], Server]
    sink: Callable[..., Sink]
    secrets: tuple[str, ...]

    def served(
        self,
        work: Callable[[Sink, Server], Awaitable[Any]],
        *,
        server: Server | None = None,
        **options: Any,
    ) -> Server:
        """Return a server after some work with a sink of its own, whose waits take no time."""
        backend = server or self.serve()

        async def main() -> Server:
            async with backend:
                sink = self.sink(backend, **{"clock": HurryingClock(), **options})
                try:
                    await work(sink, backend)
                finally:
                    await sink.aclose()
                    await sink.aclose()
            return backend

        return run(main())

    def failure(
        self, work: Callable[[Sink, Server], Awaitable[Any]], **options: Any
    ) -> ExportError:
        """Return the error that such work ends with; it tells no secret."""
        with pytest.raises(ExportError) as raised:
            self.served(work, **options)
        for secret in (*self.secrets, SECRET):
            assert secret not in f"{raised.value!r} {raised.value.__cause__!r}"
        return raised.value


def langfuse_sink(server: LangfuseServer, **options: Any) -> LangfuseSink:
    return LangfuseSink(PUBLIC_KEY, SECRET_KEY, server.host, **options)


def langsmith_sink(server: LangSmithServer, **options: Any) -> LangSmithSink:
    return LangSmithSink(API_KEY, endpoint=server.endpoint, **options)


def phoenix_sink(server: PhoenixServer, **options: Any) -> PhoenixSink:
    return PhoenixSink(server.url, **options)


LANGFUSE = Vendor(serve=LangfuseServer, sink=langfuse_sink, secrets=(PUBLIC_KEY, SECRET_KEY))
LANGSMITH = Vendor(serve=LangSmithServer, sink=langsmith_sink, secrets=(API_KEY,))
PHOENIX = Vendor(serve=PhoenixServer, sink=phoenix_sink, secrets=(PHOENIX_KEY,))


async def judged(sink: LangfuseSink | LangSmithSink | PhoenixSink, _: TraceServer) -> None:
    """Send a trace, and a score of its root."""
    await sink.export(TRACE)
    await sink.score(ROOT.trace_id, [SCORE], span_id=ROOT.span_id)
