"""Shared by tests of the page of a trace: a trace, and hands and eyes for a real browser."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from playwright.sync_api import Page

from lib.evals import Score
from lib.observe import Span, SpanEvent
from lib.observe.view.page import Page as TracePage
from lib.observe.view.page import render_page

Show = Callable[..., Page]
START = datetime(2026, 1, 1, 12, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def span(  # noqa: PLR0917 - a table of spans reads better without the names
    number: int,
    parent: int | None,
    name: str,
    kind: Any,
    begin: float,
    end: float | None,
    **more: Any,
) -> Span:
    return Span(
        trace_id="0" * 32,
        span_id=f"{number:016x}",
        parent_id=None if parent is None else f"{parent:016x}",
        name=name,
        kind=kind,
        start=at(begin),
        end=None if end is None else at(end),
        run_id="run-one",
        **more,
    )


SPANS = [
    span(
        0,
        None,
        "invoke_agent support",
        "agent",
        0,
        10,
        attributes={"lib.run.outcome": "COMPLETED"},
        events=[SpanEvent("run.resumed", at(4), {"lib.run.worker": "w2"})],
    ),
    span(
        1,
        0,
        "chat model-1",
        "llm",
        0.5,
        3,
        attributes={
            "gen_ai.usage.input_tokens": 1020,
            "gen_ai.usage.output_tokens": 85,
            "lib.cost.usd": 0.002,
        },
        input=[{"role": "user", "content": "Where is order 77?"}],
        output={"text": "Let me see."},
    ),
    span(2, 0, "execute_tool ask_expert", "tool", 3, 8),
    span(3, 2, "invoke_agent expert", "agent", 3.1, 7.9),
    span(4, 3, "chat model-2", "llm", 3.2, 7),
    span(
        5,
        0,
        "execute_tool refund",
        "tool",
        8,
        9,
        status="error",
        status_message="upstream said 503",
        attributes={"error.type": "timeout", "lib.attempts": 3},
    ),
    span(6, 0, "guard pii", "guardrail", 9, 9, attributes={"lib.guard.verdict": "allow"}),
    span(7, 0, "approval pay", "internal", 9, None),
]
NAMES = [
    "agent support",
    "chat model-1",
    "tool ask_expert",
    "agent expert",
    "chat model-2",
    "tool refund",
    "guard pii",
    "approval pay",
]
TRACE = render_page(
    TracePage(
        run_id="run-one",
        spans=SPANS,
        content=True,
        scores={SPANS[0].span_id: [Score(name="helpful", value=0.9, comment="well done")]},
    )
)


def many(number: int) -> list[Span]:
    out = [span(0, None, "invoke_agent support", "agent", 0, number)]
    for index in range(1, number):
        name, kind = ("chat model-1", "llm") if index % 3 else (f"execute_tool t{index}", "tool")
        parent = 0 if index % 50 == 1 else index - index % 50 + 1 if index % 50 else 0
        out.append(span(index, min(parent, index - 1), name, kind, index, index + 0.9))
    return out


def names(page: Page) -> list[str]:
    return page.locator(".row .what").all_inner_texts()


def selected(page: Page) -> str:
    return page.locator('.row[aria-selected="true"] .what').inner_text()


WHERE = """
async (selector) => {
  const frame = () => new Promise(requestAnimationFrame);
  await frame();  // rows are drawn anew when the window has another size
  await frame();
  const { x, y, width, height } = document.querySelector(selector).getBoundingClientRect();
  return { x, y, width, height };
}
"""


def box(page: Page, selector: str) -> dict[str, float]:
    return page.evaluate(WHERE, selector)


def press(page: Page, *keys: str) -> None:
    for key in keys:
        page.keyboard.press(key)
