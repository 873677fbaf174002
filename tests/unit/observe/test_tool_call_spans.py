"""The span of a tool call, and of the person it waits for."""

from typing import Any

import pytest

from lib.events import kinds as k
from lib.observe import Span, span_id_of, spans_from_events, trace_id_of
from lib.testing.logs import at, make_log

from .span_kit import FAILURE, ROOT, START, call_payload


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


# -- tool calls --------------------------------------------------------------------------------


def test_tool_calls_end_well_with_an_error_or_called_off():
    def failed(call: str, reason: str) -> dict[str, Any]:
        return {"key": f"tool/1/{call}", "call_id": call, "reason": reason, **FAILURE}

    events = make_log(
        (0, k.RUN_STARTED, START),
        (1, k.TOOL_REQUESTED, call_payload("a", "search", effects="none", idempotency_key="i")),
        (1, k.TOOL_REQUESTED, call_payload("b", "pay", effects="once", idempotency_key="i")),
        (
            1,
            k.TOOL_REQUESTED,
            call_payload("c", "fetch", effects="idempotent", idempotency_key="i"),
        ),
        (1, k.TOOL_REQUESTED, call_payload("d", "delete", unstarted=True)),
        (1, k.TOOL_FAILED, failed("d", "denied")),
        (1, k.TOOL_REQUESTED, call_payload("e", "browse", effects="none", idempotency_key="i")),
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
        (1, k.TOOL_REQUESTED, call_payload("a", "search", effects="none")),
        (1, k.TOOL_REQUESTED, call_payload("b", "search", effects="none")),
        (2, k.TOOL_COMPLETED, {"key": "tool/1/a", "call_id": "a", "output": "found"}),
        (2, k.TOOL_FAILED, {"key": "tool/1/b", "call_id": "b", "reason": "error", **FAILURE}),
    )

    _, found, failed = spans_from_events(events, capture_content=True)

    assert (found.input, found.output, found.status_message) == ({"of": "a"}, "found", None)
    assert (failed.input, failed.output, failed.status_message) == ({"of": "b"}, None, "too slow")


def test_a_takeover_is_counted_on_the_calls_that_it_cut_off_and_on_no_others():
    events = make_log(
        (0, k.RUN_STARTED, START),
        (1, k.APPROVAL_REQUESTED, call_payload("a", "pay")),
        (1, k.TOOL_REQUESTED, call_payload("b", "search", effects="none")),
        (1, k.TOOL_REQUESTED, call_payload("c", "search", effects="none")),
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
    asking = (1, k.APPROVAL_REQUESTED, call_payload("a", "pay"))
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
        (9, k.TOOL_REQUESTED, call_payload("a", "pay", unstarted=True)),
        (9, k.RUN_COMPLETED, {"outcome": "CANCELLED"}),
    ],
)
def test_waiting_ends_with_what_it_was_for(end: tuple[float, str, dict[str, Any]]):
    span = approval_log(end)

    assert (span.end, span.status) == (at(9), "ok")
    assert "lib.approval.approved" not in span.attributes


# -- the rest ----------------------------------------------------------------------------------


def test_a_tool_call_to_an_mcp_server_says_so_on_its_own_span():
    mcp = {"method": "tools/call", "session_id": "s-1", "uri": "file:///secret", "transport": 7}
    events = make_log(
        (0, k.RUN_STARTED, START),
        (1, k.TOOL_REQUESTED, call_payload("a", "search", effects="none", mcp=mcp)),
        (2, k.TOOL_COMPLETED, {"key": "tool/1/a", "output": "x", "mcp": {"request_id": "12"}}),
    )

    _, call = spans_from_events(events)

    assert {name: call.attributes[name] for name in call.attributes if "mcp" in name} == {
        "mcp.method.name": "tools/call",
        "mcp.session.id": "s-1",
    }
    assert call.attributes["jsonrpc.request.id"] == "12"
    assert "network.transport" not in call.attributes


@pytest.mark.parametrize("made_up", ["x" * 999, "my pin is 1234", "hunter2\n"])
def test_what_a_model_calls_a_tool_is_content_unless_it_can_be_a_name(made_up: str):
    request = {"key": f"tool/1/{made_up}", "call_id": made_up, "name": made_up}
    events = make_log(
        (0, k.RUN_STARTED, START),
        (1, k.APPROVAL_REQUESTED, request),
        (2, k.TOOL_REQUESTED, {**request, "effects": "none"}),
    )

    _, waiting, silent = spans_from_events(events)
    result = spans_from_events(events, capture_content=True, content_limit=50)[2]

    assert (waiting.name, silent.name, result.name) == ("approval", "execute_tool", "execute_tool")
    assert "gen_ai.tool.name" not in silent.attributes
    assert result.attributes["gen_ai.tool.name"][:12] == made_up[:12]
    assert len(result.attributes["gen_ai.tool.name"]) <= 50
