"""From the log of a run to its spans."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

from lib.events import Event
from lib.events import kinds as k
from lib.events.payloads import readable
from lib.observe import attributes as a
from lib.observe.span import LOST, Span, SpanEvent, span_id_of
from lib.observe.spans import calls, lifecycle, moments
from lib.observe.spans.content import Content, Definitions
from lib.observe.spans.run import RUN, RunSpans
from lib.observe.spans.values import mapping, text

INTERRUPTED: Final = "interrupted"

_STARTERS: Final = {
    **dict.fromkeys((k.TOOL_REQUESTED, k.CHILD_REQUESTED), ("tool", "key")),
    k.TURN_REQUESTED: ("turn", "signal_id"),
}
"""By kind of event that starts a child run: the family of its span, and the field of its key."""


Reader = Callable[[RunSpans, Event, str], None]

_KEY: Final = "key"
_SIGNAL: Final = "signal_id"
_SEQ: Final = ""

READERS: Final[Mapping[str, tuple[Reader, str]]] = {
    k.RUN_RESUMED: (lifecycle.run_resumed, _SEQ),
    k.RUN_COMPLETED: (lifecycle.run_completed, _SEQ),
    k.CANCEL_REQUESTED: (lifecycle.cancel_requested, _SIGNAL),
    k.LLM_REQUESTED: (calls.llm_requested, _KEY),
    k.LLM_COMPLETED: (calls.llm_completed, _KEY),
    k.LLM_FAILED: (calls.llm_failed, _KEY),
    k.TOOL_REQUESTED: (calls.tool_requested, _KEY),
    k.TOOL_CHECKED: (calls.tool_checked, _KEY),
    k.TOOL_COMPLETED: (calls.tool_completed, _KEY),
    k.TOOL_FAILED: (calls.tool_failed, _KEY),
    k.APPROVAL_REQUESTED: (calls.approval_requested, _KEY),
    k.APPROVAL_DECIDED: (calls.approval_decided, _KEY),
    k.CHILD_REQUESTED: (calls.child_requested, _KEY),
    k.CHILD_COMPLETED: (calls.child_completed, _KEY),
    k.TURN_REQUESTED: (lifecycle.turn_requested, _SIGNAL),
    k.TURN_STARTED: (lifecycle.turn_started, _KEY),
    k.TURN_COMPLETED: (lifecycle.turn_completed, _SIGNAL),
    k.CONTEXT_SUMMARY: (moments.context_summary, _SEQ),
    k.MEMORY_REQUESTED: (calls.memory_requested, _KEY),
    k.MEMORY_COMPLETED: (calls.memory_completed, _KEY),
    k.MEMORY_FAILED: (calls.memory_failed, _KEY),
    k.GUARD_VERDICT: (moments.guard_verdict, _SEQ),
    k.EVAL_SCORE: (moments.eval_score, _SIGNAL),
    k.SWARM_HANDOFF: (moments.swarm_handoff, _SEQ),
    k.REFLEXION_FEEDBACK: (moments.reflexion_feedback, _SEQ),
    k.DEBATE_TURN: (moments.debate_turn, _SEQ),
}
"""By kind: the reader, and the payload field with the key of its span. Other kinds are ignored."""


def spans_from_events(
    events: Sequence[Event],
    *,
    parent_events: Sequence[Event] | None = None,
    capture_content: bool = False,
    content_limit: int = 4000,
    tool_definitions: Definitions | None = None,
) -> list[Span]:
    """Return the spans of one run, the run's own first; of its whole log or a prefix.

    Args:
        events: the run's events in log order, from the first one on; none give no spans.
        parent_events: the log of the parent run. Without it, the run hangs under the parent's own
            span, not under the call or turn that started it.
        capture_content: whether to show prompts, replies, arguments, results and error texts.
        content_limit: characters of each of them.
        tool_definitions: looks up definitions of tools, such as `Engine.tool_definitions`; without
            it, tools are shown by name.

    Raises:
        ValueError: the events are not those of one run from its start, or the limit is negative.
    """
    content = Content(capture=capture_content, limit=content_limit, definitions=tool_definitions)
    if not events:
        return []
    started = readable(events[0])
    if started.kind != k.RUN_STARTED:
        raise ValueError(f"a run's log begins with {k.RUN_STARTED!r}, got {started.kind!r}")
    run = RunSpans(started, *_parent_of(started, parent_events or ()), content)
    lifecycle.run_started(run, started)
    for event in events[1:]:
        if event.run_id != started.run_id:
            raise ValueError(f"events of runs {started.run_id!r} and {event.run_id!r} are mixed")
        _read(run, event)
    return run.result()


def _read(run: RunSpans, event: Event) -> None:
    """Let an event change the spans of its run; once that has ended, only scores do."""
    found = READERS.get(event.kind)
    if found is None or (run.ended and event.kind != k.EVAL_SCORE):
        return
    if kind := lifecycle.KIND_BY_EVENT.get(event.kind):
        run.become(kind)
    reader, field = found
    key = event.data.get(field)
    reader(run, event, key if isinstance(key, str) else str(event.seq))
    if not k.is_signal(event.kind):
        run.last_own_event_at = event.at


def _parent_of(started: Event, parent_events: Sequence[Event]) -> tuple[str | None, str | None]:
    """Return the span that a run hangs under, and the session that it is a turn of."""
    parent = mapping(started.data.get("parent"))
    run_id, key = text(parent.get("run_id")), text(parent.get("key")) or ""
    if run_id is None:
        return None, None
    for event in parent_events:  # plain, since every turn of a long session comes through here
        kind = event.kind
        if kind in _STARTERS and event.data.get(_STARTERS[kind][1]) == key:
            session_id = run_id if kind == k.TURN_REQUESTED else None
            return span_id_of(run_id, _STARTERS[kind][0], key), session_id
        if kind == k.RUN_COMPLETED:
            break
    return span_id_of(run_id, RUN, ""), None


def interrupt(spans: Sequence[Span], at: datetime) -> list[Span]:
    """Return the spans of a run whose process has died; open ones end as errors.

    Once the run is resumed, its log has their real ends. Waits for a person or for another run stay
    open.

    Args:
        spans: as `spans_from_events` returns them.
        at: the time of the last event of the run's owner.
    """
    ended = [_interrupted(span, at) for span in spans]
    if ended and ended[0] is not spans[0]:
        root = ended[0]
        ended[0] = replace(root, events=[*root.events, SpanEvent(LOST, max(at, root.start))])
    return ended


def _interrupted(span: Span, at: datetime) -> Span:
    if span.end is not None or span.kind == "internal":
        return span
    attributes = {**span.attributes, a.ERROR_TYPE: INTERRUPTED, a.RUN_OPEN: True}
    attributes = dict(sorted(attributes.items()))
    return replace(span, end=max(at, span.start), status="error", attributes=attributes)
