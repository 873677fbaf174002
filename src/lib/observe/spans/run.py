"""The spans of one run while its log is being read. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
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
class Draft:
    """A span of which more may become known."""

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
    """Begins and finishes spans as a reader of the log says; whatever is finished stays.

    Attributes:
        content: what may be shown of what the log holds.
        conversation: what was said so far, kept only if it may be shown.
        conversation_id: the session that the run is, or that it is a turn of; known from some
            event on, and told of every span that begins after it.
        ended: whether the run has.
        begun: the turns that have runs of their own.
        heard_at: when the run's owner wrote its last event, None before a takeover could follow.
    """

    def __init__(
        self, started: Event, parent_id: str | None, session_id: str | None, content: Content
    ) -> None:
        """Begin with the run's own span.

        Args:
            started: the run's first event.
            parent_id: the span that it hangs under, None for the root of a trace.
            session_id: the session that it is a turn of, if that is known.
            content: what may be shown.
        """
        self.content = content
        self.conversation = Conversation(kept=content.capture)
        self.conversation_id = session_id
        self.ended = False
        self.begun: set[str] = set()
        self.heard_at: datetime | None = started.at
        self._started = started
        self._remote_parent = _remote_parent_of(started)
        self._trace_id = (
            self._remote_parent.trace_id
            if self._remote_parent is not None
            else trace_id_of(_root_id_of(started))
        )
        run_id = span_id_of(started.run_id, RUN, "")
        self._run = Draft(run_id, parent_id, RUN, "agent", started.at, {})
        self._used: dict[str, float] = {}
        self._moments: list[SpanEvent] = []
        self._signals: set[str] = set()
        self._drafts: dict[tuple[str, str], Draft] = {}
        self._open: dict[tuple[str, str], Draft] = {}
        self._ids = {run_id}

    def result(self) -> list[Span]:
        """Return the spans, the run's own first."""
        self._run.attributes |= {a.TOTALS[name]: used for name, used in self._used.items()}
        self._describe()
        own = self._span(self._run, list(self._moments))
        return [own, *(self._span(draft, []) for draft in self._drafts.values())]

    def become(self, kind: SpanKind) -> None:
        """Note that the run is more than one agent; a session stays one, whatever happens in it."""
        if kind == "session":
            self.conversation_id = self._started.run_id
        if self._run.kind != "session":
            self._run.kind = kind

    def know(self, attributes: Mapping[str, Any], shown: Any = None) -> None:
        """Say what is known of the run from its start, and its input as far as it may be shown."""
        self._run.attributes |= attributes
        self._run.input = shown

    def heard(self, shown: Any) -> None:
        """Take what the first turn of a session says for its input, if it began without any."""
        if not self._run.input:
            self._run.input = shown

    def answered(self, shown: Any) -> None:
        """Take the answer of a session's last turn for its output, until it has one of its own."""
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
        """Begin a span; a second one of the same family and key is none.

        Args:
            event: begins it.
            family: see `span_id_of`.
            key: see `span_id_of`.
            name: operation and object.
            kind: what it is.
            attributes: what is known so far, kept by the span; None values are left out.
            shown: its input, as far as it may be shown.
            under: the span to hang it under if this run has it so far, else its own.
        """
        place = (family, key)
        if place in self._drafts:
            return
        span_id = span_id_of(event.run_id, family, key)
        parent_id = under if under in self._ids else self._run.span_id
        self._ids.add(span_id)
        if self.conversation_id is not None:
            attributes[a.CONVERSATION_ID] = self.conversation_id
        draft = Draft(span_id, parent_id, name[:MAX_NAME], kind, event.at, attributes, shown)
        self._drafts[place] = self._open[place] = draft

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
    ) -> None:
        """Finish a span; nothing happens if there is none, or if it is finished.

        Args:
            at: when; clocks of processes differ, so it may be before the start.
            family: as it was begun.
            key: as it was begun.
            attributes: what is known in addition; None values are left out.
            model: which model it was, for a name that does not say it yet.
            status: how it came out.
            message: what went wrong, as far as it may be shown.
            shown: its output, as far as it may be shown.
        """
        draft = self._open.pop((family, key), None)
        if draft is None:
            return
        if model is not None and " " not in draft.name:
            draft.name = f"{draft.name} {model}"[:MAX_NAME]
        draft.finish(at, attributes, status=status, message=message, shown=shown)

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
        """Add a span that one event tells of with its times, and return its id.

        Args:
            event: it.
            family: see `span_id_of`.
            key: see `span_id_of`.
            times: when it began and ended.
            name: operation and object.
            kind: what it is.
            attributes: all that is known; None values are left out.
            under: as for `begin`.
            status: how it came out.
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
        draft = self._open.get((family, key))
        if draft is not None:
            draft.start = start
        self.finish(end, family, key, {}, status=status, shown=shown[1])
        return span_id_of(event.run_id, family, key)

    def is_open(self, family: str, key: str) -> bool:
        """Tell whether a span has begun and is not finished."""
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
        """Add a span without length: what the log tells of at one moment only.

        Args:
            event: it.
            family: see `span_id_of`.
            key: see `span_id_of`.
            name: operation and object.
            kind: what it is.
            attributes: all that is known; None values are left out.
            shown: its output, as far as it may be shown.
            under: as for `begin`.
        """
        self.begin(event, family, key, name=name, kind=kind, attributes=attributes, under=under)
        self.finish(event.at, family, key, {}, shown=shown)

    def note(self, family: str, key: str, attributes: Mapping[str, Any]) -> None:
        """Add to what is known of a span that has not been finished."""
        draft = self._open.get((family, key))
        if draft is not None:
            draft.attributes |= attributes

    def still_open(self) -> list[tuple[str, str]]:
        """Return family and key of each span that has not been finished."""
        return list(self._open)

    def resumed(self) -> None:
        """Count a takeover on every call that it has cut off; what waits has not noticed."""
        for draft in self._open.values():
            if draft.kind != "internal":
                draft.attributes[a.RESUMES] = draft.attributes.get(a.RESUMES, 0) + 1

    def moment(
        self,
        event: Event,
        key: str,
        name: str,
        attributes: Mapping[str, Any],
        *,
        at: datetime | None = None,
    ) -> None:
        """Note a moment of the run; one that is repeated under the same key is none."""
        if key not in self._signals:
            self._signals.add(key)
            self._moments.append(SpanEvent(name, at or event.at, _tidy(attributes)))

    def use(self, name: str, used: float) -> None:
        """Add to a total of the run, named as in `TOTALS`."""
        self._used[name] = self._used.get(name, 0) + used

    def usage(self, usage: Any) -> dict[str, Any]:
        """Add a usage to the totals of the run, and return it as attributes of a leaf."""
        leaf: dict[str, Any] = {}
        told = mapping(usage)
        for name, attributes in a.USAGE.items():
            used = number(told.get(name))
            if used is not None:
                self.use(name, used)
                for attribute in attributes:
                    leaf[attribute] = used
        return leaf

    def _describe(self) -> None:
        """Name the run's own span by what it has turned out to be."""
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

    def _span(self, draft: Draft, moments: list[SpanEvent]) -> Span:
        return Span(
            self._trace_id,
            draft.span_id,
            draft.parent_id,
            draft.name,
            draft.kind,
            draft.start,
            draft.end,
            draft.status,
            draft.message,
            _tidy(draft.attributes),
            moments,
            self._started.run_id,
            self._started.tenant,
            self._started.user,
            draft.input,
            draft.output,
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
