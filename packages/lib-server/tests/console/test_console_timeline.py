"""The timeline of a run in the console: the waterfall of its whole trace, drawn while it runs."""

import pytest
from console_kit import opened, refunder
from playwright.async_api import Browser, expect

from lib import Agent
from lib.llm import ScriptedClient
from lib_server import Server

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_the_timeline_grows_with_the_run(browser: Browser) -> None:
    async with opened(browser, Server(refunder())) as console:
        page = console.page
        started = await console.up.client.post("/v1/runs", json={"input": "Refund order 7"})
        await console.go(f"runs/{started.json()['id']}")
        await page.get_by_role("tab", name="Timeline").click()
        spans = page.get_by_role("treegrid").locator(".what")
        begun = ["agent refunder", "chat scripted", "tool look_up", "chat scripted"]
        await expect(spans).to_have_text([*begun, "approval refund"])

        waiting = (await console.up.client.get("/v1/approvals")).json()["approvals"][0]
        path = f"/v1/runs/{waiting['run_id']}/approvals/{waiting['key']}"
        body = {"decision": "approve", "arguments_digest": waiting["arguments_digest"]}
        assert (await console.up.client.post(path, json=body)).status_code == 200
        await expect(spans).to_contain_text([*begun, "approval refund", "tool refund", "chat"])
        await expect(page.get_by_role("treegrid").get_by_text("open")).to_have_count(0)

        await page.reload()
        await expect(spans).to_contain_text([*begun, "approval refund", "tool refund", "chat"])


async def test_what_comes_while_it_is_read_gathers_behind_a_button(browser: Browser) -> None:
    async with opened(browser, Server(refunder())) as console:
        page = console.page
        started = await console.up.client.post("/v1/runs", json={"input": "Refund order 7"})
        await console.go(f"runs/{started.json()['id']}?tab=timeline")
        rows = page.get_by_role("treegrid").get_by_role("row")
        await expect(rows).to_have_count(5)
        await rows.nth(2).click()

        await page.get_by_role("tab", name="Conversation").click()
        await page.get_by_role("button", name="Deny").click()
        await page.get_by_role("dialog").get_by_role("button", name="Deny").click()
        await expect(page.locator(".moment.ok")).to_have_count(1)
        await page.get_by_role("tab", name="Timeline").click()
        fresh = page.get_by_role("button", name="Show what has come since")
        await expect(fresh).to_be_visible()
        await expect(rows).to_have_count(5)
        await expect(rows.nth(2)).to_have_attribute("aria-selected", "true")
        await fresh.click()
        await expect(rows).to_have_count(7)
        await expect(fresh).to_be_hidden()


async def test_a_trace_that_cannot_be_read_says_why_and_is_tried_again(browser: Browser) -> None:
    server = Server(Agent(ScriptedClient(["Done."]), name="clerk"))
    async with opened(browser, server, refused=True) as console:
        page = console.page
        started = await console.up.client.post("/v1/runs", json={"input": "x"})
        problem = {"title": "Too large", "status": 413, "detail": "the trace has 100001 events"}
        await page.route("**/trace", lambda route: route.fulfill(status=413, json=problem))
        await console.go(f"runs/{started.json()['id']}?tab=timeline")
        await expect(page.get_by_role("alert")).to_contain_text("the trace has 100001 events")

        await page.unroute("**/trace")
        await page.get_by_role("button", name="Retry").click()
        await expect(page.get_by_role("treegrid").get_by_role("row")).to_have_count(2)
        await expect(page.get_by_role("alert")).to_have_count(0)
