"""What a drawn trace is made of, in Unicode and in plain ASCII."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from lib.observe.span import SpanKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Glyphs:
    """One set of glyphs; those of a kind of thing are equally wide.

    Attributes:
        kinds: one for each kind of span.
        branch: leads to a span with siblings below it; `last` to one without.
        line: passes by on the way to further siblings; `gap` where there are none.
        ok: the span came out well; `error`, `off`, `open`: it did not, was called off, goes on.
        to: between tokens in and tokens out.
        dot: between totals.
        cut: the end of a name that is too long.
    """

    kinds: Mapping[SpanKind, str]
    branch: str
    last: str
    line: str
    gap: str
    ok: str
    error: str
    off: str
    open: str
    to: str
    dot: str
    cut: str


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
    ok="✓",
    error="✗",
    off="⊘",
    open="…",
    to="→",
    dot="·",
    cut="…",
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
    ok="ok",
    error="!!",
    off="--",
    open="..",
    to="->",
    dot="|",
    cut="~",
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
