"""The page around the data: markup, style and script, held together by a policy."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from html import escape
from importlib.resources import files
from string import Template
from typing import Final

from lib.evals import Score
from lib.observe.span import Span
from lib.observe.view.page.data import script_json, trace_data, visible
from lib.observe.view.tree import Totals, totals
from lib.observe.view.words import count, duration, title_of

SCRIPTS: Final = ("model.js", "rows.js", "markdown.js", "details.js", "trace.js")
"""The script's parts, in the order in which they stand on one another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """The trace that a page shows.

    Attributes:
        run_id: the trace's root run.
        spans: parents first; at least one.
        content: whether the spans were read with their content.
        scores: the scores of a span, by its id.
    """

    run_id: str
    spans: Sequence[Span]
    content: bool = False
    scores: Mapping[str, Sequence[Score]] = field(default_factory=dict[str, Sequence[Score]])


def render_page(page: Page) -> str:
    """Return the page as HTML that can be encoded as UTF-8."""
    style, script = _static("trace.css"), _script()
    data = trace_data(page.spans, page.scores)
    data["content"] = page.content
    return Template(_static("trace.html")).substitute(
        policy=_policy(style, script),
        title=escape(visible(title_of(page.spans))),
        run=escape(visible(page.run_id)),
        begun=f"{page.spans[0].start:%Y-%m-%d %H:%M:%S} UTC",
        totals="".join(f"<li>{escape(part)}</li>" for part in _totals(totals(page.spans))),
        style=style,
        script=script,
        data=script_json(data),
    )


def _totals(sums: Totals) -> list[str]:
    parts = [
        "open" if sums.took is None else duration(sums.took),
        count(sums.llm_calls, "model call"),
        count(sums.tool_calls, "tool call"),
        f"{sums.input_tokens:,} → {sums.output_tokens:,} tokens",
    ]
    parts += [f"${sums.cost:.4f}"] if sums.cost is not None else []
    parts += [count(sums.resumes, "takeover")] if sums.resumes else []
    return parts + ([count(sums.errors, "error")] if sums.errors else [])


def _policy(style: str, script: str) -> str:
    """Return the Content-Security-Policy: nothing is loaded, only these two run."""
    return "; ".join(
        (
            "default-src 'none'",
            f"style-src '{_hash(style)}'",
            f"script-src '{_hash(script)}'",
            "base-uri 'none'",
            "form-action 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        )
    )


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


@cache
def _static(name: str) -> str:
    return (files("lib.observe.view.page") / "static" / name).read_text(encoding="utf-8")


@cache
def _script() -> str:
    parts = "\n".join(_static(name) for name in SCRIPTS)
    return f'"use strict";\n(() => {{\n{parts}}})();\n'
