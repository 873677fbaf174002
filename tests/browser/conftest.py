"""A real browser for the tests of pages: the machine's own Chromium, driven by Playwright."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from browser.chromium import FLAGS, VIOLATIONS, find_browser


# For one module only: while it runs, no other test of this process can have an event loop.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A browser with a profile of its own."""
    path = find_browser()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def show(browser: Browser, tmp_path: Path) -> Iterator[Callable[..., Page]]:
    """Open a page from its text, a file; fail at the end on any error, request or violation."""
    complaints: list[str] = []
    contexts: list[BrowserContext] = []

    def opened(text: str, *, width: int = 1200, height: int = 700, dark: bool = False) -> Page:
        context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light"
        )
        contexts.append(context)
        file = tmp_path / f"page-{len(contexts)}.html"
        file.write_text(text, encoding="utf-8")
        page = context.new_page()
        page.add_init_script(VIOLATIONS)
        page.on("pageerror", lambda error: complaints.append(f"error: {error}"))
        page.on("console", lambda message: complaints.append(f"console: {message.text}"))
        page.on("request", lambda request: complaints.append(f"request: {request.url}"))
        page.goto(file.as_uri())
        assert complaints.pop(0) == f"request: {file.as_uri()}"
        return page

    yield opened
    for context in contexts:
        for page in context.pages:
            complaints += page.evaluate("window.violations")
        context.close()
    assert complaints == []
