"""How a span is told in words: what it is, how it came out, how long it took. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any, Final, Literal

from lib.observe import attributes as a
from lib.observe.span import Span

State = Literal["ok", "error", "off", "open"]
"""How a span came out: well, as an error, called off by somebody, or not yet."""

_LONG_S: Final = 0.01
"""What takes longer than this is shown in whole milliseconds."""

_OPERATIONS: Final[Mapping[str, str]] = {
    "invoke_agent": "agent",
    "execute_tool": "tool",
    "invoke_workflow": "workflow",
}
"""What the operations of the conventions are called here."""

_EXPLAINED: Final = {"FAILED": a.ERROR_TYPE, "LIMITED": a.REASON, "BLOCKED": a.REASON}
"""Where the reason of an outcome is found, if it is told at all."""


def operation_of(span: Span) -> tuple[str, str]:
    """Return what is done and to what, such as `tool` and `search_orders`; the second can be ""."""
    operation, _, what = span.name.partition(" ")
    return _OPERATIONS.get(operation, operation), what


def state_of(span: Span) -> State:
    """Return how a span came out."""
    if span.end is None:
        return "open"
    if span.status == "error":
        return "error"
    return "off" if _called_off(span.attributes) else "ok"


def status_words(span: Span) -> Iterator[str]:
    """Yield what to say of how a span came out; nothing, if all is as it should be."""
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


def _called_off(attributes: Mapping[str, Any]) -> bool:
    return (
        attributes.get(a.RUN_OUTCOME) == "CANCELLED"
        or attributes.get(a.REASON) in ("cancelled", "denied")
        or attributes.get(a.APPROVED) is False
    )


def _decided(attributes: Mapping[str, Any]) -> Iterator[str]:
    for name in (a.REASON, a.GUARD_VERDICT):
        if name in attributes:
            yield str(attributes[name])
    if a.APPROVED in attributes:
        said = "approved" if attributes[a.APPROVED] else "denied"
        by = attributes.get(a.APPROVED_BY)
        yield f"{said} by {by}" if by else said
