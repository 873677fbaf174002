"""The spans of one run while its log is being read. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from lib.events import Event
from lib.observe import attributes as a
from lib.observe.span import Span, SpanEvent, SpanKind, Status, span_id_of, trace_id_of
from lib.observe.spans.content import Content, Conversation

RUN: Final = "run"
"""The family of a run's own span; its key is empty."""

MAX_NAME: Final = 128


class RunSpans:
    """Begins and finishes spans as a reader of the log says; whatever is finished stays.

    Attributes:
        content: what may be shown of what the log holds.
        conversation: what was said so far, kept only if it may be shown.
        ended: whether the run has.
    """

    def __init__(self, started: Event, parent_id: str | None, content: Content) -> None:
        """Begin with the run's own span."""
        self.content = content
        self.conversation = Conversation(kept=content.capture)
        self.ended = False
        self._used: dict[str, float] = {}
        self._moments: list[SpanEvent] = []
        self._signals: set[str | int] = set()
        self._known: set[tuple[str, str]] = set()
        self._open: dict[tuple[str, str], int] = {}
        self._run = Span(
            trace_id_of(started.data.get("root", started.run_id)),
            span_id_of(started.run_id, RUN, ""),
            parent_id,
            RUN,
            "agent",
            started.at,
            None,
            run_id=started.run_id,
            tenant=started.tenant,
            user=started.user,
        )
        self._spans: list[Span] = []

    def result(self) -> list[Span]:
        """Return the spans, the run's own first."""
        totals = {a.TOTALS[name]: number for name, number in self._used.items()}
        run = _changed(self._run, totals)
        return [replace(run, events=list(self._moments)), *self._spans]

    def describe(self, name: str, attributes: Mapping[str, Any], **fields: Any) -> None:
        """Name the run's own span and say what is known of it at its start."""
        self._run = _changed(self._run, attributes, name=name[:MAX_NAME], **fields)

    def end(self, at: datetime, attributes: Mapping[str, Any], **fields: Any) -> None:
        """Finish the run's own span."""
        self.ended = True
        self._run = _changed(self._run, attributes, end=max(at, self._run.start), **fields)

    def begin(
        self,
        event: Event,
        family: str,
        key: str,
        *,
        name: str,
        kind: SpanKind,
        attributes: Mapping[str, Any],
        shown: Any = None,
    ) -> None:
        """Begin a span below the run's own; a second one of the same family and key is none.

        Args:
            event: begins it.
            family: see `span_id_of`.
            key: see `span_id_of`.
            name: operation and object.
            kind: what it is.
            attributes: what is known so far; None values are left out.
            shown: its input, as far as it may be shown.
        """
        if (family, key) in self._known:
            return
        self._known.add((family, key))
        self._open[family, key] = len(self._spans)
        self._spans.append(
            Span(
                self._run.trace_id,
                span_id_of(event.run_id, family, key),
                self._run.span_id,
                name[:MAX_NAME],
                kind,
                event.at,
                None,
                attributes=tidy(attributes),
                run_id=event.run_id,
                tenant=event.tenant,
                user=self._run.user,
                input=shown,
            )
        )

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
            attributes: what is known in addition.
            model: which model it was, for a name that does not say it yet.
            status: how it came out.
            message: what went wrong, as far as it may be shown.
            shown: its output, as far as it may be shown.
        """
        place = self._open.pop((family, key), None)
        if place is None:
            return
        span = self._spans[place]
        name = span.name if model is None or " " in span.name else f"{span.name} {model}"
        self._spans[place] = _changed(
            span,
            attributes,
            name=name[:MAX_NAME],
            end=max(at, span.start),
            status=status,
            status_message=message,
            output=shown,
        )

    def finish_all(self, at: datetime, family: str) -> None:
        """Finish every open span of a family, of which the log tells no end of its own."""
        for opened, key in [pair for pair in self._open if pair[0] == family]:
            self.finish(at, opened, key, {})

    def resumed(self) -> None:
        """Count a takeover on every call that it has cut off; what waits has not noticed."""
        for place in self._open.values():
            span = self._spans[place]
            if span.kind != "internal":
                count = span.attributes.get(a.RESUMES, 0) + 1
                self._spans[place] = _changed(span, {a.RESUMES: count})

    def moment(self, event: Event, name: str, attributes: Mapping[str, Any]) -> None:
        """Note a moment of the run; a signal that is repeated is none."""
        signal = event.data.get("signal_id", event.seq)
        if signal not in self._signals:
            self._signals.add(signal)
            self._moments.append(SpanEvent(name, event.at, tidy(attributes)))

    def use(self, name: str, number: float) -> None:
        """Add to a total of the run, named as in `TOTALS`."""
        self._used[name] = self._used.get(name, 0) + number

    def usage(self, usage: Mapping[str, Any]) -> dict[str, Any]:
        """Add a usage to the totals of the run, and return it as attributes of a leaf."""
        leaf: dict[str, Any] = {}
        for name, attributes in a.USAGE.items():
            number = usage.get(name)
            if isinstance(number, int | float):
                self.use(name, number)
                leaf |= dict.fromkeys(attributes, number)
        return leaf


def tidy(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes that have a value, sorted by name."""
    return {name: attributes[name] for name in sorted(attributes) if attributes[name] is not None}


def _changed(span: Span, attributes: Mapping[str, Any], **fields: Any) -> Span:
    return replace(span, attributes=tidy({**span.attributes, **attributes}), **fields)
