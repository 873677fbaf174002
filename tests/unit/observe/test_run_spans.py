"""The span of a run: its outcome, what it used, its moments, and where a child run hangs."""

import time
from typing import Any

import pytest

from lib.events import kinds as k
from lib.observe import Span, SpanEvent, span_id_of, spans_from_events, trace_id_of
from lib.observe.spans import interrupt
from lib.testing.logs import at, make_log

from .span_kit import ROOT, START, call_payload

# -- the run -----------------------------------------------------------------------------------


def test_no_events_give_no_spans():
    assert spans_from_events([]) == []


def test_a_run_is_an_agent_span_with_its_outcome_its_moments_and_what_it_used():
    usage = {"input_tokens": 10, "output_tokens": 5, "cost": 0.5}
    events = make_log(
        (0, k.RUN_STARTED, START),
        (1, k.LLM_REQUESTED, {"key": "llm/1", "upto": 1, "digest": "d"}),
        (2, k.RUN_RESUMED, {"worker": "w-2", "epoch": 2}),
        (3, k.CANCEL_REQUESTED, {"signal_id": "s", "reason": "never mind"}),
        (3.5, k.CANCEL_REQUESTED, {"signal_id": "s", "reason": "never mind"}),
        (4, k.LLM_COMPLETED, {"key": "llm/1", "reply": {"parts": [], "usage": usage}}),
        (5, k.RUN_COMPLETED, {"outcome": "COMPLETED", "output": "done"}),
        (6, k.CANCEL_REQUESTED, {"signal_id": "too-late"}),
    )

    root = spans_from_events(events)[0]

    assert root == Span(
        trace_id=trace_id_of("run"),
        span_id=ROOT,
        parent_id=None,
        name="invoke_agent support",
        kind="agent",
        start=at(0),
        end=at(5),
        attributes={
            "gen_ai.agent.id": "support",
            "gen_ai.agent.name": "support",
            "gen_ai.operation.name": "invoke_agent",
            "lib.run.outcome": "COMPLETED",
            "lib.usage.cost_usd": 0.5,
            "lib.usage.input_tokens": 10,
            "lib.usage.llm_calls": 1,
            "lib.usage.output_tokens": 5,
        },
        events=[
            SpanEvent("run.lost", at(1)),
            SpanEvent("run.resumed", at(2), {"lib.run.epoch": 2, "lib.run.worker": "w-2"}),
            SpanEvent("cancel.requested", at(3), {}),
        ],
        run_id="run",
        tenant="acme",
        user="ann",
    )
    assert list(root.attributes) == sorted(root.attributes)


@pytest.mark.parametrize(
    ("end", "status", "error_type", "reason"),
    [
        ({"outcome": "COMPLETED"}, "ok", None, None),
        ({"outcome": "CANCELLED", "reason": "typed by a person"}, "ok", None, None),
        ({"outcome": "LIMITED", "reason": "max_steps"}, "error", "limited", "max_steps"),
        ({"outcome": "BLOCKED", "reason": "guard"}, "error", "blocked", "guard"),
        ({"outcome": "FAILED", "error": {"type": "LLMError"}}, "error", "LLMError", None),
        ({"outcome": "FAILED", "reason": "poison"}, "error", "poison", "poison"),
        ({"outcome": "FAILED", "reason": "a text, no word"}, "error", "failed", None),
    ],
)
def test_an_outcome_is_an_error_unless_it_was_reached_or_called_off(
    end: dict[str, Any], status: str, error_type: str | None, reason: str | None
):
    [root] = spans_from_events(make_log((0, k.RUN_STARTED, START), (1, k.RUN_COMPLETED, end)))

    assert root.status == status
    assert root.attributes.get("error.type") == error_type
    assert root.attributes.get("lib.reason") == reason


def test_captured_content_of_a_run_is_what_was_said_first_and_last_and_why_it_ended():
    end = {"outcome": "CANCELLED", "output": "half", "reason": "no need", "error": {"message": "m"}}
    events = make_log(
        (0, k.RUN_STARTED, START),
        (1, k.CANCEL_REQUESTED, {"signal_id": "s", "reason": "never mind"}),
        (2, k.RUN_COMPLETED, end),
    )

    [root] = spans_from_events(events, capture_content=True)

    assert root.input == [{"role": "system", "content": "be nice"}, *START["input"]]
    assert (root.output, root.status_message) == ("half", "m")
    assert root.attributes["lib.reason"] == "no need"
    assert root.events[0].attributes == {"lib.reason": "never mind"}


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        (make_log((0, k.RUN_COMPLETED, {"outcome": "FAILED"})), "begins with 'lib.run.started'"),
        (
            [*make_log((0, k.RUN_STARTED, START)), *make_log((0, "x", {}), run_id="other")],
            "events of runs 'run' and 'other' are mixed",
        ),
    ],
)
def test_a_piece_of_a_log_and_a_mixture_of_logs_are_refused(events: Any, expected: str):
    with pytest.raises(ValueError, match=expected):
        spans_from_events(events)


