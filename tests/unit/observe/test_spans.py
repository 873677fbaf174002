import time
from typing import Any

import pytest

from lib.events import kinds as k
from lib.observe import Span, SpanEvent, span_id_of, spans_from_events, trace_id_of
from lib.observe.spans import interrupt
from lib.testing.logs import at, make_log

START: dict[str, Any] = {
    "algorithm": "support",
    "input": [{"role": "user", "content": "refund my shoes"}],
    "config": {"system": "be nice"},
}
ROOT = span_id_of("run", "run", "")


def asked(call: str, name: str, **more: Any) -> dict[str, Any]:
    return {"key": f"tool/1/{call}", "call_id": call, "name": name, "args": {"of": call}, **more}


def tool_span(call: str, name: str, start: float, end: float | None, **more: Any) -> Span:
    attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.call.id": call,
        "gen_ai.tool.name": name,
        "gen_ai.tool.type": "function",
        "lib.key": f"tool/1/{call}",
        **more.pop("attributes", {}),
    }
    return Span(
        trace_id=trace_id_of("run"),
        span_id=span_id_of("run", "tool", f"tool/1/{call}"),
        parent_id=ROOT,
        name=f"execute_tool {name}",
        kind="tool",
        start=at(start),
        end=None if end is None else at(end),
        attributes=attributes,
        run_id="run",
        tenant="acme",
        user="ann",
        **more,
    )


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
            "gen_ai.agent.name": "support",
            "gen_ai.operation.name": "invoke_agent",
            "lib.run.outcome": "COMPLETED",
            "lib.usage.cost_usd": 0.5,
            "lib.usage.input_tokens": 10,
            "lib.usage.llm_calls": 1,
            "lib.usage.output_tokens": 5,
        },
        events=[
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
    ("events", "told"),
    [
        (make_log((0, k.RUN_COMPLETED, {"outcome": "FAILED"})), "begins with 'lib.run.started'"),
        (
            [*make_log((0, k.RUN_STARTED, START)), *make_log((0, "x", {}), run_id="other")],
            "events of runs 'run' and 'other' are mixed",
        ),
    ],
)
def test_a_piece_of_a_log_and_a_mixture_of_logs_are_refused(events: Any, told: str):
    with pytest.raises(ValueError, match=told):
        spans_from_events(events)


def test_a_negative_limit_is_refused():
    with pytest.raises(ValueError, match="content_limit=-1 is negative"):
        spans_from_events([], content_limit=-1)


