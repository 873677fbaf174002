import io
import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from fakes.random_logs import traces
from lib.events import Event
from lib.events import kinds as k
from lib.observe import Span, render_trace, spans_from_events
from lib.observe import attributes as a
from lib.observe.view.tree import rows, totals
from lib.observe.view.words import duration, state_of, status_words
from lib.testing.logs import make_log
from lib.testing.sink import make_trace


def call_payload(call: str, name: str, **more: Any) -> dict[str, Any]:
    return {"key": f"tool/1/{call}", "call_id": call, "name": name, "args": {}, **more}


def reply(read: int, written: int, **more: Any) -> dict[str, Any]:
    usage = {"input_tokens": read, "output_tokens": written, **more}
    return {"parts": [], "model": "model-1", "usage": usage}


PARENT = make_log(
    (0, k.RUN_STARTED, {"algorithm": "support", "input": []}),
    (0.0021, k.GUARD_VERDICT, {"guard": "pii", "stage": "input", "verdict": "allow"}),
    (0.003, k.LLM_REQUESTED, {"key": "llm/1", "upto": 1, "digest": "d"}),
    (3.2, k.LLM_COMPLETED, {"key": "llm/1", "reply": reply(1020, 85, cost=0.002), "attempts": 2}),
    (3.2, k.TOOL_REQUESTED, call_payload("a", "search_orders")),
    (3.2, k.TOOL_REQUESTED, call_payload("b", "ask_expert")),
    (3.2, k.APPROVAL_REQUESTED, call_payload("c", "refund")),
    (3.6, k.TOOL_COMPLETED, {"key": "tool/1/a", "call_id": "a", "output": "order 7"}),
    (9.0, k.TOOL_COMPLETED, {"key": "tool/1/b", "call_id": "b", "output": "30 days"}),
    (140, k.APPROVAL_DECIDED, {"signal_id": "s", "key": "tool/1/c", "approved": True}),
    (140, k.TOOL_REQUESTED, call_payload("c", "refund")),
    (170, k.RUN_RESUMED, {"worker": "w2", "epoch": 2}),
    (
        170,
        k.TOOL_FAILED,
        {"key": "tool/1/c", "call_id": "c", "reason": "unknown", "code": "unknown", "message": "?"},
    ),
    (170.1, k.RUN_COMPLETED, {"outcome": "COMPLETED", "output": "done"}),
)
CHILD = make_log(
    (
        3.3,
        k.RUN_STARTED,
        {
            "algorithm": "expert",
            "root": "run",
            "parent": {"run_id": "run", "key": "tool/1/b"},
            "input": [],
        },
    ),
    (3.4, k.TOOL_REQUESTED, call_payload("d", "a_tool_with_a_name_that_no_console_has_room_for")),
    (3.4, k.TOOL_REQUESTED, call_payload("e", "delete_all", unstarted=True)),
    (
        3.4,
        k.TOOL_FAILED,
        {"key": "tool/1/e", "call_id": "e", "reason": "denied", "code": "denied", "message": "no"},
    ),
    (3.5, k.APPROVAL_REQUESTED, call_payload("f", "wipe")),
    (3.6, k.APPROVAL_DECIDED, {"signal_id": "s", "key": "tool/1/f", "approved": False}),
    (3.7, k.APPROVAL_REQUESTED, call_payload("g", "pay")),
    (3.8, k.LLM_REQUESTED, {"key": "llm/1", "upto": 1, "digest": "d"}),
    run_id="child",
)
TRACE = [*spans_from_events(PARENT), *spans_from_events(CHILD, parent_events=PARENT)]


def drawn(spans: Sequence[Span], *, width: int = 80, encoding: str = "utf-8") -> list[str]:
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding=encoding, newline="")
    Console(file=out, width=width).print(render_trace(spans))
    out.flush()
    return raw.getvalue().decode(encoding).splitlines()


def test_a_trace_is_a_tree_with_durations_tokens_and_statuses():
    assert drawn(TRACE) == [
        "◆ agent support                      2 m 50 s              ✓ COMPLETED",
        "├─ ▲ guard pii                                             ✓ allow",
        "├─ ● chat model-1                      3.20 s  1,020 → 85  ✓ 2 attempts",
        "├─ ■ tool search_orders                400 ms              ✓",
        "├─ ■ tool ask_expert                   5.80 s              ✓",
        "│  └─ ◆ agent expert                                       … open",
        "│     ├─ ■ tool a_tool_with_a_name…                        … open",
        "│     ├─ ■ tool delete_all                                 ⊘ denied",
        "│     ├─ ○ approval wipe               100 ms              ⊘ denied by ann",
        "│     ├─ ○ approval pay                                    … waiting",
        "│     └─ ● chat                                            … open",
        "├─ ○ approval refund                 2 m 17 s              ✓ approved by ann",
        "└─ ■ tool refund                      30.00 s              ✗ unknown, taken over",
        "2 m 50 s · 2 model calls · 4 tool calls · 1,020 → 85 tokens · $0.0020",
        "1 takeover · 1 error",
    ]


