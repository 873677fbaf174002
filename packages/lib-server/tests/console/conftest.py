"""A real browser for the tests of the console, in the loop of a module's tests."""

from collections.abc import AsyncIterator

import pytest_asyncio
from console_kit import HANGING_MS
from playwright.async_api import Browser, async_playwright, expect

from browser.chromium import FLAGS, find_browser

expect.set_options(timeout=HANGING_MS)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    """A browser with a profile of its own."""
    path = find_browser()
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        await browser.close()