# -- children ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "family"), [("tool/1/a", "tool"), ("turn-1", "turn"), ("child/1", "tool"), ("?", "run")]
)
def test_a_child_hangs_under_exactly_what_started_it(key: str, family: str):
    parent = make_log(
        (0, k.RUN_STARTED, START),
        (1, k.TURN_REQUESTED, {"signal_id": "turn-1", "input": []}),
        (1, k.CHILD_REQUESTED, {"key": "child/1", "run_id": "child"}),
        (1, k.TOOL_REQUESTED, asked("a", "ask_expert", effects="none")),
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


# -- model calls -------------------------------------------------------------------------------


def test_a_model_call_has_its_models_settings_tokens_and_attempts():
    settings = {"temperature": 0.5, "max_tokens": 100, "stop": ["secret"], "top_p": "secret"}
    usage = {
        "input_tokens": 100,
        "output_tokens": 20,
        "cache_read_tokens": 30,
        "cache_write_tokens": 7,
        "reasoning_tokens": 5,
        "cost": 0.01,
    }
    reply: dict[str, Any] = {
        "parts": [],
        "usage": usage,
        "stop": "length",
        "model": "model-1-0101",
        "id": "resp-1",
    }
    request = {"key": "llm/1", "upto": 1, "digest": "d", "model": "model-1", "settings": settings}
    events = make_log(
        (0, k.RUN_STARTED, START),
        (1, k.LLM_REQUESTED, request),
        (3, k.LLM_COMPLETED, {"key": "llm/1", "reply": reply, "attempts": 2}),
    )

    assert spans_from_events(events)[1] == Span(
        trace_id=trace_id_of("run"),
        span_id=span_id_of("run", "llm", "llm/1"),
        parent_id=ROOT,
        name="chat model-1",
        kind="llm",
        start=at(1),
        end=at(3),
        attributes={
            "gen_ai.operation.name": "chat",
            "gen_ai.request.max_tokens": 100,
            "gen_ai.request.model": "model-1",
            "gen_ai.request.temperature": 0.5,
            "gen_ai.response.finish_reasons": ["length"],
            "gen_ai.response.id": "resp-1",
            "gen_ai.response.model": "model-1-0101",
            "gen_ai.usage.cache_creation.input_tokens": 7,
            "gen_ai.usage.cache_read.input_tokens": 30,
            "gen_ai.usage.cache_write.input_tokens": 7,
            "gen_ai.usage.input_tokens": 100,
            "gen_ai.usage.output_tokens": 20,
            "gen_ai.usage.reasoning.output_tokens": 5,
            "lib.attempts": 2,
            "lib.cost.usd": 0.01,
            "lib.key": "llm/1",
        },
        run_id="run",
        tenant="acme",
        user="ann",
    )


def test_a_call_that_names_no_model_gets_its_name_from_the_reply():
    events = make_log(
        (0, k.RUN_STARTED, START),
        (1, k.LLM_REQUESTED, {"key": "llm/1", "upto": 1, "digest": "d"}),
        (3, k.LLM_COMPLETED, {"key": "llm/1", "reply": {"parts": [], "model": "qwen3:8b"}}),
    )

    assert [span.name for span in spans_from_events(events[:2])] == ["invoke_agent support", "chat"]
    assert spans_from_events(events)[1].name == "chat qwen3:8b"


def test_a_failed_model_call_tells_its_class_and_only_if_captured_its_words():
    error = {"type": "LLMError", "message": "the prompt was: secret", "status": 500}
    events = make_log(
        (0, k.RUN_STARTED, START),
        (1, k.LLM_REQUESTED, {"key": "llm/1", "upto": 1, "digest": "d"}),
        (3, k.LLM_FAILED, {"key": "llm/1", "reason": "error", "error": error, "attempts": 4}),
    )

    silent, told = spans_from_events(events)[1], spans_from_events(events, capture_content=True)[1]

    assert (silent.status, silent.status_message) == ("error", None)
    assert (told.status, told.status_message) == ("error", "the prompt was: secret")
    assert silent.attributes == {
        "error.type": "LLMError",
        "gen_ai.operation.name": "chat",
        "http.response.status_code": 500,
        "lib.attempts": 4,
        "lib.key": "llm/1",
        "lib.reason": "error",
    }


@pytest.mark.parametrize(
    ("reason", "status", "error_type"),
    [
        ("error", "error", "LLMError"),
        ("blocked", "error", "blocked"),
        ("unknown", "error", "unknown"),
        ("denied", "ok", None),
        ("cancelled", "ok", None),
        ("no word, but a text", "error", "LLMError"),
        (["cancelled"], "error", "LLMError"),
    ],
)
def test_a_call_that_somebody_called_off_is_no_error(
    reason: Any, status: str, error_type: str | None
):
    events = make_log(
        (0, k.RUN_STARTED, START),
        (1, k.LLM_REQUESTED, {"key": "llm/1", "upto": 1, "digest": "d"}),
        (3, k.LLM_FAILED, {"key": "llm/1", "reason": reason, "error": {"type": "LLMError"}}),
    )

    span = spans_from_events(events)[1]

    assert (span.status, span.attributes.get("error.type")) == (status, error_type)
    assert span.attributes["lib.reason"] == (reason if error_type != "LLMError" else "error")


def test_what_a_provider_leaves_empty_or_fills_with_something_else_is_left_out():
    reply: dict[str, Any] = {"parts": [], "model": "", "id": 7, "usage": {"input_tokens": "many"}}
    events = make_log(
        (0, k.RUN_STARTED, START),
        (1, k.LLM_REQUESTED, {"key": "llm/1", "upto": 1, "digest": "d", "settings": None}),
        (3, k.LLM_COMPLETED, {"key": "llm/1", "reply": reply}),
    )

    assert spans_from_events(events)[1].attributes == {
        "gen_ai.operation.name": "chat",
        "gen_ai.response.finish_reasons": ["stop"],
        "lib.key": "llm/1",
    }


def test_a_model_call_shows_the_conversation_that_it_was_sent():
    call = {"type": "tool_call", "id": "a", "name": "search"}
    slow = {"type": "tool_call", "id": "b", "name": "search"}
    reply = {"parts": [call, slow], "stop": "tool_calls"}
    events = make_log(
        (0, k.RUN_STARTED, START),
        (1, k.LLM_REQUESTED, {"key": "llm/1", "upto": 1, "digest": "d"}),
        (2, k.LLM_COMPLETED, {"key": "llm/1", "reply": reply}),
        (3, k.TOOL_REQUESTED, asked("a", "search", effects="none")),
        (3, k.TOOL_REQUESTED, asked("b", "search", effects="none")),
        (4, k.TOOL_FAILED, {"key": "tool/1/b", "call_id": "b", "reason": "error"} | FAILURE),
        (5, k.TOOL_COMPLETED, {"key": "tool/1/a", "call_id": "a", "output": "found"}),
        (6, k.LLM_REQUESTED, {"key": "llm/2", "upto": 7, "digest": "d"}),
    )

    _, first, *_, second = spans_from_events(events, capture_content=True)

    said = [{"role": "system", "content": "be nice"}, *START["input"]]
    answered = {"type": "tool_result", "call_id": "a", "content": "found"}
    failed = {"type": "tool_result", "call_id": "b", "content": "too slow", "is_error": True}
    assert first.input == said
    assert first.output == {"role": "assistant", "parts": [call, slow]}
    assert second.input == [
        *said,
        {"role": "assistant", "parts": [call, slow]},
        {"role": "tool", "parts": [answered]},
        {"role": "tool", "parts": [failed]},
    ]


FAILURE = {"code": "timeout", "message": "too slow"}


def test_of_a_long_conversation_the_newest_messages_are_shown_and_the_others_counted():
    events = make_log(
        (0, k.RUN_STARTED, START),
        (1, k.LLM_REQUESTED, {"key": "llm/1", "upto": 1, "digest": "d"}),
    )

    root, call = spans_from_events(events, capture_content=True, content_limit=60)

    assert root.input == call.input == START["input"]
    assert root.attributes["lib.input.omitted"] == call.attributes["lib.input.omitted"] == 1


# -- tool calls --------------------------------------------------------------------------------


def test_tool_calls_end_well_with_an_error_or_called_off():
    def failed(call: str, reason: str) -> dict[str, Any]:
        return {"key": f"tool/1/{call}", "call_id": call, "reason": reason, **FAILURE}

    events = make_log(
        (0, k.RUN_STARTED, START),
        (1, k.TOOL_REQUESTED, asked("a", "search", effects="none", idempotency_key="i")),
        (1, k.TOOL_REQUESTED, asked("b", "pay", effects="once", idempotency_key="i")),
        (1, k.TOOL_REQUESTED, asked("c", "fetch", effects="idempotent", idempotency_key="i")),
        (1, k.TOOL_REQUESTED, asked("d", "delete", unstarted=True)),
        (1, k.TOOL_FAILED, failed("d", "denied")),
        (1, k.TOOL_REQUESTED, asked("e", "browse", effects="none", idempotency_key="i")),
        (2, k.TOOL_COMPLETED, {"key": "tool/1/a", "call_id": "a", "output": "x", "truncated": 9}),
        (3, k.TOOL_FAILED, failed("b", "unknown")),
        (4, k.TOOL_FAILED, failed("c", "error")),
    )
    root, *spans = spans_from_events(events)

    assert spans == [
        tool_span(
            "a", "search", 1, 2, attributes={"lib.tool.effects": "none", "lib.tool.truncated": 9}
        ),
        tool_span(
            "b",
            "pay",
            1,
            3,
            status="error",
            attributes={
                "error.type": "unknown",
                "lib.reason": "unknown",
                "lib.tool.effects": "once",
            },
        ),
        tool_span(
            "c",
            "fetch",
            1,
            4,
            status="error",
            attributes={
                "error.type": "timeout",
                "lib.reason": "error",
                "lib.tool.effects": "idempotent",
            },
        ),
        tool_span(
            "d", "delete", 1, 1, attributes={"lib.reason": "denied", "lib.tool.unstarted": True}
        ),
        tool_span("e", "browse", 1, None, attributes={"lib.tool.effects": "none"}),
    ]
    assert root.attributes["lib.usage.tool_calls"] == 4


def test_captured_content_of_a_tool_call_is_what_went_in_and_what_came_out():
    events = make_log(
        (0, k.RUN_STARTED, START),
        (1, k.TOOL_REQUESTED, asked("a", "search", effects="none")),
        (1, k.TOOL_REQUESTED, asked("b", "search", effects="none")),
        (2, k.TOOL_COMPLETED, {"key": "tool/1/a", "call_id": "a", "output": "found"}),
        (2, k.TOOL_FAILED, {"key": "tool/1/b", "call_id": "b", "reason": "error", **FAILURE}),
    )

    _, found, failed = spans_from_events(events, capture_content=True)

    assert (found.input, found.output, found.status_message) == ({"of": "a"}, "found", None)
    assert (failed.input, failed.output, failed.status_message) == ({"of": "b"}, None, "too slow")


def test_a_takeover_is_counted_on_the_calls_that_it_cut_off_and_on_no_others():
    events = make_log(
        (0, k.RUN_STARTED, START),
        (1, k.APPROVAL_REQUESTED, asked("a", "pay")),
        (1, k.TOOL_REQUESTED, asked("b", "search", effects="none")),
        (1, k.TOOL_REQUESTED, asked("c", "search", effects="none")),
        (2, k.TOOL_COMPLETED, {"key": "tool/1/b", "call_id": "b", "output": "found"}),
        (3, k.RUN_RESUMED, {"worker": "w", "epoch": 2}),
        (4, k.RUN_RESUMED, {"worker": "w", "epoch": 3}),
    )

    assert [span.attributes.get("lib.resumes") for span in spans_from_events(events)] == [
        None,
        None,
        None,
        2,
    ]


# -- approvals ---------------------------------------------------------------------------------


def approval_log(*more: tuple[float, str, dict[str, Any]]) -> Span:
    asking = (1, k.APPROVAL_REQUESTED, asked("a", "pay"))
    return spans_from_events(
        make_log((0, k.RUN_STARTED, START), asking, *more), capture_content=True
    )[1]


def decided(approved: bool, **more: Any) -> dict[str, Any]:
    return {"signal_id": "s", "key": "tool/1/a", "approved": approved, **more}


def test_waiting_for_a_person_is_a_span_and_no_error():
    waiting = approval_log()

    assert waiting == Span(
        trace_id=trace_id_of("run"),
        span_id=span_id_of("run", "approval", "tool/1/a"),
        parent_id=ROOT,
        name="approval pay",
        kind="internal",
        start=at(1),
        end=None,
        attributes={
            "gen_ai.tool.call.id": "a",
            "gen_ai.tool.name": "pay",
            "lib.key": "tool/1/a",
        },
        run_id="run",
        tenant="acme",
        user="ann",
        input={"of": "a"},
    )


@pytest.mark.parametrize("approved", [True, False])
def test_the_first_decision_ends_the_waiting_and_says_whose_it_is(approved: bool):
    span = approval_log(
        (9, k.APPROVAL_DECIDED, decided(approved, comment="well")),
        (10, k.APPROVAL_DECIDED, decided(not approved)),
    )

    assert (span.end, span.status, span.output) == (at(9), "ok", "well")
    assert span.attributes["lib.approval.approved"] is approved
    assert span.attributes["lib.approval.by"] == "ann"


@pytest.mark.parametrize(
    "end",
    [
        (9, k.TOOL_REQUESTED, asked("a", "pay", unstarted=True)),
        (9, k.RUN_COMPLETED, {"outcome": "CANCELLED"}),
    ],
)
def test_waiting_ends_with_what_it_was_for(end: tuple[float, str, dict[str, Any]]):
    span = approval_log(end)

    assert (span.end, span.status) == (at(9), "ok")
    assert "lib.approval.approved" not in span.attributes


# -- sessions and workflows --------------------------------------------------------------------


def test_a_run_that_is_given_turns_is_a_session_from_then_on():
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
        "gen_ai.workflow.name": "helpdesk",
        "lib.run.outcome": "COMPLETED",
    }
    assert "gen_ai.conversation.id" not in memory.attributes  # nobody knew when it began
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
    told = spans_from_events(events, capture_content=True)[1]

    assert (root.kind, root.name) == ("workflow", "invoke_workflow support")
    assert (step.name, step.kind, step.start, step.end) == (name, "internal", at(1), at(1))
    assert (step.attributes, step.output) == (attributes, None)
    assert told.output == data.get("text")
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


