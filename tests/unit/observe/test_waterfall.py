"""A trace as a waterfall for a terminal."""

import io
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from effort import effort_below
from fakes.random_logs import traces
from lib.events import Event
from lib.events import kinds as k
from lib.observe import Span, SpanEvent, spans_from_events
from lib.observe import attributes as a
from lib.observe.span import LOST, RESUMED
from lib.observe.spans import interrupt
from lib.observe.view.tree import rows
from lib.observe.view.waterfall import Columns, Shown, Waterfall, columns, select
from lib.testing.logs import make_log
from lib.testing.sink import make_trace

PARENT = make_log(
    (0, k.RUN_STARTED, {"algorithm": "support", "input": [{"role": "user", "content": "go"}]}),
    (0, k.GUARD_VERDICT, {"guard": "pii", "stage": "input", "verdict": "allow"}),
    (0.5, k.LLM_REQUESTED, {"key": "llm/1", "upto": 1, "digest": "d"}),
    (
        3.5,
        k.LLM_COMPLETED,
        {
            "key": "llm/1",
            "reply": {
                "parts": [],
                "model": "model-1",
                "usage": {"input_tokens": 1020, "output_tokens": 85, "cost": 0.002},
            },
        },
    ),
    (
        3.5,
        k.TOOL_REQUESTED,
        {"key": "tool/1/a", "call_id": "a", "name": "ask_expert", "args": {"who": "ann"}},
    ),
    (
        3.5,
        k.TOOL_REQUESTED,
        {"key": "tool/1/b", "call_id": "b", "name": "refund", "args": {}},
    ),
    (
        9.0,
        k.TOOL_FAILED,
        {"key": "tool/1/b", "call_id": "b", "reason": "error", "code": "timeout", "message": "?"},
    ),
)
CHILD = make_log(
    (
        3.2,  # the clock of its process is behind
        k.RUN_STARTED,
        {
            "algorithm": "expert",
            "root": "run",
            "parent": {"run_id": "run", "key": "tool/1/a"},
            "input": [],
        },
    ),
    (4.0, k.LLM_REQUESTED, {"key": "llm/1", "upto": 1, "digest": "d"}),
    (10.0, "user.note", {}),
    run_id="child",
)


def both(*, content: bool = False) -> list[Span]:
    child = spans_from_events(CHILD, parent_events=PARENT, capture_content=content)
    dead = interrupt(child, CHILD[-1].at)
    return [*spans_from_events(PARENT, capture_content=content), *dead]


def drawn(
    spans: Sequence[Span], *, width: int = 100, encoding: str = "utf-8", **options: int | None
) -> list[str]:
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding=encoding, newline="")
    Console(file=out, width=width).print(Waterfall(spans, **options))
    out.flush()
    return raw.getvalue().decode(encoding).split("\n")[:-1]


DRAWN = [
    "                              0          5 s",
    "◆ agent support               ╍╍╍╍╍╍╍╍╍╍╍╍╍╍╍╍╍╍╍╍╍╍╍                      … open",
    "├─ ▲ guard pii                •          ┊                                 ✓ allow",
    "├─ ● chat model-1     3.00 s  ┊━━━━━━━╸  ┊             1,020 → 85 $0.0020  ✓",
    "├─ ■ tool ask_expert          ┊       ╍╍╍╍╍╍╍╍╍╍╍╍╍╍╍                      … open",
    "│  └─ ◆ agent expert  6.80 s  ┊      ━━━━━━━━━━━━━━━†                      ✗ interrupted",
    "│     └─ ● chat       6.00 s  ┊        ━━━━━━━━━━━━━━                      ✗ interrupted",
    "└─ ■ tool refund      5.50 s  ┊       ━━━━━━━━━━━━━                        ✗ timeout",
    "… open · 2 model calls · 2 tool calls · 1,020 → 85 tokens · $0.0020 · 2 errors",
]


def test_a_trace_is_a_tree_with_bars_on_an_axis():
    assert drawn(both(), width=88) == DRAWN


def test_the_documentation_page_shows_the_drawn_waterfall():
    page = Path(__file__).parents[3] / "docs" / "how-to" / "read-a-trace.md"

    assert "\n".join(DRAWN) in page.read_text(encoding="utf-8")


