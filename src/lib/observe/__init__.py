"""Traces from the log: spans are derived from events, so a crash loses none of them.

`Observer` follows an engine and exports to sinks; `spans_from_events` is all that it knows of
spans. Whatever needs rich or a network is loaded when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lib._util.lazy import lazy_exports
from lib.errors import ExportError
from lib.evals import Score
from lib.observe.dialect import Dialect
from lib.observe.observer import ObservedEngine, Observer
from lib.observe.sink import ScoringSink, SinkTraits, TraceSink, Updates
from lib.observe.sinks.callable import CallableSink
from lib.observe.sinks.memory import InMemorySink
from lib.observe.span import (
    RemoteParent,
    Span,
    SpanEvent,
    SpanKind,
    SpanLink,
    Status,
    span_id_of,
    trace_id_of,
)
from lib.observe.spans import spans_from_events
from lib.observe.spend import ModelSpend, SpendFold, TotalSpend, spend_by, spend_of

if TYPE_CHECKING:
    from lib.observe.dialects import GENAI, LANGFUSE, LANGSMITH, OPENINFERENCE
    from lib.observe.sinks.console import ConsoleSink
    from lib.observe.sinks.langfuse import LangfuseSink
    from lib.observe.sinks.langfuse import LangfuseSink as TraceSinkA
    from lib.observe.sinks.langsmith import LangSmithSink
    from lib.observe.sinks.langsmith import LangSmithSink as TraceSinkB
    from lib.observe.sinks.otel import OTelSink
    from lib.observe.sinks.phoenix import PhoenixSink
    from lib.observe.sinks.phoenix import PhoenixSink as TraceSinkC
    from lib.observe.view.terminal import render_trace

__all__ = [
    "GENAI",
    "LANGFUSE",
    "LANGSMITH",
    "OPENINFERENCE",
    "CallableSink",
    "ConsoleSink",
    "Dialect",
    "ExportError",
    "InMemorySink",
    "LangSmithSink",
    "LangfuseSink",
    "ModelSpend",
    "OTelSink",
    "ObservedEngine",
    "Observer",
    "PhoenixSink",
    "RemoteParent",
    "Score",
    "ScoringSink",
    "SinkTraits",
    "Span",
    "SpanEvent",
    "SpanKind",
    "SpanLink",
    "SpendFold",
    "Status",
    "TotalSpend",
    "TraceSink",
    "TraceSinkA",
    "TraceSinkB",
    "TraceSinkC",
    "Updates",
    "render_trace",
    "span_id_of",
    "spans_from_events",
    "spend_by",
    "spend_of",
    "trace_id_of",
]

if not TYPE_CHECKING:  # type checkers are to see misspelt names
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "ConsoleSink": "lib.observe.sinks.console",
            "GENAI": "lib.observe.dialects",
            "LANGFUSE": "lib.observe.dialects",
            "LANGSMITH": "lib.observe.dialects",
            "LangSmithSink": "lib.observe.sinks.langsmith",
            "LangfuseSink": "lib.observe.sinks.langfuse",
            "OPENINFERENCE": "lib.observe.dialects",
            "OTelSink": "lib.observe.sinks.otel",
            "PhoenixSink": "lib.observe.sinks.phoenix",
            "TraceSinkA": "lib.observe.sinks.langfuse:LangfuseSink",
            "TraceSinkB": "lib.observe.sinks.langsmith:LangSmithSink",
            "TraceSinkC": "lib.observe.sinks.phoenix:PhoenixSink",
            "render_trace": "lib.observe.view.terminal",
        },
    )