def test_a_call_that_the_end_finds_open_against_the_rules_is_closed_as_unknown():
    events = make_log(
        (0, k.RUN_STARTED, START),
        (1, k.TOOL_REQUESTED, asked("a", "search", effects="none")),
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


# -- scores ------------------------------------------------------------------------------------


SEARCH = (1, k.TOOL_REQUESTED, asked("a", "search", effects="none"))
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
    told = spans_from_events(events, capture_content=True)[-2].attributes
    assert told["gen_ai.evaluation.explanation"] == "because of my pin 1234"
    assert told["lib.evaluation.meta"] == {"x": 1}


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
    told = spans_from_events(events, capture_content=True)[1].attributes

    assert silent.get("gen_ai.evaluation.score.value") == number
    assert silent.get("gen_ai.evaluation.score.label") == label
    assert told.get("gen_ai.evaluation.score.label") == (value if number is None else label)


@pytest.mark.parametrize("span_id", ["0123456789abcdef", "", 7, [], None, ROOT])
def test_a_score_of_what_this_run_does_not_have_is_one_of_the_run(span_id: Any):
    events = make_log((0, k.RUN_STARTED, START), SEARCH, scored("s", span_id=span_id))

    assert spans_from_events(events)[-1].parent_id == ROOT


def test_a_score_that_comes_before_the_span_it_names_is_one_of_the_run_for_good():
    events = make_log((0, k.RUN_STARTED, START), scored("s", span_id=TOOL), SEARCH)

    assert [span.parent_id for span in spans_from_events(events)] == [None, ROOT, ROOT]


@pytest.mark.parametrize("broken", [{"value": [1]}, {"name": ""}, {"value": float("nan")}])
def test_what_is_no_score_has_no_span(broken: dict[str, Any]):
    events = make_log((0, k.RUN_STARTED, START), scored("s", **broken))

    assert len(spans_from_events(events)) == 1


# -- the rest ----------------------------------------------------------------------------------


def test_a_model_call_tells_who_is_paid_for_it_if_the_log_does():
    request = {"key": "llm/1", "upto": 1, "digest": "d", "provider": "openai"}
    settings = {"reasoning_effort": "high", "n": 2, "max_completion_tokens": 9, "seed": True}
    events = make_log(
        (0, k.RUN_STARTED, START),
        (1, k.LLM_REQUESTED, {**request, "settings": settings}),
        (2, k.LLM_REQUESTED, {**request, "key": "llm/2", "provider": "who pays, you ask?"}),
    )

    _, told, silent = spans_from_events(events)

    assert told.attributes == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.choice.count": 2,
        "gen_ai.request.max_tokens": 9,
        "gen_ai.request.reasoning.level": "high",
        "lib.key": "llm/1",
    }
    assert "gen_ai.provider.name" not in silent.attributes


