"""The console for everybody: axe, both themes, a phone and a desk, the keyboard alone."""

import pytest
from console_kit import clerk, findings, opened, refunder
from playwright.async_api import Browser, expect

from lib_server import Server

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.parametrize("width", [390, 1280])
async def test_axe_finds_nothing_in_chats_and_runs(browser: Browser, width: int) -> None:
    server = Server([clerk(), refunder()])
    async with opened(browser, server, width=width) as console:
        page = console.page
        await console.go("chat")
        await page.get_by_role("link", name="clerk").wait_for()
        assert await findings(page) == []
        await console.ask("clerk", "Where is my order?")
        await expect(page.locator(".moment.ok")).to_have_count(1)
        assert await findings(page) == []
        await console.ask("refunder", "Refund it")
        await page.get_by_role("link", name="Open the run").click()
        await expect(page.locator(".call").last).to_contain_text("waits for approval")
        await page.get_by_text("It waits for").wait_for()
        assert await findings(page) == []
        await page.get_by_role("tab", name="Log").click()
        await page.locator(".event summary").first.click()
        assert await findings(page) == []
        await page.get_by_role("tab", name="Spend").click()
        assert await findings(page) == []
        await page.get_by_role("button", name="Cancel", exact=True).click()
        assert await findings(page) == []


@pytest.mark.parametrize("width", [390, 1280])
async def test_axe_finds_nothing_in_the_timeline_of_a_run(browser: Browser, width: int) -> None:
    server = Server([refunder()])
    async with opened(browser, server, width=width) as console:
        page = console.page
        started = await console.up.client.post("/v1/runs", json={"input": "Refund it"})
        await console.go(f"runs/{started.json()['id']}?tab=timeline")
        await expect(page.get_by_role("treegrid").get_by_role("row")).to_have_count(5)
        await page.get_by_text("It waits for").wait_for()
        assert await findings(page) == []
        await page.get_by_role("row", name="chat scripted").first.click()
        await page.get_by_role("complementary", name="Details of the span").wait_for()
        assert await findings(page) == []
        await page.get_by_role("button", name="Keys").click()
        assert await findings(page) == []


@pytest.mark.parametrize("width", [390, 1280])
async def test_axe_finds_nothing_in_lists_and_settings(browser: Browser, width: int) -> None:
    server = Server([clerk(), refunder()])
    async with opened(browser, server, width=width) as console:
        page = console.page
        await console.up.client.post("/v1/runs", json={"input": "one"})
        await console.up.client.post("/v1/runs", json={"input": "two", "agent": "refunder"})
        await console.go("runs")
        await expect(page.locator("a.run")).to_have_count(2)
        assert await findings(page) == []
        await page.get_by_role("searchbox").fill("nothing")
        await page.get_by_role("heading", level=2).wait_for()
        assert await findings(page) == []
        await page.get_by_role("link", name="Settings").click()
        await page.get_by_text("lib-server 0").wait_for()
        assert await findings(page) == []
        await page.keyboard.press("?")
        assert await findings(page) == []


async def test_on_a_phone_every_target_of_the_frame_is_large(browser: Browser) -> None:
    async with opened(browser, Server(clerk()), width=390) as console:
        page = console.page
        await console.go("chat/clerk")
        targets = [
            *await page.get_by_role("navigation").get_by_role("link").all(),
            page.get_by_role("button", name="Send"),
            page.get_by_role("button", name="Attach"),
            page.get_by_role("textbox"),
        ]
        for target in targets:
            box = await target.bounding_box()
            assert box is not None
            assert box["height"] >= 44, await target.inner_text()


async def test_a_run_is_found_opened_and_read_with_the_keyboard_alone(browser: Browser) -> None:
    async with opened(browser, Server(refunder())) as console:
        page = console.page
        started = await console.up.client.post("/v1/runs", json={"input": "Refund order 7"})
        await console.go("runs")
        await expect(page.locator("a.run")).to_have_count(1)

        for key in ("j", "Enter"):
            await page.keyboard.press(key)
        await expect(page.get_by_role("heading", level=1)).to_have_text("refunder")
        assert page.url.endswith(started.json()["id"])
        await page.get_by_role("tab", name="Conversation").focus()
        for name in ("Timeline", "Log"):
            await page.keyboard.press("ArrowRight")
            await expect(page.get_by_role("tab", name=name)).to_be_focused()
        await expect(page.get_by_role("tab", name="Log")).to_have_attribute("aria-selected", "true")
        await expect(page.get_by_role("tabpanel", name="Log")).to_be_visible()
        for _ in range(2):
            await page.keyboard.press("ArrowLeft")
        await expect(page.get_by_role("tabpanel", name="Conversation")).to_be_visible()


async def test_a_run_is_decided_in_the_inbox_and_its_timeline_read_with_the_keyboard_alone(
    browser: Browser,
) -> None:
    async with opened(browser, Server(refunder())) as console:
        page, press = console.page, console.page.keyboard.press
        await console.up.client.post("/v1/runs", json={"input": "Refund order 7"})
        await page.locator("article.need").wait_for()

        await press("a")
        await page.get_by_role("dialog").wait_for()
        await page.keyboard.type("In order")
        await press("Enter")
        await expect(page.locator("article.need.settled")).to_have_count(1)
        for key in ("g", "r"):
            await press(key)
        await expect(page.locator("a.run")).to_have_count(1)
        for key in ("j", "Enter"):
            await press(key)
        await page.get_by_role("tab", name="Conversation").focus()
        await press("ArrowRight")
        await expect(page.get_by_role("tab", name="Timeline")).to_be_focused()
        grid = page.get_by_role("treegrid", name="Spans")
        await expect(grid.get_by_role("row")).to_have_count(7)
        for _ in range(40):
            await press("Tab")
            if await grid.evaluate("grid => grid.getRootNode().activeElement === grid"):
                break
        await expect(grid).to_be_focused()
        for key in ("ArrowDown", "Enter"):
            await press(key)
        details = page.get_by_role("complementary", name="Details of the span")
        await expect(details.get_by_role("heading", level=2)).to_have_text("chat scripted")
        await press("/")
        await page.keyboard.type("g refund")
        await expect(page.get_by_role("searchbox", name="Search spans")).to_have_value("g refund")
        await press("Escape")
        await expect(grid).to_be_focused()
        assert page.url.endswith("?tab=timeline")


async def test_roles_and_names_tell_the_views_apart(browser: Browser) -> None:
    async with opened(browser, Server(clerk("Here it is."))) as console:
        page = console.page
        await console.ask("clerk", "Where is my order?")
        await expect(page.locator(".moment.ok")).to_have_count(1)

        await expect(page.get_by_role("navigation", name="Places")).to_match_aria_snapshot("""
          - navigation "Places":
            - list:
              - listitem:
                - link "Inbox"
              - listitem:
                - link "Runs"
              - listitem:
                - link "Chat"
              - listitem:
                - link "Spend"
              - listitem:
                - link "Settings"
        """)
        await expect(page.get_by_role("main")).to_match_aria_snapshot("""
          - main:
            - heading "clerk" [level=1]
            - log "Conversation":
              - article "User":
                - paragraph: Where is my order?
              - article "Agent":
                - paragraph: Here it is.
            - textbox "Message to clerk"
        """)
        await expect(page.get_by_role("status").last).to_have_text("The answer is complete")
