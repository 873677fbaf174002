"""The tree that spans form, and its totals. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from lib.observe import attributes as a
from lib.observe.span import RESUMED, Span

MAX_LEVELS: Final = 32
"""Levels above a span that its row knows of: a chain of spans would take its length squared."""


@dataclass(frozen=True, slots=True)
class Row:
    """A span at its place in the tree.

    Attributes:
        last: for each level down to this one, whether the branch taken is the last; a span at the
            top has no levels. Of a deep one, the lowest `MAX_LEVELS` levels.
        depth: how many spans it hangs under.
    """

    span: Span
    last: tuple[bool, ...] = ()
    depth: int = 0


def rows(spans: Sequence[Span]) -> list[Row]:
    """Return the spans as a tree, from the top down, siblings in the order of their starts.

    A span whose parent does not come before it stands at the top. Of a span that comes more than
    once, the last version counts.
    """
    below: defaultdict[str, list[Span]] = defaultdict(list)
    top: list[Span] = []
    placed: set[str] = set()
    for span in {span.span_id: span for span in spans}.values():
        (below[span.parent_id] if span.parent_id in placed else top).append(span)
        placed.add(span.span_id)
    out: list[Row] = []
    stack = [Row(span) for span in reversed(top)]
    while stack:
        row = stack.pop()
        out.append(row)
        children = sorted(below[row.span.span_id], key=lambda span: span.start)
        above = row.last[1 - MAX_LEVELS :]
        stack += [
            Row(child, (*above, child is children[-1]), row.depth + 1)
            for child in reversed(children)
        ]
    return out


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """The sums over the spans of a trace.

    Attributes:
        took: from the first span's start to its end, None while it is open.
        cost: in US dollars, None if no span has one.
        errors: errors below which there is none; what is above them follows from them.
        resumes: how often a run was taken over.
    """

    took: timedelta | None
    llm_calls: int
    tool_calls: int
    input_tokens: int
    output_tokens: int
    cost: float | None
    errors: int
    resumes: int


def _errors(spans: Sequence[Span]) -> int:
    """Return how many errors have no error below them."""
    explained, found = set[str | None](), 0
    for span in reversed(spans):  # children before their parents
        if span.status == "error" and span.span_id not in explained:
            found += 1
        if span.status == "error" or span.span_id in explained:
            explained.add(span.parent_id)
    return found


def totals(spans: Sequence[Span]) -> Totals:
    """Return the sums over a trace of at least one span."""
    root = spans[0]
    costs = [span.attributes[a.COST] for span in spans if a.COST in span.attributes]
    return Totals(
        took=root.end and root.end - root.start,
        llm_calls=sum(span.kind == "llm" for span in spans),
        tool_calls=sum(
            span.kind == "tool" and a.TOOL_UNSTARTED not in span.attributes for span in spans
        ),
        input_tokens=sum(span.attributes.get(a.INPUT_TOKENS, 0) for span in spans),
        output_tokens=sum(span.attributes.get(a.OUTPUT_TOKENS, 0) for span in spans),
        cost=sum(costs) if costs else None,
        errors=_errors(spans),
        resumes=sum(event.name == RESUMED for span in spans for event in span.events),
    )