def test_a_tool_call_to_an_mcp_server_says_so_on_its_own_span():
    mcp = {"method": "tools/call", "session_id": "s-1", "uri": "file:///secret", "transport": 7}
    events = make_log(
        (0, k.RUN_STARTED, START),
        (1, k.TOOL_REQUESTED, asked("a", "search", effects="none", mcp=mcp)),
        (2, k.TOOL_COMPLETED, {"key": "tool/1/a", "output": "x", "mcp": {"request_id": "12"}}),
    )

    _, call = spans_from_events(events)

    assert {name: call.attributes[name] for name in call.attributes if "mcp" in name} == {
        "mcp.method.name": "tools/call",
        "mcp.session.id": "s-1",
    }
    assert call.attributes["jsonrpc.request.id"] == "12"
    assert "network.transport" not in call.attributes


def test_a_summary_is_a_moment_with_the_tokens_that_it_took():
    summary = {
        "covers": "ab12",
        "text": "shoes, red",
        "usage": {"input_tokens": 7, "cost": 0.5},
        "provider": "openai",
        "model": "small-1",
    }
    events = make_log((0, k.RUN_STARTED, START), (1, k.CONTEXT_SUMMARY, summary))

    root, span = spans_from_events(events)
    told = spans_from_events(events, capture_content=True)[1]

    assert (span.name, span.kind, span.start, span.end) == (
        "context summary",
        "internal",
        at(1),
        at(1),
    )
    assert span.attributes == {
        "gen_ai.provider.name": "openai",
        "gen_ai.response.model": "small-1",
        "gen_ai.usage.input_tokens": 7,
        "lib.context.covers": "ab12",
        "lib.cost.usd": 0.5,
    }
    assert (span.output, told.output) == (None, "shoes, red")
    assert root.attributes["lib.usage.cost_usd"] == 0.5


