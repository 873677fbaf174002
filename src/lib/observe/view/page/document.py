"""A trace as a page: its data with all text made harmless, markup, style, script and a policy."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from html import escape
from importlib.resources import files
from string import Template
from typing import Any, Final

from lib.evals import Score
from lib.observe import attributes as a
from lib.observe.dialects.messages import LoggedMessage, conversation
from lib.observe.span import Span, SpanEvent
from lib.observe.view.axis import Axis, axis_of
from lib.observe.view.glyphs import UNICODE
from lib.observe.view.tree import Row, Totals, rows, totals
from lib.observe.view.words import (
    CONVERSATIONS,
    count,
    dead_times,
    duration,
    is_waiting,
    operation_of,
    state_of,
    status_words,
    title_of,
)

MARKUP: Final = "waterfall.html"
"""The elements that the script fills: the tools, the waterfall, the details."""

STYLES: Final = ("tokens.css", "trace.css")
"""The style's parts: the colours, which other pages share, and all that is of this page."""

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
    style, script = "".join(map(_static, STYLES)), _script()
    data = trace_data(page.spans, page.scores)
    data["content"] = page.content
    return Template(_static("trace.html")).substitute(
        policy=_policy(style, script),
        title=escape(visible(title_of(page.spans))),
        run=escape(visible(page.run_id)),
        begun=f"{page.spans[0].start:%Y-%m-%d %H:%M:%S} UTC",
        totals="".join(f"<li>{escape(part)}</li>" for part in _totals(totals(page.spans))),
        waterfall=_static(MARKUP),
        style=style,
        script=script,
        data=script_json(data),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Waterfall:
    """The parts that draw a trace in another page, in a shadow root.

    Attributes:
        markup: elements to put there, without any data.
        colours: the style of the page around it.
        style: of the elements, to link in the shadow root.
        module: an ES module that exports `drawTrace(root, trace, signal)`, where `trace` is
            `trace_data` with `content`, and `signal` ends what it hears of the window.
    """

    markup: str
    colours: str
    style: str
    module: str


def waterfall() -> Waterfall:
    """Return the parts that draw a trace in another page."""
    module = f"export function drawTrace(root, trace, signal) {{\n{_parts()}}}\n"
    colours, style = map(_static, STYLES)
    return Waterfall(markup=_static(MARKUP), colours=colours, style=style, module=module)


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
def _parts() -> str:
    return "\n".join(_static(name) for name in SCRIPTS)


def _script() -> str:
    data = 'JSON.parse(document.getElementById("trace").textContent)'
    return f'"use strict";\n((root, trace, signal) => {{\n{_parts()}}})(document, {data});\n'


_MISLEADING: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)
"""Controls other than tabs and new lines, marks that change the direction of writing, invisible
letters, and what UTF-8 cannot encode: shown as their numbers."""

_UNSAFE: Final = re.compile("[<>&\u2028\u2029\ud800-\udfff]")
"""Characters that must not stand in a page's JSON, which has them inside strings only."""


def script_json(value: Any) -> str:
    """Return the value as JSON that can stand in a `<script>` element and be encoded as UTF-8.

    Raises:
        ValueError: a number is NaN or infinite.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def visible(text: str) -> str:
    """Return the text with everything that misleads a reader made visible, by its number."""
    return _MISLEADING.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def trace_data(spans: Sequence[Span], scores: Mapping[str, Sequence[Score]]) -> dict[str, Any]:
    """Return the data that the page's script draws, for at least one span.

    Times are microseconds since the first moment of the trace. Values of attributes and content
    are text already: a browser would round large numbers.
    """
    axis = axis_of(spans)
    path: list[int] = []
    out: list[dict[str, Any]] = []
    for number, row in enumerate(rows(spans)):
        parent = path[row.depth - 1] if row.depth else -1
        path[row.depth :] = [number]
        data = _row(row, parent, axis)
        if judged := scores.get(row.span.span_id):
            data["scores"] = [(visible(score.name), _score(score)) for score in judged]
        out.append(data)
    return {
        "begun_ms": axis.start.timestamp() * 1000,
        "length": axis.length_us,
        "kinds": UNICODE.kinds,
        "marks": UNICODE.states,
        "spans": out,
    }


def _row(row: Row, parent: int, axis: Axis) -> dict[str, Any]:
    span = row.span
    operation, what = operation_of(span)
    data: dict[str, Any] = {
        "parent": parent,
        "depth": row.depth,
        "id": span.span_id,
        "run": visible(span.run_id),
        "kind": span.kind,
        "operation": visible(operation),
        "what": visible(what),
        "start": axis.offset_us(span.start),
        "end": axis.end_us(span),
        "took": duration(span.end - span.start) if span.end and span.end > span.start else "",
        "state": state_of(span),
        "words": visible(", ".join(status_words(span))),
        "used": _used(span.attributes),
        "attributes": _pairs(span.attributes),
    }
    if is_waiting(span):
        data["waiting"] = True
    if dead := [(axis.offset_us(lost), axis.offset_us(back)) for lost, back in dead_times(span)]:
        data["dead"] = dead
    sides = (("input_messages", span.input, "user"), ("output_messages", span.output, "assistant"))
    for side, value, role in sides:
        if span.kind in CONVERSATIONS and value is not None:
            data[side] = [_message(one) for one in conversation(value, role)]
    content = {"input": span.input, "output": span.output, "error": span.status_message}
    data |= {name: _text(value) for name, value in content.items() if value is not None}
    owners = {"tenant": span.tenant, "user": span.user}
    data |= {name: visible(value) for name, value in owners.items() if value is not None}
    if span.events:
        data["events"] = [_event(event, axis) for event in span.events]
    return data


def _message(one: LoggedMessage) -> dict[str, Any]:
    """Return a message for the page: its role, and parts of a kind, a heading and a text."""
    return {"role": visible(one.role), "parts": [_part(part) for part in one.parts]}


def _part(part: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return what a part is (only text is Markdown), its heading and its text."""
    match part["type"]:
        case "text":
            return "text", "", _text(part.get("text", ""))
        case "thinking":
            return "thinking", "thinking", _text(part.get("text", ""))
        case "tool_call":
            name = _text(part.get("name", ""))
            return "call", f"calls {name}", _text(part.get("arguments", {}))
        case "tool_result":
            wrong = " (an error)" if part.get("is_error") else ""
            return "result", f"result{wrong}", _text(part.get("content", ""))
        case other:
            return "other", visible(str(other)), _text(dict(part))


def _used(attributes: Mapping[str, Any]) -> str:
    tokens = [attributes.get(name, 0) for name in (a.INPUT_TOKENS, a.OUTPUT_TOKENS)]
    parts = [f"{tokens[0]:,} {UNICODE.to} {tokens[1]:,}"] if any(tokens) else []
    if (cost := attributes.get(a.COST)) is not None:
        parts.append(f"${cost:.4f}")
    return " · ".join(parts)


def _event(event: SpanEvent, axis: Axis) -> dict[str, Any]:
    return {
        "at": axis.offset_us(event.at),
        "name": visible(event.name),
        "attributes": _pairs(event.attributes),
    }


def _score(score: Score) -> str:
    text = f"{_text(score.value)} ({score.source})"
    return f"{text}: {visible(score.comment)}" if score.comment else text


def _pairs(attributes: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(visible(name), _text(value)) for name, value in attributes.items()]


def _text(value: Any) -> str:
    if not isinstance(value, str):
        value = json.dumps(value, ensure_ascii=False, indent=2)
    return visible(value)
