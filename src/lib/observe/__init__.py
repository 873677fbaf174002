"""Traces from the log: spans are derived from events, so a crash loses none of them.

`Observer` follows an engine and exports to sinks; `spans_from_events` is all that it knows of
spans. Whatever needs rich or a network is loaded when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from lib.errors import ExportError
from lib.evals import Score
from lib.observe.dialect import Dialect
from lib.observe.observer import ObservedEngine, Observer
from lib.observe.sinks.callable import CallableSink
from lib.observe.sinks.memory import InMemorySink
from lib.observe.span import (
    Span,
    SpanEvent,
    SpanKind,
    Status,
    TraceSink,
    span_id_of,
    trace_id_of,
)
from lib.observe.spans import spans_from_events
from lib.observe.spend import ModelSpend, SpendFold, TotalSpend, spend_by, spend_of

if TYPE_CHECKING:
    from lib.observe.dialects import GENAI, LANGFUSE, LANGSMITH, OPENINFERENCE
    from lib.observe.render import render_trace
    from lib.observe.sinks.console import ConsoleSink
    from lib.observe.sinks.langfuse import LangfuseSink
    from lib.observe.sinks.langsmith import LangSmithSink
    from lib.observe.sinks.otel import OTelSink
    from lib.observe.sinks.phoenix import PhoenixSink

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
    "Score",
    "Span",
    "SpanEvent",
    "SpanKind",
    "SpendFold",
    "Status",
    "TotalSpend",
    "TraceSink",
    "render_trace",
    "span_id_of",
    "spans_from_events",
    "spend_by",
    "spend_of",
    "trace_id_of",
]

_WHERE = {
    "ConsoleSink": "lib.observe.sinks.console",
    "GENAI": "lib.observe.dialects",
    "LANGFUSE": "lib.observe.dialects",
    "LANGSMITH": "lib.observe.dialects",
    "OPENINFERENCE": "lib.observe.dialects",
    "LangSmithSink": "lib.observe.sinks.langsmith",
    "LangfuseSink": "lib.observe.sinks.langfuse",
    "OTelSink": "lib.observe.sinks.otel",
    "PhoenixSink": "lib.observe.sinks.phoenix",
    "render_trace": "lib.observe.render",
}


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(import_module(_WHERE[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