def test_where_there_is_no_unicode_it_is_drawn_in_ascii():
    spans = [*TRACE[:4], replace(TRACE[4], name="execute_tool café")]

    assert drawn(spans, encoding="ascii") == [
        "* agent support          2 m 50 s               ok COMPLETED",
        "|- ! guard pii                                  ok allow",
        "|- > chat model-1          3.20 s  1,020 -> 85  ok 2 attempts",
        "|- + tool search_orders    400 ms               ok",
        "`- + tool caf?             5.80 s               ok",
        "2 m 50 s | 1 model call | 2 tool calls | 1,020 -> 85 tokens | $0.0020",
        "1 takeover",
    ]


def test_where_there_is_little_room_tokens_and_then_durations_give_way_to_names():
    assert drawn(TRACE[:4], width=50)[2] == "├─ ● chat model-1          3.20 s  ✓ 2 attempts"
    assert drawn(TRACE[:4], width=37)[2] == "├─ ● chat model-1        ✓ 2 attempts"
    assert drawn(TRACE[:4], width=20)[2] == "├─ ●…   ✓ 2 attempts"


@given(traces(), st.integers(60, 120), st.sampled_from(["utf-8", "ascii", "latin-1"]))
def test_every_span_has_one_line_and_no_line_is_too_long(
    logs: list[list[Event]], width: int, encoding: str
):
    spans = [span for log in logs for span in spans_from_events(log)]

    lines = drawn(spans, width=width, encoding=encoding)

    assert max(map(len, lines)) <= width
    glyphs = "*#%>+?/=!^@-" if encoding != "utf-8" else "◆◈◇●■▼▽▦▲★▤○"
    assert len(lines) > len(spans)
    assert all(any(glyph in line for glyph in glyphs) for line in lines[: len(spans)])


def test_nothing_is_drawn_of_no_spans():
    assert drawn([]) == []


def test_names_cannot_reach_the_terminal():
    name = "execute_tool \x1b[31mred\x1b[0m\r\n\u202egnp.exe \ud800"

    line = drawn([replace(TRACE[3], name=name)])[0]

    assert line == "■ tool ?[31mred?[0m???gnp.exe ?  400 ms  ✓"


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        ({"outcome": "FAILED", "error": {"type": "LLMError"}}, "✗ FAILED: LLMError"),
        ({"outcome": "LIMITED", "reason": "max_steps"}, "✗ LIMITED: max_steps"),
        ({"outcome": "BLOCKED"}, "✗ BLOCKED"),
        ({"outcome": "BLOCKED", "reason": "guard"}, "✗ BLOCKED: guard"),
        ({"outcome": "CANCELLED", "reason": "typed"}, "⊘ CANCELLED"),
    ],
)
def test_an_outcome_is_drawn_with_its_reason(outcome: dict[str, Any], expected: str):
    log = make_log(
        (0, k.RUN_STARTED, {"algorithm": "a", "input": []}), (1, k.RUN_COMPLETED, outcome)
    )

    assert (
        drawn(spans_from_events(log, capture_content=True))[0] == f"◆ agent a  1.00 s  {expected}"
    )


def test_a_cancelled_call_is_drawn_as_called_off():
    root, *_ = make_trace()
    spans = [replace(root, attributes={"lib.reason": reason}) for reason in ("cancelled", "denied")]

    assert [drawn([span])[0].split("  ")[-1] for span in spans] == ["⊘ cancelled", "⊘ denied"]


def test_a_workflow_is_drawn_as_a_workflow():
    root = replace(make_trace()[0], kind="workflow", name="invoke_workflow debate")

    assert drawn([root])[0] == "◇ workflow debate  10.00 s  ✓"


def test_totals_that_do_not_fit_go_on_below():
    root, *_ = make_trace()
    whole = "10.00 s · 0 model calls · 0 tool calls · 0 → 0 tokens"

    assert drawn([root], width=len(whole))[1:] == [whole]
    assert drawn([root], width=len(whole) - 1)[1:] == whole.rsplit(" · ", 1)


def test_an_error_without_a_type_is_drawn_as_error():
    root, *_ = make_trace()

    assert drawn([replace(root, status="error")])[0] == "◆ agent agent-1  10.00 s  ✗ error"


def test_a_guard_without_a_verdict_is_drawn_as_fine():
    root, *_ = make_trace()

    assert drawn([replace(root, kind="guardrail", name="guard")])[0] == "▲ guard  10.00 s  ✓"


