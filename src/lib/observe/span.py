"""Spans: what a trace is made of, how its ids come about, and who takes it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal, Protocol, get_args

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


class TraceSink(Protocol):
    """Where spans go."""

    async def export(self, spans: Sequence[Span]) -> None:
        """Take spans, parents before children.

        A span that was taken before may come again, with the same ids: unchanged after a restart,
        or further on when it was still open. An empty sequence does nothing.

        Raises:
            ExportError: they were not delivered. The caller logs it, and no run is affected.
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