def test_changing_a_memory_tells_which_one_and_how_much():
    asked = {
        "key": "m/1",
        "operation": "upsert_memory",
        "store": "facts",
        "record_id": "r-7",
        "records": ["my pin is 1234"],
    }
    events = make_log(
        (0, k.RUN_STARTED, START),
        (1, k.MEMORY_REQUESTED, asked),
        (2, k.MEMORY_COMPLETED, {"key": "m/1", "count": 3, "usage": {"input_tokens": 4}}),
    )

    root, span = spans_from_events(events)
    waiting = spans_from_events(events[:2], capture_content=True)[1]

    assert span.attributes == {
        "gen_ai.memory.record.count": 3,
        "gen_ai.memory.record.id": "r-7",
        "gen_ai.memory.store.id": "facts",
        "gen_ai.operation.name": "upsert_memory",
        "gen_ai.usage.input_tokens": 4,
        "lib.key": "m/1",
    }
    assert (waiting.attributes["gen_ai.memory.record.count"], waiting.input) == (
        1,
        {"records": ["my pin is 1234"]},
    )
    assert root.attributes["lib.usage.input_tokens"] == 4


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


def test_memory_is_searched_and_written_in_spans_of_its_own():
    events = make_log(
        (0, k.RUN_STARTED, START),
        (1, k.MEMORY_REQUESTED, {"key": "m/1", "operation": "search_memory", "query": "shoes"}),
        (2, k.MEMORY_COMPLETED, {"key": "m/1", "records": ["red"]}),
        (3, k.MEMORY_REQUESTED, {"key": "m/2", "operation": "a text, no word"}),
        (4, k.MEMORY_FAILED, {"key": "m/2", "error": {"type": "StoreError", "message": "gone"}}),
    )

    _, found, failed = spans_from_events(events, capture_content=True)

    assert (found.name, found.kind, found.end) == ("search_memory", "memory", at(2))
    assert (found.input, found.output) == ({"query": "shoes"}, {"records": ["red"]})
    assert found.attributes == {
        "gen_ai.memory.record.count": 1,
        "gen_ai.operation.name": "search_memory",
        "lib.key": "m/1",
    }
    assert (failed.name, failed.status, failed.status_message) == ("memory", "error", "gone")
    assert failed.attributes == {
        "error.type": "StoreError",
        "lib.key": "m/2",
        "lib.reason": "error",
    }


