"""Spans: what a trace is made of, how its ids come about, and who takes it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal, Protocol, get_args, runtime_checkable

from lib.evals import Score

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
class Span:
    """A stretch of a run: a model call, a tool call, the run itself.

    Attributes:
        trace_id: 32 hex digits, the same for a root run and all runs below it.
        span_id: 16 hex digits, the same whenever the span is derived again.
        parent_id: the span that it hangs under, None for the root of a trace.
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


def trace_id_of(root_run_id: str) -> str:
    """Return the trace id of a root run and of everything below it: 32 hex digits."""
    return _digits(root_run_id, 32)


def span_id_of(run_id: str, family: str, key: str) -> str:
    """Return the id of a span: 16 hex digits.

    Args:
        run_id: the run whose log tells of it.
        family: what begins it, such as "llm" for `lib.llm.requested`; "run" for the run itself.
        key: what tells it from others of its family in the run.
    """
    return _digits(f"{run_id}:{family}:{key}", 16)


def _digits(seed: str, size: int) -> str:
    # A key can hold what the model has made up, a lone surrogate included.
    raw = seed.encode("utf-8", "surrogatepass")
    return non_zero(hashlib.sha256(raw).hexdigest()[:size])


def non_zero(digits: str) -> str:
    """Return the hex digits of an id, or those of 1: on the wire, zero means that there is none."""
    return digits if digits.strip("0") else "1".rjust(len(digits), "0")