def test_where_there_is_no_unicode_it_is_drawn_in_ascii():
    assert drawn(both(), width=88, encoding="ascii") == [
        "                              0         5 s",
        "* agent support               ~~~~~~~~~~~~~~~~~~~~~                       .. open",
        "|- ! guard pii                o         :                                 ok allow",
        "|- > chat model-1     3.00 s  :=======  :            1,020 -> 85 $0.0020  ok",
        "|- + tool ask_expert          :      ~~~~~~~~~~~~~~                       .. open",
        "|  `- * agent expert  6.80 s  :     ==============x                       !! interrupted",
        "|     `- > chat       6.00 s  :       =============                       !! interrupted",
        "`- + tool refund      5.50 s  :      ============                         !! timeout",
        ".. open | 2 model calls | 2 tool calls | 1,020 -> 85 tokens | $0.0020 | 2 errors",
    ]


def test_content_stands_below_its_span_on_one_line_if_there_is_any():
    assert drawn(both(content=True), width=72) == [
        "                              0            5 s",
        "◆ agent support               ╍╍╍╍╍╍╍╍╍╍╍╍╍╍╍╍╍╍╍╍╍╍╍╍╍╍╍  … open",
        "   in    user: go",
        "├─ ▲ guard pii                •            ┊               ✓ allow",
        "├─ ● chat model-1     3.00 s  ┊━━━━━━━━╸   ┊               ✓",
        "│     in    user: go",
        "│     out   assistant:",
        "├─ ■ tool ask_expert          ┊        ╍╍╍╍╍╍╍╍╍╍╍╍╍╍╍╍╍╍  … open",
        '│     in    {"who": "ann"}',
        "│  └─ ◆ agent expert  6.80 s  ┊       ╺━━━━━━━━━━━━━━━━━†  ✗ interrupted",
        "│     └─ ● chat       6.00 s  ┊         ╺━━━━━━━━━━━━━━━━  ✗ interrupted",
        "└─ ■ tool refund      5.50 s  ┊        ━━━━━━━━━━━━━━━╸    ✗ timeout",
        "      in    {}",
        "      error ?",
        "… open · 2 model calls · 2 tool calls · 1,020 → 85 tokens · $0.0020",
        "2 errors",
    ]


@pytest.mark.parametrize(
    ("room", "expected"),
    [
        (200, Columns(name=60, took=8, bar=82, used=20, status=22)),
        (110, Columns(name=44, took=8, bar=30, used=0, status=22)),
        (80, Columns(name=32, took=8, bar=16, used=0, status=18)),
        (60, Columns(name=16, took=8, bar=16, used=0, status=14)),
        (50, Columns(name=16, took=8, bar=19, used=0, status=1)),
        (40, Columns(name=16, took=0, bar=19, used=0, status=1)),
        (30, Columns(name=27, took=0, bar=0, used=0, status=1)),
        (2, Columns(name=1, took=0, bar=0, used=0, status=1)),
    ],
)
def test_where_there_is_little_room_one_column_after_the_other_gives_way(
    room: int, expected: Columns
):
    natural = Columns(name=60, took=8, bar=0, used=20, status=22)

    assert columns(room, natural, 1) == expected


def test_an_empty_column_takes_no_room():
    natural = Columns(name=10, took=0, bar=0, used=0, status=1)

    assert columns(60, natural, 1) == Columns(name=10, took=0, bar=45, used=0, status=1)


def chain(length: int) -> list[Span]:
    root = make_trace()[0]
    spans = [root]
    for number in range(length - 1):
        spans.append(replace(root, span_id=f"{number}", parent_id=spans[-1].span_id))
    return spans


def star(length: int) -> list[Span]:
    root = make_trace()[0]
    below = [
        replace(root, span_id=f"{n}", parent_id=root.span_id, start=root.start + timedelta(0, n))
        for n in range(length - 1)
    ]
    return [root, *below]


def test_depth_and_limit_cut_a_trace():
    tree = rows(chain(5))

    assert [shown.row for shown in select(tree, depth=None, limit=None)] == tree
    assert select(tree, depth=2, limit=None) == [Shown(tree[0]), Shown(tree[1], 3)]
    assert select(tree, depth=None, limit=3) == [Shown(row) for row in tree[:3]]
    wide = rows(star(9))
    assert select(wide, depth=1, limit=1) == [Shown(wide[0], 8)]


