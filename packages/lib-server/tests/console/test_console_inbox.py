"""Work for a person: in the inbox, in a run and in a chat, in a real browser."""

from datetime import timedelta
from typing import Any

import pytest
from console_kit import Opened, clerk, findings, opened, refunder
from playwright.async_api import Browser, expect

from lib import Agent, Engine
from lib.events import MemoryEventStore, NewEvent
from lib.events import kinds as k
from lib.llm import FunctionClient
from lib.testing.clock import ManualClock
from lib_server import Server

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def start(console: Opened, agent: str = "refunder") -> str:
    """Start a run that waits for an approval; return its id."""
    body = {"input": "Refund order 7", "agent": agent}
    run_id: str = (await console.up.client.post("/v1/runs", json=body)).json()["id"]
    return run_id


async def result(console: Opened, run_id: str) -> dict[str, Any]:
    """Return the result of a run, which ends."""
    path = f"/v1/runs/{run_id}/result?wait_s=60"
    found: dict[str, Any] = (await console.up.client.get(path)).json()
    return found


async def unknown_store() -> MemoryEventStore:
    """Return a store with a run that has failed after a call of unknown outcome."""
    store, at = MemoryEventStore(), ManualClock().now()
    await store.setup()
    call = {"key": "tool/1", "call_id": "c", "name": "refund", "args": {"order": 7}}
    failed = {"key": "tool/1", "call_id": "c", "reason": "unknown", "code": "x", "message": ""}
    log = [
        NewEvent(k.RUN_STARTED, {"algorithm": "agent"}, at),
        NewEvent(k.TOOL_REQUESTED, {**call, "effects": "once", "idempotency_key": "i"}, at),
        NewEvent(k.TOOL_FAILED, failed, at),
        NewEvent(k.RUN_COMPLETED, {"outcome": "FAILED"}, at),
    ]
    await store.append("run", log, expected=0)
    return store


async def test_an_inbox_without_needs_says_that_all_is_well(browser: Browser) -> None:
    async with opened(browser, Server(clerk())) as console:
        page = console.page
        await expect(page.get_by_role("heading", level=1)).to_have_text("Inbox")
        await expect(page.get_by_role("heading", level=2)).to_have_text("All is well")
        await expect(page.locator("#navigation .count")).to_be_hidden()


async def test_a_call_is_approved_with_a_reason(browser: Browser) -> None:
    async with opened(browser, Server([clerk(), refunder()])) as console:
        page = console.page
        run_id = await start(console)
        card = page.get_by_role("article", name="refund, called by refunder")
        await expect(card.get_by_role("table", name="Arguments of refund")).to_contain_text("order")
        await expect(page.get_by_role("link", name="Inbox")).to_contain_text("1")

        await card.get_by_role("button", name="Approve: refund").click()
        await page.get_by_label("Reason").fill("a good customer")
        await page.get_by_role("dialog").get_by_role("button", name="Approve").click()

        await expect(card).to_contain_text("Decided")
        await expect(card).to_be_focused()
        await expect(page.locator("#navigation .count")).to_be_hidden()
        assert (await result(console, run_id))["text"] == "Order 7 has been refunded."
        [decided] = (await console.up.client.get(f"/v1/runs/{run_id}/approvals")).json()[
            "approvals"
        ]
        assert (decided["status"], decided["comment"]) == ("approved", "a good customer")


async def test_an_inbox_is_worked_through_with_the_keyboard_alone(browser: Browser) -> None:
    async with opened(browser, Server([clerk(), refunder()])) as console:
        page = console.page
        run_id = await start(console)
        await page.locator("article.need").wait_for()

        await page.keyboard.press("j")
        await page.keyboard.press("d")
        await page.keyboard.type("no refunds")
        await page.keyboard.press("Enter")
        await expect(page.locator("article.need")).to_contain_text("Decided")
        await page.keyboard.press("Enter")

        await expect(page.get_by_role("heading", level=1)).to_have_text("refunder")
        assert page.url.endswith(run_id)
        await expect(page.locator(".call").last).to_contain_text("no refunds")
        for key in "gi":
            await page.keyboard.press(key)
        await expect(page.get_by_role("heading", level=2)).to_have_text("All is well")


async def test_what_was_decided_elsewhere_says_so_and_new_calls_wait_behind_a_button(
    browser: Browser,
) -> None:
    async with opened(browser, Server([clerk(), refunder()])) as console:
        page = console.page
        first = await start(console)
        cards = page.locator("article.need")
        await expect(cards).to_have_count(1)
        await cards.get_by_role("button", name="Approve: refund").click()
        [approval] = (await console.up.client.get("/v1/approvals")).json()["approvals"]
        body = {"decision": "deny", "arguments_digest": approval["arguments_digest"]}
        path = f"/v1/runs/{first}/approvals/{approval['key']}"
        assert (await console.up.client.post(path, json=body)).status_code == 200
        console.refused = True
        await page.get_by_role("dialog").get_by_role("button", name="Approve").click()
        await expect(page.get_by_role("alert")).to_contain_text("decided already")
        await expect(cards.get_by_role("button", name="Approve: refund")).to_have_count(0)

        await start(console)
        fresh = page.get_by_role("button", name="1 new")
        await expect(fresh).to_be_visible()
        await expect(cards).to_have_count(1)
        await fresh.click()
        await expect(cards).to_have_count(1)
        await expect(cards).to_be_focused()
        await expect(cards.get_by_role("button", name="Approve: refund")).to_be_visible()