def test_a_verdict_is_a_moment_with_the_tokens_that_it_took():
    verdict = {"guard": "pii", "stage": "input", "verdict": "block", "content_hash": "ab12"}
    events = make_log(
        (0, k.RUN_STARTED, START),
        (1, k.GUARD_VERDICT, {**verdict, "usage": {"input_tokens": 7}}),
        (1, k.GUARD_VERDICT, verdict),
    )

    root, judged, plain = spans_from_events(events)

    assert (judged.name, judged.kind, judged.status) == ("guard pii", "guardrail", "ok")
    assert (judged.start, judged.end) == (at(1), at(1))
    assert judged.attributes == {
        "gen_ai.usage.input_tokens": 7,
        "lib.guard.content_hash": "ab12",
        "lib.guard.name": "pii",
        "lib.guard.stage": "input",
        "lib.guard.verdict": "block",
    }
    assert judged.span_id != plain.span_id
    assert root.attributes["lib.usage.input_tokens"] == 7


def test_names_that_were_given_are_bounded():
    verdict = {"guard": "y" * 999, "stage": "input", "verdict": "block", "content_hash": "ab12"}
    events = make_log(
        (0, k.RUN_STARTED, {**START, "algorithm": "x" * 999}), (1, k.GUARD_VERDICT, verdict)
    )

    root, guard = spans_from_events(events)

    assert root.name == f"invoke_agent {'x' * 999}"[:128]
    assert root.attributes["gen_ai.agent.name"] == "x" * 128
    assert guard.attributes["lib.guard.name"] == "y" * 128


