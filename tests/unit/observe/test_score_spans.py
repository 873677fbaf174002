"""The span of a score: what it hangs under, and which of its words are content."""

from typing import Any

import pytest

from lib.events import kinds as k
from lib.observe import Span, span_id_of, spans_from_events, trace_id_of
from lib.testing.logs import at, make_log

from .span_kit import ROOT, START, call_payload

SEARCH = (1, k.TOOL_REQUESTED, call_payload("a", "search", effects="none"))
FOUND = (2, k.TOOL_COMPLETED, {"key": "tool/1/a", "call_id": "a", "output": "found"})
TOOL = span_id_of("run", "tool", "tool/1/a")


def scored(signal: str, **more: Any) -> tuple[float, str, dict[str, Any]]:
    return (9, k.EVAL_SCORE, {"signal_id": signal, "name": "helpful", "value": 0.75, **more})


def test_a_score_is_a_span_under_what_was_judged_even_if_the_run_has_ended():
    events = make_log(
        (0, k.RUN_STARTED, START),
        SEARCH,
        FOUND,
        (3, k.RUN_COMPLETED, {"outcome": "COMPLETED"}),
        scored("s-1", span_id=TOOL, comment="because of my pin 1234", source="llm", meta={"x": 1}),
        scored("s-1", value=0.25),
        scored("s-2"),
        (10, k.GUARD_VERDICT, {"guard": "pii", "stage": "input", "verdict": "block"}),
    )

    *before, of_call, of_run = spans_from_events(events)

    assert before == spans_from_events(events[:4])
    assert of_call == Span(
        trace_id=trace_id_of("run"),
        span_id=span_id_of("run", "score", "s-1"),
        parent_id=TOOL,
        name="evaluate helpful",
        kind="evaluator",
        start=at(9),
        end=at(9),
        attributes={
            "gen_ai.evaluation.name": "helpful",
            "gen_ai.evaluation.score.value": 0.75,
            "lib.evaluation.source": "llm",
        },
        run_id="run",
        tenant="acme",
        user="ann",
    )
    assert of_run.parent_id == ROOT
    result = spans_from_events(events, capture_content=True)[-2].attributes
    assert result["gen_ai.evaluation.explanation"] == "because of my pin 1234"
    assert result["lib.evaluation.meta"] == {"x": 1}


@pytest.mark.parametrize(
    ("value", "number", "label"),
    [
        (True, 1.0, "pass"),
        (False, 0.0, "fail"),
        (0.25, 0.25, None),
        ("polite", None, "polite"),
        ("my pin is 1234", None, None),
    ],
)
def test_a_label_is_one_of_few_words_or_else_content(
    value: Any, number: float | None, label: str | None
):
    events = make_log((0, k.RUN_STARTED, START), scored("s", value=value))

    silent = spans_from_events(events)[1].attributes
    result = spans_from_events(events, capture_content=True)[1].attributes

    assert silent.get("gen_ai.evaluation.score.value") == number
    assert silent.get("gen_ai.evaluation.score.label") == label
    assert result.get("gen_ai.evaluation.score.label") == (value if number is None else label)


@pytest.mark.parametrize("span_id", ["0123456789abcdef", "", 7, [], None, ROOT])
def test_a_score_of_what_this_run_does_not_have_is_one_of_the_run(span_id: Any):
    events = make_log((0, k.RUN_STARTED, START), SEARCH, scored("s", span_id=span_id))

    assert spans_from_events(events)[-1].parent_id == ROOT


def test_a_score_that_comes_before_the_span_it_names_is_one_of_the_run_for_good():
    events = make_log((0, k.RUN_STARTED, START), scored("s", span_id=TOOL), SEARCH)

    assert [span.parent_id for span in spans_from_events(events)] == [None, ROOT, ROOT]


@pytest.mark.parametrize("broken", [{"value": [1]}, {"name": ""}, {"value": float("nan")}])
def test_an_unreadable_score_has_no_span(broken: dict[str, Any]):
    events = make_log((0, k.RUN_STARTED, START), scored("s", **broken))

    assert len(spans_from_events(events)) == 1
