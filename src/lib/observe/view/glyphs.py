"""Glyphs of a drawn trace, in Unicode and in plain ASCII."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from lib.observe.span import SpanKind
from lib.observe.view.words import State


@dataclass(frozen=True, slots=True, kw_only=True)
class Glyphs:
    """One set of glyphs; those of a kind of thing are equally wide.

    Attributes:
        kinds: one for each kind of span.
        branch: leads to a span with siblings below it; `last` to one without.
        line: passes by on the way to further siblings; `gap` where there are none.
        states: the outcome of a span.
        to: between tokens in and tokens out.
        dot: between totals.
        cut: the end of a name that is too long.
        bar: how a stretch of time is drawn; `goes_on` if it is not over.
        starts: half a cell of it at its beginning, `stops` at its end.
        waits: a wait for a person or for a process.
        dead: where a process was lost.
        moment: a span without length.
        tick: a mark on the axis of time.
    """

    kinds: Mapping[SpanKind, str]
    branch: str
    last: str
    line: str
    gap: str
    states: Mapping[State, str]
    to: str
    dot: str
    cut: str
    bar: str
    goes_on: str
    starts: str
    stops: str
    waits: str
    dead: str
    moment: str
    tick: str


UNICODE: Final = Glyphs(
    kinds={
        "agent": "◆",
        "session": "◈",
        "workflow": "◇",
        "llm": "●",
        "tool": "■",
        "retriever": "▼",
        "reranker": "▽",
        "embedding": "▦",
        "guardrail": "▲",
        "evaluator": "★",
        "memory": "▤",
        "internal": "○",
    },
    branch="├─ ",
    last="└─ ",
    line="│  ",
    gap="   ",
    states={"ok": "✓", "error": "✗", "off": "⊘", "open": "…"},
    to="→",
    dot="·",
    cut="…",
    bar="━",
    goes_on="╍",
    starts="╺",
    stops="╸",
    waits="┄",
    dead="†",
    moment="•",
    tick="┊",
)

ASCII: Final = Glyphs(
    kinds={
        "agent": "*",
        "session": "#",
        "workflow": "%",
        "llm": ">",
        "tool": "+",
        "retriever": "?",
        "reranker": "/",
        "embedding": "=",
        "guardrail": "!",
        "evaluator": "^",
        "memory": "@",
        "internal": "-",
    },
    branch="|- ",
    last="`- ",
    line="|  ",
    gap="   ",
    states={"ok": "ok", "error": "!!", "off": "--", "open": ".."},
    to="->",
    dot="|",
    cut="~",
    bar="=",
    goes_on="~",
    starts="=",
    stops="=",
    waits=".",
    dead="x",
    moment="o",
    tick=":",
)

COLOURS: Final[Mapping[SpanKind, str]] = {
    "agent": "bold cyan",
    "session": "bold cyan",
    "workflow": "bold cyan",
    "llm": "magenta",
    "tool": "bright_blue",
    "guardrail": "yellow",
    "evaluator": "yellow",
}
