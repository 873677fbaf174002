"""Hostile text on the page of a trace is only ever text, in a real browser."""

import http.server
import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest
from playwright.sync_api import Browser, Error, expect

from lib.observe import SpanEvent
from lib.observe.view.page import Page as TracePage
from lib.observe.view.page import render_page

from .page_kit import TRACE, Show, at, span

ATTACK = "</script><img src='//evil.invalid/' onerror='window.hacked=1'><script>window.hacked=1"
HOSTILE = (
    ATTACK,
    "<!--<script>",
    "\u2028\u2029 \ud800",
    "javascript:alert(1)",
    "__proto__",
    "\u202egnp",
)


def test_hostile_text_is_only_ever_text(show: Show) -> None:
    spans = [span(0, None, "invoke_agent support", "agent", 0, 2)]
    for number, text in enumerate(HOSTILE, 1):
        one = span(
            number,
            0,
            f"execute_tool {text}",
            "tool",
            0,
            2,
            status="error",
            status_message=text,
            attributes={text: text, "error.type": text},
            events=[SpanEvent(text, at(1), {text: text})],
            input=text,
            output={text: text},
        )
        spans.append(replace(one, run_id=text, tenant=text, user=text))
    page = show(render_page(TracePage(run_id=ATTACK, spans=spans, content=True)))

    for number, text in enumerate(HOSTILE, 1):
        page.locator(f"#row-{number}").click()
        page.locator("#search").fill(text[:9])
    page.locator("#row-1").click()

    assert page.locator("#details h2").inner_text() == f"tool {ATTACK}"
    assert page.evaluate("window.hacked") is None
    assert page.locator("img, iframe, object, a").count() == 0
    assert page.locator("script").count() == 2
    assert "\u202e" not in page.locator("body").inner_text()


def test_the_policy_stops_what_the_page_itself_would_never_do(browser: Browser) -> None:
    page = browser.new_page()
    page.set_content(TRACE)

    with pytest.raises(Error, match="TrustedHTML"):
        page.evaluate("document.body.innerHTML = '<b>bold</b>'")
    page.evaluate(
        """() => {
          const style = document.createElement("style");
          style.textContent = "body { color: rgb(1, 2, 3) }";
          document.body.append(style);
          document.body.setAttribute("style", "color: rgb(1, 2, 3)");
        }"""
    )
    with pytest.raises(Error, match="TrustedScript"):
        page.evaluate("document.body.setAttribute('onclick', 'window.hacked = 1')")
    with pytest.raises(Error, match="eval"):
        page.evaluate("setTimeout('window.hacked = 1')")
    assert page.evaluate("getComputedStyle(document.body).color") != "rgb(1, 2, 3)"
    refused = page.evaluate("fetch('http://127.0.0.1:1/').then(() => 'sent', String)")
    assert "Failed to fetch" in refused
    page.close()


@pytest.fixture
def server() -> Iterator[tuple[str, list[str]]]:
    """Serves the page, and notes every request that it gets."""
    requests: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            requests.append(self.path)
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.end_headers()
            self.wfile.write(TRACE.replace("run-one", "<img src='/x'>").encode())

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as served:
        thread = threading.Thread(target=served.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{served.server_port}", requests
        served.shutdown()
        thread.join()


def test_no_request_leaves_the_page_even_if_markup_got_into_it(
    browser: Browser, server: tuple[str, list[str]]
) -> None:
    url, requests = server
    page = browser.new_page()
    page.goto(f"{url}/trace")

    expect(page.locator(".row").first).to_be_visible()
    page.locator("#row-1").click()
    page.wait_for_load_state("networkidle")

    assert requests == ["/trace"]
    page.close()
