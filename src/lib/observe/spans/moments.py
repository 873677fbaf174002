"""Spans of single events: verdicts, scores, and the steps of algorithms. Pure."""

from __future__ import annotations

from typing import Any

from lib.evals import Score, score_of
from lib.events import Event
from lib.observe import attributes as a
from lib.observe.span import span_id_of
from lib.observe.spans.run import RunSpans
from lib.observe.spans.values import identifier, moment, name, number, text, word


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
    """Add a summary that replaces a part of the conversation."""
    data = event.data
    attributes = {a.SUMMARY_COVERS: word(data.get("covers")), **_spent(run, event)}
    shown = run.content.show(text(data.get("text")))
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
