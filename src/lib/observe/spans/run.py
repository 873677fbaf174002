"""The spans of one run while its log is being read. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from lib._util.trace_context import trace_context_of
from lib.events import Event
from lib.observe import attributes as a
from lib.observe.span import (
    RemoteParent,
    Span,
    SpanEvent,
    SpanKind,
    Status,
    span_id_of,
    trace_id_of,
)
from lib.observe.spans.content import Content, Conversation
from lib.observe.spans.values import MAX_NAME, mapping, number, text

RUN: Final = "run"
"""The family of a run's own span; its key is empty."""


@dataclass(slots=True)
class PendingSpan:
    """A span that later events may still change."""

    span_id: str
    parent_id: str | None
    name: str
    kind: SpanKind
    start: datetime
    attributes: dict[str, Any]
    input: Any = None
    end: datetime | None = None
    status: Status = "ok"
    message: str | None = None
    output: Any = None
    events: list[SpanEvent] = field(default_factory=list[SpanEvent])

    def finish(
        self,
        at: datetime,
        attributes: Mapping[str, Any],
        *,
        status: Status,
        message: str | None,
        shown: Any,
    ) -> None:
        """End the span."""
        self.end = max(at, self.start)
        self.attributes |= attributes
        self.status, self.message = status, message
        if shown is not None:
            self.output = shown


