"""Spans: what a trace is made of, and how its ids are derived."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal, get_args

from lib._util.trace_context import non_zero, span_id_of, trace_id_of

__all__ = [
    "ATTEMPT",
    "LOST",
    "RESUMED",
    "SPAN_KINDS",
    "RemoteParent",
    "Span",
    "SpanEvent",
    "SpanKind",
    "SpanLink",
    "Status",
    "has_remote_parent",
    "non_zero",
    "span_id_of",
    "trace_id_of",
]

SpanKind = Literal[
    "agent",
    "session",
    "workflow",
    "llm",
    "tool",
    "retriever",
    "reranker",
    "embedding",
    "guardrail",
    "evaluator",
    "memory",
    "internal",
]
SPAN_KINDS: Final[tuple[SpanKind, ...]] = get_args(SpanKind)

Status = Literal["ok", "error"]

LOST: Final = "run.lost"
"""The `SpanEvent` of a run at the last event of a process that died."""

RESUMED: Final = "run.resumed"
"""The `SpanEvent` of a run at its takeover by another process."""

ATTEMPT: Final = "llm.attempt"
"""The `SpanEvent` of a model call at the beginning of each of its attempts."""


@dataclass(frozen=True, slots=True)
class SpanEvent:
    """Something that happened at one moment of a span."""

    name: str
    at: datetime
    attributes: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class SpanLink:
    """A span of another trace that has to do with this one."""

    trace_id: str
    span_id: str
    trace_state: str = ""


@dataclass(frozen=True, slots=True)
class RemoteParent:
    """The application's span within which a root run was started.

    Attributes:
        trace_id: of the application's trace, which the run has joined.
        span_id: of the span in it.
        trace_state: what other tracing systems have noted, as the `tracestate` header.
        own_trace_id: what the trace id of the run would be had it joined no trace.
    """

    trace_id: str
    span_id: str
    trace_state: str
    own_trace_id: str


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of a run: a model call, a tool call, the run itself.

    Attributes:
        trace_id: 32 hex digits, the same for a root run and all runs below it: those of the
            application's trace if the root run was started within one.
        span_id: 16 hex digits, the same whenever the span is derived again.
        parent_id: the span that it hangs under, None for that of a root run.
        name: operation and object, such as `execute_tool search`.
        start: when it began, in UTC.
        end: when it ended, never before `start`; None while it is open.
        status: "error" where the operation did not succeed and was not called off.
        status_message: the error in words; content, so None unless content is captured.
        attributes: plain JSON values by name, sorted; see `lib.observe.attributes`.
        events: moments of the span, in order.
        run_id: the run whose log tells of it.
        input: what went in, if content is captured.
        output: what came out, if content is captured.
        trace: attributes of the trace as a whole, for backends that want it on
            every span; an observer fills it in. Two spans that differ in it only are equal.
        remote_parent: the application's span that the root run hangs under, on every span of a
            trace that has one; `OTelSink` makes it the parent of the root, or links to it.
        links: spans of other traces that have to do with this one.
    """

    trace_id: str
    span_id: str
    parent_id: str | None
    name: str
    kind: SpanKind
    start: datetime
    end: datetime | None
    status: Status = "ok"
    status_message: str | None = None
    attributes: dict[str, Any] = field(default_factory=dict[str, Any])
    events: list[SpanEvent] = field(default_factory=list[SpanEvent])
    run_id: str = ""
    tenant: str | None = None
    user: str | None = None
    input: Any | None = None
    output: Any | None = None
    trace: Mapping[str, Any] = field(default_factory=dict[str, Any], compare=False, repr=False)
    remote_parent: RemoteParent | None = None
    links: Sequence[SpanLink] = ()


def has_remote_parent(span: Span) -> bool:
    """Return True if the parent of a span is a span of the application."""
    remote = span.remote_parent
    return remote is not None and (remote.trace_id, remote.span_id) == (
        span.trace_id,
        span.parent_id,
    )
