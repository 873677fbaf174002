"""The page of a trace: what stands in it, before a browser reads it."""

import base64
import hashlib
import json
import re
from dataclasses import replace
from datetime import timedelta
from html import unescape
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.random_logs import traces
from lib.evals import Score
from lib.events import Event
from lib.observe import Span, SpanEvent, spans_from_events
from lib.observe.view.page import Page, render_page
from lib.observe.view.page.document import script_json, trace_data, visible
from lib.testing.sink import make_trace

ROOT, CALL, TOOL = make_trace()


class Elements(HTMLParser):
    """Reads a page as a browser does: the elements with their attributes, and raw text blocks."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text: dict[str, list[str]] = {}
        self._inside: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        self._inside.append(tag)

    def handle_endtag(self, tag: str) -> None:
        while self._inside and self._inside.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.text.setdefault(self._inside[-1], []).append(data)

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.found if name == tag]


def data_of(page: str) -> Any:
    return json.loads(Elements(page).text["script"][0])


def sha256(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def test_the_policy_allows_this_style_and_this_script_and_nothing_else():
    elements = Elements(render_page(Page(run_id="run", spans=[ROOT])))
    policy = next(
        meta["content"]
        for meta in elements.named("meta")
        if meta.get("http-equiv") == "Content-Security-Policy"
    )

    (style,), (_, script) = elements.text["style"], elements.text["script"]
    assert policy is not None
    assert policy.split("; ") == [
        "default-src 'none'",
        f"style-src 'sha256-{sha256(style)}'",
        f"script-src 'sha256-{sha256(script)}'",
        "base-uri 'none'",
        "form-action 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    ]


def test_nothing_in_the_page_asks_for_anything_or_runs_by_itself():
    page = render_page(Page(run_id="run", spans=[ROOT]))
    elements = Elements(page)

    names = {name for _, attributes in elements.found for name in attributes}
    assert not any(name.startswith("on") for name in names)
    assert names.isdisjoint({"src", "href", "srcset", "action", "style", "background", "data"})
    assert {tag for tag, _ in elements.found}.isdisjoint(
        {"link", "img", "iframe", "object", "base"}
    )
    style, script = elements.text["style"][0], elements.text["script"][1]
    assert "url(" not in style
    assert "@import" not in style
    banned = (
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "Function(",
    )
    assert [word for word in banned if word in script] == []
    assert [
        word for word in ("fetch(", "XMLHttp", "import(", "http:", "https:") if word in script
    ] == []


HOSTILE = [
    "</script><img src=x onerror=alert(1)>",
    "<!--<script>",
    "]]>",
    "\u2028\u2029",
    "\ud800 \udfff",
    "\x00\x1b[31m\x7f\x9b",
    "\u202egnp.exe\u2066",
    "$run ${data} $$",
    "&lt;b&gt; &amp;",
    "漢字 👍 é",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_whatever_a_span_holds_stays_data(text: str):
    event = SpanEvent(text, ROOT.start, {text: text})
    span = replace(
        ROOT,
        name=f"invoke_agent {text}",
        attributes={text: [text]},
        events=[event],
        input=text,
        output={text: text},
        status_message=text,
        tenant=text,
        user=text,
        run_id=text,
    )
    scores = {span.span_id: [Score.model_construct(name=text, value=text, comment=text)]}

    page = render_page(Page(run_id=text, spans=[span], scores=scores))

    plain = render_page(Page(run_id="run", spans=[ROOT]))
    assert [tag for tag, _ in Elements(page).found] == [tag for tag, _ in Elements(plain).found]
    page.encode()
    (result,) = data_of(page)["spans"]
    assert result["what"] == result["input"] == result["error"] == result["run"] == visible(text)
    assert result["events"][0]["name"] == result["attributes"][0][0] == visible(text)
    assert result["scores"] == [[visible(text), f"{visible(text)} (code): {visible(text)}"]]
    title, named = Elements(page).text["bdi"]
    assert named == visible(text)
    assert title.startswith(visible(text).strip())


@given(st.recursive(st.text() | st.integers() | st.none(), st.lists, max_leaves=5))
def test_json_in_a_page_is_the_value_and_ends_no_element(value: Any):
    text = script_json(value)

    assert json.loads(text) == value
    assert re.search("[<>&\u2028\u2029\ud800-\udfff]", text) is None
    assert unescape(text) == text


def test_what_is_no_number_is_refused_rather_than_written():
    with pytest.raises(ValueError, match="not JSON compliant"):
        script_json(float("nan"))


def test_misleading_signs_are_shown_by_their_numbers_and_others_as_they_are():
    assert visible("a\tb\nc 漢 é 👩\u200d🚀") == "a\tb\nc 漢 é 👩\u200d🚀"
    assert visible("\u202e\x1b\ud800\u200b") == "\\u202e\\u001b\\ud800\\u200b"
    assert visible("\U000e0041") == "\\ue0041"


def test_rows_stand_in_the_order_of_the_tree_with_times_from_the_first_moment():
    start = ROOT.start
    early = replace(CALL, start=start - timedelta(seconds=2), end=start)
    still = replace(TOOL, end=None)

    result = trace_data([ROOT, still, early], {})

    assert (result["begun_ms"], result["length"]) == (early.start.timestamp() * 1000, 12_000_000)
    keys = ("parent", "depth", "id", "start", "end", "took", "state", "words")
    assert [tuple(span[key] for key in keys) for span in result["spans"]] == [
        (-1, 0, ROOT.span_id, 2_000_000, 12_000_000, "10.00 s", "ok", ""),
        (0, 1, early.span_id, 0, 2_000_000, "2.00 s", "ok", ""),
        (0, 1, still.span_id, still_start(still, early), 12_000_000, "", "open", "open"),
    ]


def still_start(span: Span, first: Span) -> int:
    return (span.start - first.start) // timedelta(microseconds=1)


def test_tokens_and_cost_are_shown_and_numbers_that_a_browser_would_round_are_text():
    usage = {"gen_ai.usage.input_tokens": 1020, "gen_ai.usage.output_tokens": 85}
    spans = [
        replace(ROOT, attributes={"big": 2**60}),
        replace(CALL, attributes={**usage, "lib.cost.usd": 0.002}),
        replace(TOOL, attributes={"lib.cost.usd": 0.5}),
    ]

    result = trace_data(spans, {})["spans"]

    assert [span["used"] for span in result] == ["", "1,020 → 85 · $0.0020", "$0.5000"]
    assert result[0]["attributes"] == [("big", str(2**60))]


def test_totals_stand_at_the_top():
    usage = {"gen_ai.usage.input_tokens": 1020, "lib.cost.usd": 0.25}
    resumed = [SpanEvent("run.resumed", ROOT.start)]
    spans = [
        replace(ROOT, events=resumed),
        replace(CALL, attributes=usage),
        replace(TOOL, status="error"),
    ]

    shown = Elements(render_page(Page(run_id="run", spans=spans))).text["li"]

    assert shown[0] == "10.00 s"
    assert shown[3:] == ["1,020 → 0 tokens", "$0.2500", "1 takeover", "1 error"]
    unfinished = render_page(Page(run_id="run", spans=[replace(ROOT, end=None)]))
    assert Elements(unfinished).text["li"][0] == "open"


@given(traces())
def test_any_trace_has_a_page_with_every_span_under_its_parent(logs: list[list[Event]]):
    spans = [span for log in logs for span in spans_from_events(log, capture_content=True)]

    result = data_of(render_page(Page(run_id="run", spans=spans)))

    by_id = {span.span_id: span for span in spans}
    assert sorted(span["id"] for span in result["spans"]) == sorted(by_id)
    for number, span in enumerate(result["spans"]):
        assert span["parent"] < number
        assert 0 <= span["start"] <= span["end"] <= result["length"]
        if span["parent"] >= 0:
            above = result["spans"][span["parent"]]
            assert by_id[span["id"]].parent_id == above["id"]
            assert span["depth"] == above["depth"] + 1