def test_the_number_of_hidden_spans_is_shown():
    shown = drawn(chain(8), depth=3)

    assert "agent agent-1 +5" in shown[3]
    assert shown[-1] == "5 spans of 8 not shown: --depth, --limit"
    assert drawn(star(8), limit=7)[-1] == "1 span of 8 not shown: --depth, --limit"
    assert "not shown" not in drawn(star(8), limit=8)[-1]


@pytest.mark.parametrize("shape", [chain, star])
def test_ten_thousand_spans_are_drawn_in_bounded_time(shape: Callable[[int], list[Span]]):
    spans = shape(10_000)
    with effort_below(5):
        shown = drawn(spans, limit=500)

        assert len(shown) == 503


def test_nothing_is_drawn_of_no_spans():
    assert drawn([]) == []


def test_colours_come_with_a_terminal_and_say_how_a_span_came_out():
    out = io.StringIO()
    Console(file=out, width=90, force_terminal=True, color_system="standard").print(
        Waterfall(both())
    )

    shown = out.getvalue()
    assert "\x1b[35m━" in shown  # a model call
    assert "\x1b[1;31m━" in shown  # an error
    assert "\x1b[33m╍" in shown  # open


def test_no_colours_are_drawn_where_none_are_wanted(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("NO_COLOR", "1")
    out = io.StringIO()
    Console(file=out, width=90, force_terminal=True, color_system="standard").print(
        Waterfall(both())
    )

    assert not any(f"\x1b[{colour}m" in out.getvalue() for colour in (31, 33, 35, "1;31", "1;36"))


HOSTILE = st.text(
    st.sampled_from("\x1b[31m]0;\x07\r\n\t\u202e\u2066\u200f\u2028\x9b\x85\ud800漢e\u0301👍a ")
)


@given(traces(content=HOSTILE), HOSTILE, st.integers(1, 140), st.integers(1, 6))
def test_any_trace_is_drawn_with_every_line_in_the_width_and_nothing_to_obey(
    logs: list[list[Event]], name: str, width: int, depth: int
):
    spans = [span for log in logs for span in spans_from_events(log, capture_content=True)]
    spans[0] = replace(spans[0], name=f"invoke_agent {name}")

    lines = drawn(spans, width=width, depth=depth)

    assert all(cell_len(line) <= width for line in lines)
    assert {unicodedata.category(sign) for line in lines for sign in line}.isdisjoint(
        {"Cc", "Cf", "Cs", "Zl", "Zp"}
    )


ROOT = make_trace()[0]


# -- what went wrong, and when nothing was done ------------------------------------------------


def test_a_death_and_the_time_without_a_process_are_lines_of() -> None:
    lost, back = ROOT.start + timedelta(seconds=4), ROOT.start + timedelta(seconds=8)
    moments = [SpanEvent(LOST, lost), SpanEvent(RESUMED, back)]
    taken_over = replace(ROOT, end=ROOT.start + timedelta(seconds=10), events=moments)

    (line,) = [line for line in lines_of([taken_over], 100) if "†" in line]

    assert "━†┄" in line
    assert "┄━" in line
    assert "━†" in "".join(lines_of([replace(taken_over, events=moments[:1])], 100))


def test_waiting_for_a_person_is_drawn_as_waiting() -> None:
    root = replace(ROOT, end=ROOT.start + timedelta(seconds=10))
    approval = replace(
        root, span_id="a" * 16, parent_id=root.span_id, name="approval refund", kind="internal"
    )

    assert "┄┄┄" in "".join(lines_of([root, approval], 100))


def test_a_status_is_whole_where_there_is_room_and_bars_keep_theirs() -> None:
    why = "a reason that takes more cells than thirty-two of them"
    limited = replace(ROOT, status="error", attributes={a.RUN_OUTCOME: "LIMITED", a.REASON: why})

    assert why in "".join(lines_of([limited], 160))
    assert why not in "".join(lines_of([limited], 60))


def lines_of(spans: Sequence[Span], width: int) -> list[str]:
    console = Console(width=width, file=io.StringIO(), color_system=None)
    with console.capture() as capture:
        console.print(Waterfall(spans))
    return capture.get().splitlines()