def test_a_negative_limit_is_refused():
    with pytest.raises(ValueError, match="content_limit=-1 is negative"):
        spans_from_events([], content_limit=-1)


def test_names_are_cut_to_their_limit():
    verdict = {"guard": "y" * 999, "stage": "input", "verdict": "block", "content_hash": "ab12"}
    events = make_log(
        (0, k.RUN_STARTED, {**START, "algorithm": "x" * 999}), (1, k.GUARD_VERDICT, verdict)
    )

    root, guard = spans_from_events(events)

    assert root.name == f"invoke_agent {'x' * 999}"[:128]
    assert root.attributes["gen_ai.agent.name"] == "x" * 128
    assert guard.attributes["lib.guard.name"] == "y" * 128


# -- children ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "family"), [("tool/1/a", "tool"), ("turn-1", "turn"), ("child/1", "tool"), ("?", "run")]
)
def test_a_child_hangs_under_exactly_what_started_it(key: str, family: str):
    parent = make_log(
        (0, k.RUN_STARTED, START),
        (1, k.TURN_REQUESTED, {"signal_id": "turn-1", "input": []}),
        (1, k.CHILD_REQUESTED, {"key": "child/1", "run_id": "child"}),
        (1, k.TOOL_REQUESTED, call_payload("a", "ask_expert", effects="none")),
    )
    started: dict[str, Any] = {"algorithm": "expert", "input": [], "root": "run"}
    child = make_log(
        (2, k.RUN_STARTED, {**started, "parent": {"run_id": "run", "key": key}}), run_id="child"
    )

    [span] = spans_from_events(child, parent_events=parent)
    [alone] = spans_from_events(child)

    assert span.trace_id == trace_id_of("run")
    assert span.parent_id == span_id_of("run", family, "" if family == "run" else key)
    assert span.parent_id in {above.span_id for above in spans_from_events(parent)}
    assert span.attributes["lib.run.parent_id"] == "run"
    assert alone.parent_id == ROOT


@pytest.mark.parametrize("parent", [{}, [], "odd", {"run_id": 7}, {"run_id": "above"}])
def test_a_child_with_a_malformed_parent_is_placed_as_well_as_possible(parent: Any) -> None:
    log = make_log((0, k.RUN_STARTED, {"algorithm": "a", "input": [], "parent": parent}))

    [run] = spans_from_events(log, parent_events=log)

    above = parent == {"run_id": "above"}
    assert run.parent_id == (span_id_of("above", "run", "") if above else None)


# -- death -------------------------------------------------------------------------------------


def test_open_calls_of_a_dead_process_end_as_errors_and_waits_stay_open():
    events = make_log(
        (0, k.RUN_STARTED, START),
        (1, k.APPROVAL_REQUESTED, call_payload("a", "pay")),
        (1, k.TOOL_REQUESTED, call_payload("b", "search", effects="none")),
        (2, k.TOOL_COMPLETED, {"key": "tool/1/b", "call_id": "b", "output": "found"}),
        (3, k.TOOL_REQUESTED, call_payload("c", "search", effects="none")),
    )
    before = spans_from_events(events)

    root, waiting, closed, cut_off = interrupt(before, at(2.5))

    assert [waiting, closed] == before[1:3]
    assert [(span.end, span.status) for span in (root, cut_off)] == [
        (at(2.5), "error"),
        (at(3), "error"),
    ]
    expected = {"error.type": "interrupted", "lib.run.open": True}
    assert cut_off.attributes == {**before[3].attributes, **expected}
    assert list(root.attributes) == sorted({**before[0].attributes, **expected})


# -- effort ------------------------------------------------------------------------------------


@pytest.mark.parametrize("capture", [False, True])
def test_effort_grows_with_the_log_and_not_with_its_square(capture: bool):
    def effort(calls: int) -> float:
        entries: list[tuple[float, str, dict[str, Any]]] = [(0, k.RUN_STARTED, START)]
        for n in range(calls):
            request: dict[str, Any] = {
                "key": f"tool/{n}",
                "call_id": "a",
                "name": "search",
                "args": {},
            }
            entries += [
                (n, k.LLM_REQUESTED, {"key": f"llm/{n}", "upto": n, "digest": "d"}),
                (n, k.LLM_COMPLETED, {"key": f"llm/{n}", "reply": {"parts": ["x" * 100]}}),
                (n, k.TOOL_REQUESTED, request),
                (n, k.TOOL_COMPLETED, {"key": f"tool/{n}", "call_id": "a", "output": "y" * 100}),
            ]
        events = make_log(*entries)
        begun = time.process_time()
        spans_from_events(events, capture_content=capture)
        return time.process_time() - begun

    small, large = (min(effort(calls) for _ in range(3)) for calls in (100, 3200))

    assert large < 100 * small  # 32 times the events; a square would be 1024 times the effort
