"""A score as a span, for backends that know only spans."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any, Final, cast

from lib._util.clock import Clock
from lib.evals import Score
from lib.observe import attributes as a
from lib.observe.span import Span, span_id_of

_MAX_NAME: Final = 128


def timed(score: Score, clock: Clock) -> Score:
    """Return the score with a time: the present if it has none of its own."""
    return score if score.at is not None else score.model_copy(update={"at": clock.now()})


def score_span(score: Score, trace_id: str, span_id: str | None, root: Span | None) -> Span:
    """Return the span of a score, with the same id for the same trace, span and name.

    Args:
        score: with its time, which `timed` gives it.
        trace_id: of the trace that was judged.
        span_id: of the span that was judged, None for the trace.
        root: of the trace, if it is known: it says whose trace this is, and the score of a trace
            hangs under it.
    """
    at = cast(datetime, score.at)
    attributes: dict[str, Any] = {
        a.EVALUATION_NAME: score.name,
        a.EVALUATION_VALUE: score.numeric,
        a.EVALUATION_LABEL: _label(score),
        a.EVALUATION_WHY: score.comment,
        a.EVALUATION_SOURCE: score.source,
        a.EVALUATION_META: dict(score.meta) or None,
    }
    span = Span(
        trace_id,
        span_id_of(trace_id, "evaluate", f"{span_id or ''}:{score.name}"),
        span_id,
        f"evaluate {score.name}"[:_MAX_NAME],
        "evaluator",
        at,
        at,
        attributes={name: attributes[name] for name in attributes if attributes[name] is not None},
    )
    if root is None:
        return span
    parent_id = span_id or root.span_id
    return replace(
        span,
        parent_id=parent_id,
        attributes={**root.attributes, **span.attributes},
        run_id=root.run_id,
        tenant=root.tenant,
        user=root.user,
        remote_parent=root.remote_parent,
    )


def _label(score: Score) -> str | None:
    if isinstance(score.value, str):
        return score.value
    if isinstance(score.value, bool):
        return "pass" if score.value else "fail"
    return None
