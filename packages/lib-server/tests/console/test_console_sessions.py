"""Sessions in the console, in a real browser: seen from two windows, with uploads, closed."""

from pathlib import Path

import pytest
from console_kit import HANGING_MS, clerk, findings, opened, refunder
from playwright.async_api import Browser, expect

from lib import Engine
from lib.events import MemoryBlobStore, MemoryEventStore
from lib_server import Server

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_two_windows_hold_one_conversation(browser: Browser) -> None:
    async with opened(browser, Server(clerk("first", "second", "third"))) as console:
        page = console.page
        await console.ask("clerk", "one")
        await expect(page.locator(".moment.ok")).to_have_count(1)
        other = await page.context.new_page()
        other.set_default_timeout(HANGING_MS)
        await other.goto(page.url)
        await expect(other.locator(".markdown")).to_have_text(["one", "first"])

        await other.get_by_role("textbox").fill("two")
        await other.keyboard.press("Enter")

        words = ["one", "first", "two", "second"]
        for each in (page, other):
            await expect(each.locator(".markdown")).to_have_text(words)
        listed = (await console.up.client.get("/v1/runs?agent=session")).json()["runs"]
        assert page.url.endswith(f"#/sessions/{listed[0]['id']}")
        await other.get_by_role("button", name="Close").click()
        await other.get_by_role("dialog").get_by_role("button", name="Close the session").click()
        for each in (page, other):
            await expect(each.get_by_text("The session is closed")).to_be_visible()
            await expect(each.get_by_role("textbox")).to_be_hidden()


async def test_a_session_is_found_among_earlier_chats(browser: Browser) -> None:
    async with opened(browser, Server(clerk("yes"))) as console:
        page = console.page
        await console.ask("clerk", "where is it?")
        await page.get_by_role("link", name="Chat").click()
        await page.get_by_role("link", name="Earlier chats").click()
        await expect(page.locator("a.run")).to_have_count(1)
        await page.locator("a.run").click()

        await expect(page.get_by_role("heading", level=1)).to_have_text("clerk")
        await expect(page.locator(".markdown")).to_have_text(["where is it?", "yes"])


async def test_a_session_that_is_not_there_says_so(browser: Browser) -> None:
    async with opened(browser, Server(clerk()), refused=True) as console:
        await console.go("sessions/nothing")

        alert = console.page.get_by_role("alert")
        await expect(alert).to_contain_text("There is no such session")


async def test_attachments_are_uploaded_and_read_back(browser: Browser) -> None:
    engine = Engine(MemoryEventStore(), agents=[clerk("seen")], blobs=MemoryBlobStore())
    async with opened(browser, Server(engine)) as console:
        page = console.page
        await console.go("chat/clerk")
        content = bytes(range(256)) * 4000  # more than a message can hold
        file = {"name": "data.bin", "mimeType": "application/x-data", "buffer": content}
        await page.locator("input[type=file]").set_input_files(file)  # pyright: ignore[reportArgumentType] - a plain dictionary is taken
        await page.get_by_role("textbox").fill("read it")
        await page.keyboard.press("Enter")
        await expect(page.locator(".moment.error").last).to_contain_text("takes text, not file")

        attached = page.locator(".message.user .attachment")
        async with page.expect_download() as downloading:
            await attached.get_by_role("button", name="Download").click()
        download = await downloading.value
        assert Path(await download.path()).read_bytes() == content


@pytest.mark.parametrize("width", [390, 1280])
async def test_axe_finds_nothing_in_a_session(browser: Browser, width: int) -> None:
    async with opened(browser, Server(refunder()), width=width) as console:
        page = console.page
        await console.ask("refunder", "Refund order 7")
        await page.get_by_role("button", name="Approve: refund").wait_for()

        assert await findings(page) == []