def test_colours_come_with_a_terminal():
    out = io.StringIO()
    terminal = Console(file=out, width=85, force_terminal=True, color_system="standard")

    terminal.print(render_trace([*TRACE[:3], TRACE[6], *TRACE[9:11]]))

    shown = out.getvalue().replace("\x1b", "").splitlines()
    assert [" ".join(line.split()) for line in shown] == [
        "[1;36m◆ [0m[2magent[0m[1m support[0m 2 m 50 s [32m✓ COMPLETED[0m",
        "[2m├─ [0m[33m▲ [0m[2mguard[0m pii [32m✓ allow[0m",
        "[2m├─ [0m[35m● [0m[2mchat[0m model-1 3.20 s [2m1,020 → 85[0m [32m✓ 2 attempts[0m",
        "[2m└─ [0m[94m■ [0m[2mtool[0m refund 30.00 s [1;31m✗ unknown, taken over[0m",
        "[94m■ [0m[2mtool[0m[1m delete_all[0m [33m⊘ denied[0m",
        "○ [2mapproval[0m[1m wipe[0m 100 ms [33m⊘ denied by ann[0m",
        "[2m2 m 50 s · 1 model call · 1 tool call · 1,020 → 85 tokens · $0.0020 · 1 takeover[0m",
        "[31m1 error[0m",
    ]


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0.0004, "0.4 ms"),
        (0.0123, "12 ms"),
        (0.9999, "1000 ms"),
        (1, "1.00 s"),
        (59.99, "59.99 s"),
        (59.999, "60.00 s"),
        (60, "1 m 00 s"),
        (3599.4, "59 m 59 s"),
        (3599.6, "1 h 00 m"),
        (7500, "2 h 05 m"),
        (3600 * 47 + 3599, "47 h 59 m"),
        (3600 * 48, "2 d 00 h"),
        (200000, "2 d 07 h"),
    ],
)
def test_a_duration_is_written_in_its_two_largest_units(seconds: float, expected: str):
    assert duration(timedelta(seconds=seconds)) == expected


# -- the tree ----------------------------------------------------------------------------------


def test_siblings_are_sorted_by_start_and_ties_keep_their_order():
    root, call, tool = make_trace()
    late = replace(call, span_id="late", start=call.start + timedelta(seconds=1))

    assert [row.span for row in rows([root, late, call, tool])] == [root, call, tool, late]


def test_spans_without_a_parent_before_them_stand_at_the_top():
    root, call, tool = make_trace()

    placed = [(row.span, row.last) for row in rows([call, root, tool])]

    assert placed == [(call, ()), (root, ()), (tool, (True,))]


def test_of_a_span_that_comes_twice_the_last_version_counts():
    root, call, tool = make_trace()
    newer = replace(call, name="chat newer")

    assert [row.span for row in rows([root, call, tool, newer])] == [root, newer, tool]


def test_a_very_deep_tree_is_drawn_too():
    root = make_trace()[0]
    deep = [root]
    for number in range(3000):
        deep.append(replace(root, span_id=f"{number}", parent_id=deep[-1].span_id))

    assert len(rows(deep)) == 3001
    assert len(drawn(deep)[3000]) <= 80


@given(traces(), st.randoms())
def test_every_span_stands_in_the_tree_exactly_once(logs: list[list[Event]], dice: random.Random):
    spans = [span for log in logs for span in spans_from_events(log)]
    dice.shuffle(spans)

    placed = [row.span for row in rows(spans)]

    assert len(placed) == len(spans)
    assert {span.span_id for span in placed} == {span.span_id for span in spans}


def test_totals_of_a_trace_are_sums_over_all_its_runs():
    sums = totals(TRACE)

    assert (sums.took, sums.llm_calls, sums.tool_calls) == (timedelta(seconds=170.1), 2, 4)
    assert (sums.input_tokens, sums.output_tokens, sums.cost) == (1020, 85, 0.002)
    assert (sums.errors, sums.resumes) == (1, 1)
    assert totals(TRACE[-1:]).took is None
    assert totals(TRACE[-1:]).cost is None


def test_a_failed_call_that_was_judged_is_an_error_still():
    failed = next(span for span in TRACE if span.status == "error")
    judged = replace(
        failed, span_id="judge", parent_id=failed.span_id, kind="evaluator", status="ok"
    )

    assert totals([*TRACE, judged]).errors == totals(TRACE).errors


ROOT = make_trace()[0]


def test_errors_are_counted_where_they_began_though_a_guard_has_looked() -> None:
    root = replace(ROOT, status="error", attributes={})
    call = replace(root, span_id="1" * 16, parent_id=root.span_id, kind="llm")
    guard = replace(call, span_id="2" * 16, parent_id=call.span_id, kind="guardrail", status="ok")
    other = replace(call, span_id="3" * 16)

    assert totals([root, call, guard]).errors == 1
    assert totals([root, call, guard, other]).errors == 2
    assert totals([root, guard]).errors == 1
    assert totals([replace(root, status="ok"), guard]).errors == 0


def test_blocked_guards_are_drawn_as_called_off_and_scores_with_their_value() -> None:
    for verdict, state in (("allowed", "ok"), ("blocked", "off"), ("failed", "off")):
        assert state_of(replace(ROOT, attributes={a.GUARD_VERDICT: verdict})) == state
    for expected, words in (
        ({a.EVALUATION_VALUE: 0.8}, ["0.8"]),
        ({a.EVALUATION_LABEL: "x"}, ["x"]),
    ):
        assert (
            list(status_words(replace(ROOT, kind="evaluator", attributes=dict(expected)))) == words
        )