async def test_a_call_of_unknown_outcome_is_settled(browser: Browser) -> None:
    agent = Agent(FunctionClient(lambda _: ""), name="agent")
    engine = Engine(await unknown_store(), agents=[agent])
    async with opened(browser, Server(engine)) as console:
        page = console.page
        card = page.get_by_role("article", name="refund, called by agent")

        await card.get_by_role("button", name="Happened", exact=False).first.click()
        await page.get_by_label("What it returned").fill('{"paid": 7}')
        await page.keyboard.press("Enter")

        await expect(card).to_contain_text("Decided")
        log = (await console.up.client.get("/v1/runs/run/events")).json()["events"]
        settled = [each["data"] for each in log if each["kind"] == k.CALL_SETTLED]
        assert [(each["happened"], each["result"]) for each in settled] == [(True, {"paid": 7})]


async def test_runs_that_have_failed_stand_in_the_inbox(browser: Browser) -> None:
    store, at = MemoryEventStore(), ManualClock().now()
    await store.setup()
    for run_id, minutes in (("late", 50), ("early", 0)):
        moment = at + timedelta(minutes=minutes)
        log = [
            NewEvent(k.RUN_STARTED, {"algorithm": run_id}, moment),
            NewEvent(k.RUN_COMPLETED, {"outcome": "FAILED"}, moment),
        ]
        await store.append(run_id, log, expected=0)
    server = Server(Engine(store, agents=[clerk()], drive=False))
    async with opened(browser, server, alone=True) as console:
        page = console.page
        await page.clock.set_fixed_time(at + timedelta(minutes=70))
        await page.reload()

        cards = page.locator("article.need")
        await expect(cards).to_have_count(1)
        card = page.get_by_role("article", name="late failed")
        await card.get_by_role("link", name="Open the run").click()
        assert page.url.endswith("#/runs/late")


async def test_a_call_is_approved_in_the_chat_and_in_the_run(browser: Browser) -> None:
    async with opened(browser, Server(refunder())) as console:
        page = console.page
        await console.ask("refunder", "Refund order 7")
        call = page.locator(".call").last
        await expect(call).to_contain_text("waits for approval")

        await call.get_by_role("button", name="Approve: refund").click()
        await page.keyboard.press("Enter")

        await expect(page.locator(".moment.ok")).to_contain_text("Completed")
        await expect(page.get_by_role("button", name="Approve: refund")).to_have_count(0)
        await expect(page.locator(".markdown").last).to_have_text("Order 7 has been refunded.")

    async with opened(browser, Server(refunder())) as console:
        page = console.page
        await console.go(f"runs/{await start(console)}")
        await page.get_by_role("button", name="Deny: refund").wait_for()
        await page.keyboard.press("d")
        await page.get_by_label("Reason").fill("not ours")
        await page.keyboard.press("Enter")
        await expect(page.locator(".call").last).to_contain_text("not ours")
        await expect(page.locator(".moment.ok")).to_contain_text("Completed")


@pytest.mark.parametrize("width", [390, 1280])
async def test_axe_finds_nothing_in_the_inbox(browser: Browser, width: int) -> None:
    async with opened(browser, Server([clerk(), refunder()]), width=width) as console:
        page = console.page
        await page.get_by_role("heading", name="All is well").wait_for()
        assert await findings(page) == []
        await start(console)
        await page.locator("article.need").wait_for()
        assert await findings(page) == []
        approve = page.get_by_role("button", name="Approve: refund")
        if width == 390:
            for target in (approve, page.get_by_role("link", name="Open the run")):
                box = await target.bounding_box()
                assert box is not None
                assert box["height"] >= 44
        await approve.click()
        assert await findings(page) == []


async def test_hostile_arguments_are_only_ever_text(browser: Browser) -> None:
    store, at = MemoryEventStore(), ManualClock().now()
    await store.setup()
    attack = "<img src=x onerror='window.hacked=1'>\u202egnp.exe"
    call = {"key": f"tool/{attack}", "call_id": "c", "name": attack, "args": {attack: attack}}
    log = [
        NewEvent(k.RUN_STARTED, {"algorithm": "agent"}, at),
        NewEvent(k.APPROVAL_REQUESTED, {**call, "reason": attack}, at),
    ]
    await store.append("run", log, expected=0)
    agent = Agent(FunctionClient(lambda _: ""), name="agent")
    engine = Engine(store, agents=[agent], drive=False)
    async with opened(browser, Server(engine)) as console:
        page = console.page
        await page.locator("article.need").wait_for()
        await page.locator("article.need [data-act=deny]").click()
        await page.get_by_role("dialog").wait_for()

        assert await page.evaluate("window.hacked") is None
        assert await page.locator("img").count() == 0
        assert "\u202e" not in await page.locator("body").inner_text()
        await page.keyboard.press("Escape")