class RunSpans:
    """The spans of a run, begun and finished by the readers of its events.

    Attributes:
        content: cuts or hides content.
        conversation: the messages so far, kept only if content is shown.
        conversation_id: the session that the run is, or that it is a turn of; set by an event, and
            an attribute of every span that begins after it.
        ended: whether the run has ended.
        begun: the turns that have runs of their own.
        last_own_event_at: the time of the last event of the run's owner.
    """

    def __init__(
        self, started: Event, parent_id: str | None, session_id: str | None, content: Content
    ) -> None:
        """Begin the run's own span.

        Args:
            started: the run's first event.
            parent_id: the span that it hangs under, None for the root of a trace.
            session_id: the session that it is a turn of, None if there is none.
            content: cuts or hides content.
        """
        self.content: Content = content
        self.conversation: Conversation = Conversation(kept=content.capture)
        self.conversation_id: str | None = session_id
        self.ended: bool = False
        self.begun: set[str] = set()
        self.last_own_event_at: datetime | None = started.at
        self._started = started
        self._remote_parent = _remote_parent_of(started)
        self._trace_id = (
            self._remote_parent.trace_id
            if self._remote_parent is not None
            else trace_id_of(_root_id_of(started))
        )
        run_id = span_id_of(started.run_id, RUN, "")
        self._run = PendingSpan(run_id, parent_id, RUN, "agent", started.at, {})
        self._used: dict[str, float] = {}
        self._signals: set[str] = set()
        self._spans: dict[tuple[str, str], PendingSpan] = {}
        self._open: dict[tuple[str, str], PendingSpan] = {}
        self._ids = {run_id}

    def result(self) -> list[Span]:
        """Return the spans, the run's own first."""
        self._run.attributes |= {a.TOTALS[name]: used for name, used in self._used.items()}
        self._set_name()
        return [self._span(span) for span in (self._run, *self._spans.values())]

    def become(self, kind: SpanKind) -> None:
        """Note that the run is more than one agent; a session stays one, whatever happens in it."""
        if kind == "session":
            self.conversation_id = self._started.run_id
        if self._run.kind != "session":
            self._run.kind = kind

    def describe(self, attributes: Mapping[str, Any], shown: Any = None) -> None:
        """Add attributes to the run's own span, and set its input as far as it may be shown."""
        self._run.attributes |= attributes
        self._run.input = shown

    def set_first_input(self, shown: Any) -> None:
        """Use the input of a session's first turn as its own, if it began without any."""
        if not self._run.input:
            self._run.input = shown

    def set_last_output(self, shown: Any) -> None:
        """Use the answer of a session's last turn as its output, until it has one of its own."""
        self._run.output = shown

    def end(
        self,
        at: datetime,
        attributes: Mapping[str, Any],
        *,
        status: Status,
        message: str | None,
        shown: Any,
    ) -> None:
        """Finish the run's own span."""
        self.ended = True
        self._run.finish(at, attributes, status=status, message=message, shown=shown)

    def begin(
        self,
        event: Event,
        family: str,
        key: str,
        *,
        name: str,
        kind: SpanKind,
        attributes: dict[str, Any],
        shown: Any = None,
        under: str | None = None,
    ) -> None:
        """Begin a span; a second one of the same family and key is ignored.

        Args:
            event: begins it.
            family: see `span_id_of`.
            key: see `span_id_of`.
            name: operation and object.
            kind: what it is.
            attributes: of the span so far; the span keeps the dict. None values are left out.
            shown: its input, as far as it may be shown.
            under: the span to hang it under if this run has it so far, else its own.
        """
        family_key = (family, key)
        if family_key in self._spans:
            return
        span_id = span_id_of(event.run_id, family, key)
        parent_id = under if under in self._ids else self._run.span_id
        self._ids.add(span_id)
        if self.conversation_id is not None:
            attributes[a.CONVERSATION_ID] = self.conversation_id
        span = PendingSpan(span_id, parent_id, name[:MAX_NAME], kind, event.at, attributes, shown)
        self._spans[family_key] = self._open[family_key] = span

    def finish(
        self,
        at: datetime,
        family: str,
        key: str,
        attributes: Mapping[str, Any],
        *,
        model: str | None = None,
        status: Status = "ok",
        message: str | None = None,
        shown: Any = None,
        moments: Sequence[tuple[float, str, Mapping[str, Any]]] = (),
    ) -> None:
        """Finish a span; does nothing if there is none, or if it is finished.

        Args:
            at: when; clocks of processes differ, so it may be before the start.
            family: as it was begun.
            key: as it was begun.
            attributes: to add; None values are left out.
            model: appended to a name without a model.
            status: of the span.
            message: the error, as far as it may be shown.
            shown: its output, as far as it may be shown.
            moments: of the span: seconds after its start, name and attributes.
        """
        span = self._open.pop((family, key), None)
        if span is None:
            return
        if model is not None and " " not in span.name:
            span.name = f"{span.name} {model}"[:MAX_NAME]
        span.finish(at, attributes, status=status, message=message, shown=shown)
        took_s = (max(at, span.start) - span.start).total_seconds()
        span.events += [
            SpanEvent(name, span.start + timedelta(seconds=min(max(0, after_s), took_s)), _tidy(of))
            for after_s, name, of in moments
        ]

    def add(
        self,
        event: Event,
        family: str,
        key: str,
        times: tuple[datetime, datetime],
        *,
        name: str,
        kind: SpanKind,
        attributes: dict[str, Any],
        under: str | None,
        status: Status = "ok",
        shown: tuple[Any, Any] = (None, None),
    ) -> str:
        """Add a span that one event records with its times, and return its id.

        Args:
            event: it.
            family: see `span_id_of`.
            key: see `span_id_of`.
            times: when it began and ended.
            name: operation and object.
            kind: what it is.
            attributes: of the span; None values are left out.
            under: as for `begin`.
            status: of the span.
            shown: its input and its output, as far as they may be shown.
        """
        start, end = times
        self.begin(
            event,
            family,
            key,
            name=name,
            kind=kind,
            attributes=attributes,
            shown=shown[0],
            under=under,
        )
        span = self._open.get((family, key))
        if span is not None:
            span.start = start
        self.finish(end, family, key, {}, status=status, shown=shown[1])
        return span_id_of(event.run_id, family, key)

    def is_open(self, family: str, key: str) -> bool:
        """Return True if a span has begun and is not finished."""
        return (family, key) in self._open

    def mark(
        self,
        event: Event,
        family: str,
        key: str,
        *,
        name: str,
        kind: SpanKind = "internal",
        attributes: dict[str, Any],
        shown: Any = None,
        under: str | None = None,
    ) -> None:
        """Add a span without length.

        Args:
            event: it.
            family: see `span_id_of`.
            key: see `span_id_of`.
            name: operation and object.
            kind: what it is.
            attributes: of the span; None values are left out.
            shown: its output, as far as it may be shown.
            under: as for `begin`.
        """
        self.begin(event, family, key, name=name, kind=kind, attributes=attributes, under=under)
        self.finish(event.at, family, key, {}, shown=shown)

    def note(self, family: str, key: str, attributes: Mapping[str, Any]) -> None:
        """Add attributes to an open span."""
        span = self._open.get((family, key))
        if span is not None:
            span.attributes |= attributes

    def still_open(self) -> list[tuple[str, str]]:
        """Return family and key of each open span."""
        return list(self._open)

    def resumed(self) -> None:
        """Count a takeover on every call that it interrupted; waits are not interrupted."""
        for span in self._open.values():
            if span.kind != "internal":
                span.attributes[a.RESUMES] = span.attributes.get(a.RESUMES, 0) + 1

    def moment(
        self,
        event: Event,
        key: str,
        name: str,
        attributes: Mapping[str, Any],
        *,
        at: datetime | None = None,
    ) -> None:
        """Add a `SpanEvent` to the run; a repeated key is ignored."""
        if key not in self._signals:
            self._signals.add(key)
            self._run.events.append(SpanEvent(name, at or event.at, _tidy(attributes)))

    def use(self, name: str, used: float) -> None:
        """Add to a total of the run, named as in `TOTALS`."""
        self._used[name] = self._used.get(name, 0) + used

    def usage(self, usage: Any) -> dict[str, Any]:
        """Add a usage to the totals of the run, and return it as attributes of a leaf."""
        leaf: dict[str, Any] = {}
        counts = mapping(usage)
        for name, attributes in a.USAGE.items():
            used = number(counts.get(name))
            if used is not None:
                self.use(name, used)
                for attribute in attributes:
                    leaf[attribute] = used
        return leaf

    def _set_name(self) -> None:
        """Name the run's own span by its kind and algorithm."""
        agent = self._run.kind == "agent"
        operation = "invoke_agent" if agent else "invoke_workflow"
        called = (text(self._started.data.get("algorithm")) or "")[:MAX_NAME]
        self._run.name = f"{operation} {called}"[:MAX_NAME]
        self._run.attributes |= {
            a.OPERATION: operation,
            a.AGENT_ID: called,
            a.AGENT_NAME: called,
            a.CONVERSATION_ID: self.conversation_id,
        }

    def _span(self, span: PendingSpan) -> Span:
        return Span(
            self._trace_id,
            span.span_id,
            span.parent_id,
            span.name,
            span.kind,
            span.start,
            span.end,
            span.status,
            span.message,
            _tidy(span.attributes),
            list(span.events),
            self._started.run_id,
            self._started.tenant,
            self._started.user,
            span.input,
            span.output,
            remote_parent=self._remote_parent,
        )


def _root_id_of(started: Event) -> str:
    return started.data.get("root", started.run_id)


def _remote_parent_of(started: Event) -> RemoteParent | None:
    """Return the application's span within which the root run was started, if it was in one."""
    joined = trace_context_of(started.data)
    if joined is None:
        return None
    own = trace_id_of(_root_id_of(started))
    return RemoteParent(joined.trace_id, joined.span_id, joined.state, own)


def _tidy(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes that have a value, sorted by name."""
    return {name: attributes[name] for name in sorted(attributes) if attributes[name] is not None}
