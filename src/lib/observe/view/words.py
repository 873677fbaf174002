"""Words for spans: operation, outcome, duration, title. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, Literal

from lib.observe import attributes as a
from lib.observe.dialects.messages import conversation
from lib.observe.dialects.values import json_text
from lib.observe.span import LOST, RESUMED, Span, SpanKind

CONVERSATIONS: Final[frozenset[SpanKind]] = frozenset({"agent", "session", "workflow", "llm"})
"""Kinds of spans whose content is messages."""

State = Literal["ok", "error", "off", "open"]
"""The outcome of a span: fine, an error, called off by a person or a guard, or still open."""

_STOPPED: Final = frozenset({"block", "blocked", "failed"})

_MAX_QUESTION: Final = 80
_LONG_S: Final = 0.01
"""Longer durations are shown in whole milliseconds."""

_OPERATIONS: Final[Mapping[str, str]] = {
    "invoke_agent": "agent",
    "execute_tool": "tool",
    "invoke_workflow": "workflow",
}
"""Shorter names for operations of the conventions."""

_EXPLAINED: Final = {"FAILED": a.ERROR_TYPE, "LIMITED": a.REASON, "BLOCKED": a.REASON}
"""By outcome, the attribute that holds its reason."""


def operation_of(span: Span) -> tuple[str, str]:
    """Return operation and object, such as `tool` and `search_orders`; the second can be ""."""
    operation, _, what = span.name.partition(" ")
    return _OPERATIONS.get(operation, operation), what


def state_of(span: Span) -> State:
    """Return the outcome of a span."""
    if span.end is None:
        return "open"
    if span.status == "error":
        return "error"
    return "off" if _called_off(span.attributes) else "ok"


def status_words(span: Span) -> Iterator[str]:
    """Yield words for the outcome of a span; none for one that is fine."""
    attributes = span.attributes
    if span.end is None:
        yield "waiting" if span.kind == "internal" else "open"
    elif outcome := attributes.get(a.RUN_OUTCOME):
        why = attributes.get(_EXPLAINED.get(outcome, ""))
        yield f"{outcome}: {why}" if why else outcome
    elif span.status == "error":
        yield str(attributes.get(a.ERROR_TYPE, "error"))
    else:
        yield from _decided(attributes)
    if attempts := attributes.get(a.ATTEMPTS):
        yield f"{attempts} attempts"
    if waited_s := attributes.get(a.WAITED_S):
        yield f"waited {waited_s:g} s"
    if a.RESUMES in attributes:
        yield "taken over"


def duration(took: timedelta) -> str:
    """Return a time in the two units that matter, such as `3.20 s` and `2 m 03 s`."""
    seconds = took.total_seconds()
    if seconds < 1:
        return f"{seconds * 1000:.{0 if seconds >= _LONG_S else 1}f} ms"
    if seconds < 60:  # noqa: PLR2004 - a minute
        return f"{seconds:.2f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:  # noqa: PLR2004 - an hour
        return f"{minutes} m {rest:02} s"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:  # noqa: PLR2004 - two days
        return f"{hours} h {minutes:02} m"
    return f"{hours // 24} d {hours % 24:02} h"


def count(number: int, what: str) -> str:
    """Return a number of things, such as `1 error` and `2 errors`."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def score_value(attributes: Mapping[str, Any]) -> str | None:
    """Return the value of a score, such as `0.8` or `polite`; None without one."""
    label, value = attributes.get(a.EVALUATION_LABEL), attributes.get(a.EVALUATION_VALUE)
    if isinstance(label, str):
        return label
    return f"{value:g}" if isinstance(value, int | float) else None


def is_waiting(span: Span) -> bool:
    """Return True if a span is a wait, such as that for an approval."""
    return span.kind == "internal" and operation_of(span)[0] in ("approval", "client_call")


def dead_times(span: Span) -> list[tuple[datetime, datetime]]:
    """Return the times in which a run had no process: from each death to the takeover."""
    found, lost = list[tuple[datetime, datetime]](), None
    for event in span.events:
        if event.name == LOST:
            lost = event.at
        elif event.name == RESUMED and lost is not None:
            found.append((lost, max(lost, event.at)))
            lost = None
    return found if lost is None else [*found, (lost, lost)]


def title_of(spans: Sequence[Span]) -> str:
    """Return agent, question and outcome of a trace; the question only if it was captured."""
    root = spans[0]
    _, agent = operation_of(root)
    outcome = root.attributes.get(a.RUN_OUTCOME) or ("open" if root.end is None else root.status)
    question = question_of(root.input)
    return " · ".join(part for part in (agent, question, str(outcome)) if part)


def last_message(value: Any, role: str) -> str | None:
    """Return the last message of a captured value, its role first; None if there is none.

    Args:
        value: what a span has captured.
        role: of a value that is no message.
    """
    for message in conversation(value, role)[-1:]:
        return f"{message.role}: {' '.join(filter(None, map(_part_text, message.parts)))}"
    return None


def _part_text(part: Mapping[str, Any]) -> str:
    match part["type"]:
        case "text" | "thinking":
            return str(part.get("text", ""))
        case "tool_call":
            return f"calls {part.get('name', '')} {json_text(part.get('arguments', {}))}"
        case "tool_result":
            content = part.get("content", "")
            return content if isinstance(content, str) else json_text(content)
        case other:
            return f"[{other}]"


def question_of(value: Any) -> str:
    """Return the last user message of a captured input on one line, "" if there is none."""
    messages = [message for message in conversation(value) if message.role == "user"]
    texts = [str(part.get("text", "")) for message in messages[-1:] for part in message.parts]
    question = " ".join(" ".join(texts).split())
    return question if len(question) <= _MAX_QUESTION else f"{question[: _MAX_QUESTION - 1]}…"


def _called_off(attributes: Mapping[str, Any]) -> bool:
    return (
        attributes.get(a.RUN_OUTCOME) == "CANCELLED"
        or attributes.get(a.REASON) in ("cancelled", "denied")
        or attributes.get(a.APPROVED) is False
        or attributes.get(a.GUARD_VERDICT) in _STOPPED
    )


def _decided(attributes: Mapping[str, Any]) -> Iterator[str]:
    for name in (a.REASON, a.GUARD_VERDICT):
        if name in attributes:
            yield str(attributes[name])
    if (value := score_value(attributes)) is not None:
        yield value
    if a.APPROVED in attributes:
        decision = "approved" if attributes[a.APPROVED] else "denied"
        by = attributes.get(a.APPROVED_BY)
        yield f"{decision} by {by}" if by else decision
