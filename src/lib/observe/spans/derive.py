"""The spans of a run from its log, with those of single events: verdicts, scores, steps. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from lib.evals import Score, score_of
from lib.events import Event
from lib.events import kinds as k
from lib.events.payloads import readable
from lib.observe import attributes as a
from lib.observe.span import LOST, Span, SpanEvent, span_id_of
from lib.observe.spans import calls, lifecycle
from lib.observe.spans.content import Content, Definitions
from lib.observe.spans.run import RUN, RunSpans
from lib.observe.spans.values import identifier, mapping, moment, name, number, text, word


def guard_verdict(run: RunSpans, event: Event, key: str) -> None:
    """Add a guard's check under the call whose content it checked; the log has the hash only."""
    data = event.data
    family = "tool" if (word(data.get("stage")) or "").startswith("tool") else "llm"
    checked = span_id_of(event.run_id, family, text(data.get("key")) or "")
    guard = name(data.get("guard"))
    attributes = {
        a.GUARD_NAME: guard,
        a.GUARD_STAGE: word(data.get("stage")),
        a.GUARD_VERDICT: word(data.get("verdict")),
        a.GUARD_CONTENT: word(data.get("content_hash")),
        **_spent(run, event),
    }
    start, end = moment(event.data.get("start")), moment(event.data.get("end"))
    run.add(
        event,
        "guard",
        key,
        (start or event.at, end or event.at),
        name=_span_name("guard", guard),
        kind="guardrail",
        attributes=attributes,
        under=checked,
    )


def eval_score(run: RunSpans, event: Event, key: str) -> None:
    """Add a score under the scored span; an unreadable score adds nothing."""
    score = score_of(event)
    if score is None:
        return
    label = _label(score)
    attributes = {
        a.EVALUATION_NAME: name(score.name),
        a.EVALUATION_VALUE: score.numeric,
        a.EVALUATION_LABEL: word(label) or run.content.show(label),
        a.EVALUATION_WHY: run.content.show(score.comment),
        a.EVALUATION_META: run.content.show(dict(score.meta) or None),
        a.EVALUATION_SOURCE: score.source,
    }
    run.mark(
        event,
        "score",
        key,
        name=f"evaluate {score.name}",
        kind="evaluator",
        attributes=attributes,
        under=word(event.data.get("span_id")),
    )


def _label(score: Score) -> str | None:
    if isinstance(score.value, str):
        return score.value
    if isinstance(score.value, bool):
        return "pass" if score.value else "fail"
    return None


def context_summary(run: RunSpans, event: Event, key: str) -> None:
    """Add a summary that replaces a part of the conversation, or finish the one that was due."""
    data = event.data
    attributes = {a.SUMMARY_COVERS: word(data.get("covers")), **_spent(run, event)}
    shown = run.content.show(text(data.get("text")))
    due = text(data.get("key")) or ""
    if run.is_open("context", due):
        run.finish(event.at, "context", due, attributes, shown=shown)
    else:
        run.mark(event, "summary", key, name="context summary", attributes=attributes, shown=shown)


def swarm_handoff(run: RunSpans, event: Event, key: str) -> None:
    """Add a handoff from one agent of a swarm to another."""
    source, target = name(event.data.get("source")), name(event.data.get("target"))
    attributes = {a.HANDOFF_SOURCE: source, a.HANDOFF_TARGET: target}
    run.mark(event, "handoff", key, name=_span_name("handoff", target), attributes=attributes)


def reflexion_feedback(run: RunSpans, event: Event, key: str) -> None:
    """Add the feedback on an agent's last attempt."""
    shown = run.content.show(text(event.data.get("text")))
    run.mark(event, "feedback", key, name="reflexion feedback", attributes={}, shown=shown)


def debate_turn(run: RunSpans, event: Event, key: str) -> None:
    """Add the words of one side of a debate."""
    data = event.data
    agent = name(data.get("agent"))
    attributes = {a.DEBATE_AGENT: agent, a.DEBATE_ROUND: number(data.get("round"))}
    shown = run.content.show(text(data.get("text")))
    title = _span_name("debate turn", agent)
    run.mark(event, "debate", key, name=title, attributes=attributes, shown=shown)


def _spent(run: RunSpans, event: Event) -> dict[str, Any]:
    """Return the usage of a model for the event, and the model."""
    data = event.data
    return {
        a.PROVIDER: word(data.get("provider")),
        a.RESPONSE_MODEL: identifier(data.get("model")),
        **run.usage(data.get("usage")),
    }


def _span_name(operation: str, name: str | None) -> str:
    return f"{operation} {name}" if name else operation


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
    k.TOOL_AWAITED: (calls.tool_awaited, _KEY),
    k.TOOL_ANSWERED: (calls.tool_answered, _KEY),
    k.APPROVAL_REQUESTED: (calls.approval_requested, _KEY),
    k.APPROVAL_DECIDED: (calls.approval_decided, _KEY),
    k.CHILD_REQUESTED: (calls.child_requested, _KEY),
    k.CHILD_COMPLETED: (calls.child_completed, _KEY),
    k.TURN_REQUESTED: (lifecycle.turn_requested, _SIGNAL),
    k.TURN_STARTED: (lifecycle.turn_started, _KEY),
    k.TURN_COMPLETED: (lifecycle.turn_completed, _SIGNAL),
    k.CONTEXT_REQUESTED: (calls.context_requested, _KEY),
    k.CONTEXT_SUMMARY: (context_summary, _SEQ),
    k.CONTEXT_FAILED: (calls.context_failed, _KEY),
    k.MEMORY_REQUESTED: (calls.memory_requested, _KEY),
    k.MEMORY_COMPLETED: (calls.memory_completed, _KEY),
    k.MEMORY_FAILED: (calls.memory_failed, _KEY),
    k.GUARD_VERDICT: (guard_verdict, _SEQ),
    k.EVAL_SCORE: (eval_score, _SIGNAL),
    k.SWARM_HANDOFF: (swarm_handoff, _SEQ),
    k.REFLEXION_FEEDBACK: (reflexion_feedback, _SEQ),
    k.DEBATE_TURN: (debate_turn, _SEQ),
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
