"""Spans: what a trace is made of, how its ids come about, and who takes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal, Protocol, get_args, runtime_checkable

from lib._util.trace_context import non_zero, span_id_of, trace_id_of
from lib.evals import Score

__all__ = [
    "LOST",
    "RESUMED",
    "SPAN_KINDS",
    "RemoteParent",
    "ScoringSink",
    "Span",
    "SpanEvent",
    "SpanKind",
    "SpanLink",
    "Status",
    "TraceSink",
    "Updates",
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
"""The `SpanEvent` of a run at the last moment in which its process was heard of."""

RESUMED: Final = "run.resumed"
"""The `SpanEvent` of a run that another process has taken over."""


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
        status: "error" where the thing asked for did not happen, and nobody had called it off.
        status_message: the error in words; content, so None unless content is captured.
        attributes: plain JSON values by name, sorted; see `lib.observe.attributes`.
        events: moments of the span, in order.
        run_id: the run whose log tells of it.
        input: what went in, if content is captured.
        output: what came out, if content is captured.
        trace: what is known of the trace as a whole, as attributes, for backends that want it on
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
    """Tell whether a span hangs under one of the application."""
    remote = span.remote_parent
    return remote is not None and (remote.trace_id, remote.span_id) == (
        span.trace_id,
        span.parent_id,
    )


Updates = Literal["replace", "first"]
"""What a backend does with a span that it has already: the later word counts, or the first."""


class TraceSink(Protocol):
    """Where spans go.

    A sink may say more of itself, in attributes that need not be there:

    - `updates: Updates`. "replace", if it is missing: a span is sent again whenever more is known
      of it. "first": it is sent once, when it has ended; an open span is not kept if it comes.
    - `destination: str | None`. Names where spans end up, the same after a restart, without
      anything secret; the type's name, if it is missing. What a destination has acknowledged is
      remembered with the log. None: what it takes is gone with the process.
    - `needs_root: bool`. True: that the backend drops a span whose trace's root does not come, so
      nothing of a trace is sent before its root has ended; False, if it is missing. The root of a
      session is sent with the first turns, as if it had ended with them.
    - `tells_taken: bool`. True: that `export` takes a function as `on_taken`, and calls it with the
      ids of spans as soon as they are delivered; False, if it is missing.
    - `traces_at_once: int`. How many traces one export may hold; 1, if it is missing.
    - `scores_as_spans: bool`. True: an observer sends a span of kind "evaluator" for each score,
      and does not call `score`. False, if it is missing: an observer calls `score`, for several
      scores at once, and sends no such spans. A sink without `score` gets the spans.
    - `trace_id_of: Callable[[Span], str]`. Returns the trace id under which the sink sends a span,
      which `score` and `known` are called with; that of the span, if it is missing.
    """

    async def export(self, spans: Sequence[Span]) -> None:
        """Take spans, parents before children.

        A span that was taken before may come again, with the same ids: unchanged after a restart,
        or further on when it was still open. An empty sequence does nothing.

        Raises:
            ExportError: they were not delivered. The caller logs it, and no run is affected.
        """
        ...


@runtime_checkable
class ScoringSink(TraceSink, Protocol):
    """A sink whose backend keeps scores beside spans."""

    async def score(
        self, trace_id: str, scores: Sequence[Score], *, span_id: str | None = None
    ) -> None:
        """Attach scores to a span, or to the trace as a whole; a repeat changes nothing.

        Args:
            trace_id: of the trace, which has been exported to this sink.
            scores: one without a time has that of its recording. Those of an observer have theirs.
            span_id: of the span that was judged, None for the trace.

        Raises:
            ExportError: they were not delivered.
            ValueError: this backend attaches scores to spans only, and there is no `span_id`.
        """
        ...
