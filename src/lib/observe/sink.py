"""The protocol of trace sinks: one method, declared traits, and scores if it keeps them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias, runtime_checkable

from lib.evals import Score
from lib.observe.span import Span

Updates = Literal["replace", "first"]
"""What a backend does with a second version of a span: it replaces the first, or is ignored."""

OnTaken: TypeAlias = Callable[[Sequence[str]], None]
"""Receives the ids of spans that were delivered and must not be sent again."""


def _own_trace_id(span: Span) -> str:
    return span.trace_id


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkTraits:
    """The abilities of a sink and the behaviour of its backend, declared as `traits`.

    Attributes:
        destination: names the backend, the same after a restart, without anything secret. What a
            destination has acknowledged is stored with the log. None for a sink whose spans are
            gone with the process.
        updates: "replace": a span is sent again whenever more is known of it, open spans too.
            "first": it is sent once, when it has ended.
        needs_root: whether the backend drops a trace whose root span does not arrive. Then nothing
            of a trace is sent before its root has ended; the root of a session is sent with the
            first turns, as if it had ended with them.
        reports_taken: whether `export` accepts a function as `on_taken` and calls it with the ids
            of spans as soon as they are delivered.
        traces_per_export: how many traces one export may contain.
        scores_as_spans: whether an observer sends a span of kind "evaluator" for each score and
            does not call `score`. Otherwise it calls `score`, several times at once, and sends no
            such spans. A sink without `score` receives the spans.
        trace_id_of: returns the trace id under which the sink sends a span; `score` and
            `stored_span_ids` are called with it.
    """

    destination: str | None
    updates: Updates = "replace"
    needs_root: bool = False
    reports_taken: bool = False
    traces_per_export: int = 1
    scores_as_spans: bool = False
    trace_id_of: Callable[[Span], str] = _own_trace_id


class TraceSink(Protocol):
    """A destination of spans.

    A sink may declare `traits: SinkTraits`. One without gets the defaults, with the name of its
    type as its destination.
    """

    async def export(self, spans: Sequence[Span]) -> None:
        """Deliver spans, parents before children.

        A span may come again with the same ids: unchanged after a restart, or with an end when it
        was open before. An empty sequence does nothing.

        Raises:
            ExportError: the spans were not delivered. The caller logs it, and no run is affected.
        """
        ...


@runtime_checkable
class ScoringSink(TraceSink, Protocol):
    """A sink whose backend keeps scores beside spans."""

    async def score(
        self, trace_id: str, scores: Sequence[Score], *, span_id: str | None = None
    ) -> None:
        """Attach scores to a span, or to the trace as a whole; repeating a call changes nothing.

        Args:
            trace_id: of a trace that was exported to this sink.
            scores: one without a time counts as made now; those of an observer have their time.
            span_id: of the scored span, None for the trace.

        Raises:
            ExportError: the scores were not delivered.
            ValueError: this backend attaches scores to spans only, and `span_id` is None.
        """
        ...


@runtime_checkable
class QueryableSink(TraceSink, Protocol):
    """A sink that can look up which spans of a trace have arrived."""

    async def stored_span_ids(self, trace_id: str) -> frozenset[str]:
        """Return the ids of the spans of a trace that the backend has.

        Raises:
            ExportError: the backend could not be read.
        """
        ...


@runtime_checkable
class _DeclaringSink(Protocol):
    @property
    def traits(self) -> object: ...


def traits_of(sink: TraceSink) -> SinkTraits:
    """Return the traits that a sink declares, the defaults if it declares none.

    Raises:
        TypeError: its `traits` are something else.
    """
    if not isinstance(sink, _DeclaringSink):
        return SinkTraits(destination=type(sink).__qualname__)
    traits = sink.traits
    if not isinstance(traits, SinkTraits):
        kind, got = type(sink).__qualname__, type(traits).__qualname__
        raise TypeError(f"expected SinkTraits as {kind}.traits, got {got}")
    return traits
