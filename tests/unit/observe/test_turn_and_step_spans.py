"""The turns of a session and the steps of a workflow, as spans and as moments."""

from typing import Any

import pytest

from lib.events import kinds as k
from lib.observe import Span, spans_from_events
from lib.testing.logs import at, make_log

from .span_kit import START, call_payload

# -- sessions and workflows --------------------------------------------------------------------


def test_a_run_with_turns_is_a_session_from_the_first_turn_on():
    events = make_log(
        (0, k.RUN_STARTED, {**START, "algorithm": "helpdesk"}),
        (1, k.MEMORY_REQUESTED, {"key": "m/1", "operation": "search_memory"}),
        (2, k.TURN_REQUESTED, {"signal_id": "t-1", "input": []}),
        (3, k.RUN_COMPLETED, {"outcome": "COMPLETED"}),
        (4, k.TURN_REQUESTED, {"signal_id": "t-2", "input": []}),
    )

    before = spans_from_events(events[:2])[0]
    session, memory, turn = spans_from_events(events)

    assert (before.kind, before.name) == ("agent", "invoke_agent helpdesk")
    assert (session.kind, session.name) == ("session", "invoke_workflow helpdesk")
    assert session.attributes == {
        "gen_ai.conversation.id": "run",
        "gen_ai.operation.name": "invoke_workflow",
        "gen_ai.agent.id": "helpdesk",
        "gen_ai.agent.name": "helpdesk",
        "lib.run.outcome": "COMPLETED",
    }
    assert "gen_ai.conversation.id" not in memory.attributes  # it began before the first turn
    assert turn.attributes["gen_ai.conversation.id"] == "run"


@pytest.mark.parametrize(
    ("algorithm", "kind"),
    [
        ("session", "session"),
        ("swarm", "workflow"),
        ("debate", "workflow"),
        ("reflexion", "workflow"),
        ("react", "agent"),
    ],
)
def test_the_librarys_own_algorithms_say_what_a_run_is_from_the_start(algorithm: str, kind: str):
    [root] = spans_from_events(make_log((0, k.RUN_STARTED, {**START, "algorithm": algorithm})))

    assert root.kind == kind
    assert root.name == f"invoke_{'agent' if kind == 'agent' else 'workflow'} {algorithm}"


HANDOFF = {"source": "triage", "target": "billing"}
STEPS: list[tuple[str, dict[str, Any], str, dict[str, Any]]] = [
    (
        k.SWARM_HANDOFF,
        HANDOFF,
        "handoff billing",
        {"lib.handoff.source": "triage", "lib.handoff.target": "billing"},
    ),
    (k.REFLEXION_FEEDBACK, {"text": "be brief"}, "reflexion feedback", {}),
    (
        k.DEBATE_TURN,
        {"agent": "ann", "round": 2, "text": "be brief"},
        "debate turn ann",
        {"lib.debate.agent": "ann", "lib.debate.round": 2},
    ),
]


@pytest.mark.parametrize(("kind", "data", "name", "attributes"), STEPS)
def test_a_step_of_a_workflow_is_a_moment_and_makes_its_run_one(
    kind: str, data: dict[str, Any], name: str, attributes: dict[str, Any]
):
    events = make_log((0, k.RUN_STARTED, START), (1, kind, data), (2, kind, data))

    root, step, again = spans_from_events(events)
    result = spans_from_events(events, capture_content=True)[1]

    assert (root.kind, root.name) == ("workflow", "invoke_workflow support")
    assert (step.name, step.kind, step.start, step.end) == (name, "internal", at(1), at(1))
    assert (step.attributes, step.output) == (attributes, None)
    assert result.output == data.get("text")
    assert again.span_id != step.span_id


@pytest.mark.parametrize("first", [k.TURN_REQUESTED, k.SWARM_HANDOFF])
def test_a_session_stays_one_whatever_happens_in_it(first: str):
    entries: list[tuple[float, str, dict[str, Any]]] = [
        (1, k.TURN_REQUESTED, {"signal_id": "t", "input": []}),
        (1, k.SWARM_HANDOFF, HANDOFF),
    ]
    entries.sort(key=lambda entry: entry[1] != first)

    assert spans_from_events(make_log((0, k.RUN_STARTED, START), *entries))[0].kind == "session"


def test_a_turn_that_its_session_leaves_without_an_answer_is_an_error():
    def turn(outcome: str) -> Span:
        events = make_log(
            (0, k.RUN_STARTED, START),
            (1, k.TURN_REQUESTED, {"signal_id": "t", "input": []}),
            (2, k.RUN_COMPLETED, {"outcome": outcome}),
        )
        return spans_from_events(events)[1]

    left, called_off = turn("COMPLETED"), turn("CANCELLED")

    assert (left.end, left.status, left.attributes["error.type"]) == (at(2), "error", "unanswered")
    assert (called_off.end, called_off.status) == (at(2), "ok")


def test_a_call_still_open_at_the_end_of_its_run_is_closed_as_unknown():
    events = make_log(
        (0, k.RUN_STARTED, START),
        (1, k.TOOL_REQUESTED, call_payload("a", "search", effects="none")),
        (2, k.RUN_COMPLETED, {}),
        (3, k.TOOL_COMPLETED, {"key": "tool/1/a", "call_id": "a", "output": "found"}),
    )

    root, call = spans_from_events(events)

    assert (root.status, root.attributes["lib.run.outcome"]) == ("error", "unknown")
    assert (call.end, call.status, call.attributes["error.type"]) == (at(2), "error", "unknown")


def test_the_run_of_a_turn_belongs_to_its_session_with_all_its_spans():
    parent = make_log(
        (0, k.RUN_STARTED, START), (1, k.TURN_REQUESTED, {"signal_id": "t", "input": []})
    )
    started = {**START, "root": "run", "parent": {"run_id": "run", "key": "t"}}
    child = make_log(
        (2, k.RUN_STARTED, started),
        (3, k.LLM_REQUESTED, {"key": "llm/1", "upto": 1, "digest": "d"}),
        run_id="child",
    )

    spans = spans_from_events(child, parent_events=parent)

    assert [span.attributes["gen_ai.conversation.id"] for span in spans] == ["run", "run"]
    assert spans[0].kind == "agent"


# -- the rest ----------------------------------------------------------------------------------


def test_a_turn_lasts_until_its_run_has_ended_and_fails_with_it():
    events = make_log(
        (0, k.RUN_STARTED, START),
        (1, k.TURN_REQUESTED, {"signal_id": "t-1", "input": START["input"]}),
        (2, k.TURN_REQUESTED, {"signal_id": "t-2", "input": []}),
        (2, k.TURN_REQUESTED, {"signal_id": "t-2", "input": []}),
        (3, k.TURN_COMPLETED, {"signal_id": "t-1", "run_id": "c", "outcome": "COMPLETED"}),
        (4, k.TURN_COMPLETED, {"signal_id": "t-2", "run_id": "c", "outcome": "LIMITED"}),
    )

    _, well, badly = spans_from_events(events, capture_content=True)

    assert (well.name, well.kind, well.input) == ("turn", "internal", START["input"])
    assert [(span.end, span.status) for span in (well, badly)] == [(at(3), "ok"), (at(4), "error")]
    assert well.attributes == {
        "gen_ai.conversation.id": "run",
        "lib.key": "t-1",
        "lib.run.outcome": "COMPLETED",
    }
    assert badly.attributes == {
        "error.type": "limited",
        "gen_ai.conversation.id": "run",
        "lib.key": "t-2",
        "lib.run.outcome": "LIMITED",
    }