@pytest.mark.parametrize("made_up", ["x" * 999, "my pin is 1234", "hunter2\n"])
def test_what_a_model_calls_a_tool_is_content_unless_it_can_be_a_name(made_up: str):
    request = {"key": f"tool/1/{made_up}", "call_id": made_up, "name": made_up}
    events = make_log(
        (0, k.RUN_STARTED, START),
        (1, k.APPROVAL_REQUESTED, request),
        (2, k.TOOL_REQUESTED, {**request, "effects": "none"}),
    )

    _, waiting, silent = spans_from_events(events)
    told = spans_from_events(events, capture_content=True, content_limit=50)[2]

    assert (waiting.name, silent.name, told.name) == ("approval", "execute_tool", "execute_tool")
    assert "gen_ai.tool.name" not in silent.attributes
    assert told.attributes["gen_ai.tool.name"][:12] == made_up[:12]
    assert len(told.attributes["gen_ai.tool.name"]) <= 50


# -- death -------------------------------------------------------------------------------------


def test_what_a_dead_process_left_open_is_closed_as_an_error_and_what_waits_goes_on_waiting():
    events = make_log(
        (0, k.RUN_STARTED, START),
        (1, k.APPROVAL_REQUESTED, asked("a", "pay")),
        (1, k.TOOL_REQUESTED, asked("b", "search", effects="none")),
        (2, k.TOOL_COMPLETED, {"key": "tool/1/b", "call_id": "b", "output": "found"}),
        (3, k.TOOL_REQUESTED, asked("c", "search", effects="none")),
    )
    before = spans_from_events(events)

    root, waiting, closed, cut_off = interrupt(before, at(2.5))

    assert [waiting, closed] == before[1:3]
    assert [(span.end, span.status) for span in (root, cut_off)] == [
        (at(2.5), "error"),
        (at(3), "error"),
    ]
    told = {"error.type": "interrupted", "lib.run.open": True}
    assert cut_off.attributes == {**before[3].attributes, **told}
    assert list(root.attributes) == sorted({**before[0].attributes, **told})


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


@pytest.mark.parametrize("parent", [{}, [], "odd", {"run_id": 7}, {"run_id": "above"}])
def test_a_child_whose_parent_is_told_oddly_hangs_where_it_can(parent: Any) -> None:
    log = make_log((0, k.RUN_STARTED, {"algorithm": "a", "input": [], "parent": parent}))

    [run] = spans_from_events(log, parent_events=log)

    above = parent == {"run_id": "above"}
    assert run.parent_id == (span_id_of("above", "run", "") if above else None)
