"""Chats and runs in the console, in a real browser."""

import json
from pathlib import Path

import pytest
from console_kit import Halting, clerk, opened, refunder
from playwright.async_api import Browser, expect

from lib import Agent
from lib_server import Server

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_an_answer_is_shown_while_it_is_written_and_then_as_it_was_logged(
    browser: Browser,
) -> None:
    model = Halting("Half **of", " it** is all.")
    async with opened(browser, Server(Agent(model, name="slow"))) as console:
        page = console.page
        await console.ask("slow", "How much?")

        writing = page.locator(".message.writing")
        await expect(writing).to_contain_text("Half **of")
        model.go_on.set()
        await expect(page.locator(".moment.ok")).to_contain_text("Completed")

        await expect(writing).to_have_count(0)
        messages = page.locator(".message")
        assert await messages.count() == 2
        await expect(messages.first).to_contain_text("How much?")
        await expect(messages.last.locator("strong")).to_have_text("of it")
        await expect(page.get_by_role("button", name="Send")).to_be_enabled()


async def test_a_chat_goes_on_and_a_reload_shows_the_same(browser: Browser) -> None:
    async with opened(browser, Server(clerk("first", "second"))) as console:
        page = console.page
        await console.ask("clerk", "one")
        await expect(page.locator(".moment.ok")).to_have_count(1)
        await page.get_by_role("textbox").fill("two")
        await page.keyboard.press("Enter")
        await expect(page.locator(".moment.ok")).to_have_count(2)
        words = ["one", "first", "two", "second"]
        await expect(page.locator(".markdown")).to_have_text(words)

        await page.reload()

        await expect(page.locator(".markdown")).to_have_text(words)
        await expect(page.locator(".moment.ok")).to_have_count(2)


async def test_stop_cancels_the_run(browser: Browser) -> None:
    async with opened(browser, Server(Agent(Halting("so", "…"), name="slow"))) as console:
        await console.ask("slow", "go")
        await expect(console.page.locator(".message.writing")).to_contain_text("so")

        await console.page.get_by_role("button", name="Stop").click()

        await expect(console.page.locator(".moment").last).to_contain_text("Cancelled")
        await expect(console.page.get_by_role("button", name="Stop")).to_be_hidden()
        await expect(console.page.locator(".message.writing")).to_have_count(0)


async def test_a_file_is_attached_and_stands_in_the_conversation(browser: Browser) -> None:
    async with opened(browser, Server(clerk())) as console:
        page = console.page
        await console.go("chat/clerk")
        note = {"name": "note.txt", "mimeType": "text/plain", "buffer": b"hello"}
        large = {"name": "large.bin", "mimeType": "text/plain", "buffer": bytes(700_001)}

        await page.locator("input[type=file]").set_input_files([note, large])  # pyright: ignore[reportArgumentType] - plain dictionaries are taken
        await expect(page.get_by_role("alert")).to_contain_text("large.bin does not fit")
        await expect(page.get_by_role("list", name="Attachments")).to_contain_text("note.txt")
        await page.get_by_role("textbox").fill("read it")
        await page.keyboard.press("Enter")

        attached = page.locator(".message.user .attachment")
        await expect(attached).to_contain_text("file: note.txt 5 bytes")
        async with page.expect_download() as downloading:
            await attached.get_by_role("button", name="Download").click()
        download = await downloading.value
        assert (download.suggested_filename, Path(await download.path()).read_bytes()) == (
            "note.txt",
            b"hello",
        )


async def test_a_run_shows_its_calls_its_log_and_its_spend(browser: Browser) -> None:
    async with opened(browser, Server(refunder())) as console:
        page = console.page
        run_id = await console.ask("refunder", "Refund order 7")
        await page.get_by_role("link", name="Open the run").click()

        await expect(page.get_by_role("heading", level=1)).to_have_text("refunder")
        await expect(page.locator(".question")).to_have_text("Refund order 7")
        calls = page.locator(".call")
        await expect(calls).to_have_count(2)
        await expect(calls.last).to_contain_text("waits for approval")
        await expect(calls.last.get_by_role("table", name="Arguments of refund")).to_contain_text(
            "order7"
        )
        await calls.first.locator("summary").click()
        result = calls.first.get_by_role("table", name="Result of look_up")
        await expect(result.get_by_role("rowheader")).to_have_text(["order", "total"])
        await expect(page.get_by_text("It waits for a person")).to_be_visible()

        await page.get_by_role("tab", name="Log").click()
        log = (await console.up.client.get(f"/v1/runs/{run_id}/events")).json()["events"]
        await expect(page.locator(".event code")).to_have_text([event["kind"] for event in log])
        await page.get_by_label("Kind of event").select_option("lib.tool.completed")
        await expect(page.locator(".event")).to_have_count(1)
        await page.locator(".event summary").click()
        shown = await page.locator(".event pre").inner_text()
        assert json.loads(shown) == next(
            each for each in log if each["kind"].endswith("tool.completed")
        )

        await page.get_by_role("tab", name="Spend").click()
        rows = page.get_by_role("region", name="Calls of models").get_by_role("rowheader")
        await expect(rows).to_have_text(["llm/1", "llm/2"])
        assert page.url.endswith(f"#/runs/{run_id}?tab=spend")


async def test_a_run_is_cancelled_after_a_question(browser: Browser) -> None:
    async with opened(browser, Server(refunder())) as console:
        page = console.page
        run_id = await console.ask("refunder", "Refund order 7")
        await console.go(f"runs/{run_id}")
        cancel = page.get_by_role("button", name="Cancel", exact=True)

        await cancel.click()
        await page.get_by_role("dialog").get_by_role("button", name="Back").click()
        await expect(cancel).to_be_focused()
        await cancel.click()
        await page.get_by_label("Reason").fill("wrong order")
        await page.keyboard.press("Enter")

        await expect(page.locator(".moment.off").first).to_contain_text("Cancelled: wrong order")
        await expect(page.locator("header .mark")).to_contain_text("cancelled")
        await expect(cancel).to_be_hidden()


async def test_the_log_of_a_run_is_downloaded_as_json(browser: Browser) -> None:
    async with opened(browser, Server(clerk("yes"))) as console:
        page = console.page
        run_id = await console.ask("clerk", "well?")
        await expect(page.locator(".moment.ok")).to_have_count(1)
        await page.get_by_role("link", name="Open the run").click()
        await expect(page.locator(".moment.ok")).to_have_count(1)

        async with page.expect_download() as downloading:
            await page.get_by_role("button", name="Download the log").click()
        download = await downloading.value

        kept = json.loads(Path(await download.path()).read_text(encoding="utf-8"))
        log = (await console.up.client.get(f"/v1/runs/{run_id}/events")).json()["events"]
        assert kept == log


async def test_a_run_that_is_not_there_says_so(browser: Browser) -> None:
    async with opened(browser, Server(clerk()), refused=True) as console:
        await console.go("runs/nothing-of-this-name")

        alert = console.page.get_by_role("alert")
        await expect(alert).to_contain_text("There is no such run")
        await expect(alert).to_contain_text("req_")
        await expect(alert.get_by_role("button", name="Retry")).to_be_visible()
