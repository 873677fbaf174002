"""The use of runs, as charts and tables of the console, in a real browser."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from console_kit import findings, opened
from playwright.async_api import Browser, expect

from lib import Agent, Engine
from lib.events import MemoryEventStore, NewEvent
from lib.events import kinds as k
from lib.llm import FunctionClient
from lib.testing.clock import ManualClock
from lib_server import Server

pytestmark = pytest.mark.asyncio(loop_scope="module")

NOW = datetime(2026, 6, 15, 12, tzinfo=UTC)
ATTACK = "<img src=x onerror=window.hacked=1>\u202e"


async def spent() -> Server:
    """Return a server of three runs of two agents on two days."""
    store = MemoryEventStore()
    await store.setup()
    for number, (agent, days, cost) in enumerate(
        [("clerk", 0, 0.5), ("clerk", 1, 1.25), (ATTACK, 1, None)]
    ):
        at = NOW - timedelta(days=days, hours=1)
        usage: dict[str, Any] = {"input_tokens": 1000, "output_tokens": 1, "cost": cost}
        reply: dict[str, Any] = {"parts": [], "usage": usage, "model": "m"}
        log = [
            NewEvent(k.RUN_STARTED, {"algorithm": agent}, at),
            NewEvent(k.LLM_REQUESTED, {"key": "llm/1", "messages": [], "model": "m"}, at),
            NewEvent(k.LLM_COMPLETED, {"key": "llm/1", "reply": reply}, at),
            NewEvent(k.RUN_COMPLETED, {"outcome": "COMPLETED"}, at),
        ]
        await store.append(f"run-{number}", log, expected=0)
    agent = Agent(FunctionClient(lambda _: ""), name="clerk")
    return Server(Engine(store, agents=[agent], drive=False, clock=ManualClock(NOW)))


async def test_spend_is_drawn_by_day_and_group(browser: Browser) -> None:
    async with opened(browser, await spent(), alone=True) as console:
        page = console.page
        await page.clock.set_fixed_time(NOW)
        await page.get_by_role("link", name="Spend").click()

        rows = page.get_by_role("region", name="Spend by agent").locator("tbody tr")
        await expect(rows).to_have_count(3)
        await expect(rows.first).to_have_text("clerk22\u2009002$1.75")
        await expect(rows.last).to_contain_text("All33\u2009003$1.75 + 1 call without a price")
        await expect(page.get_by_role("img", name="Cost for each of 30 days")).to_be_visible()
        bars = page.locator(".bar")
        await expect(bars).to_have_count(30)
        heights = [await bars.nth(place).locator("div").count() for place in (27, 28, 29)]
        assert heights == [0, 2, 1]
        assert await page.evaluate("window.hacked") is None
        assert "\u202e" not in await page.locator("main").inner_text()

        await page.get_by_label("Groups").select_option("model")
        await page.get_by_label("Measure").select_option("tokens")
        await page.get_by_label("Time").select_option("7")
        await expect(bars).to_have_count(7)
        await expect(page.get_by_role("region", name="Spend by model")).to_contain_text(
            "3\u2009003"
        )
        assert page.url.endswith("#/spend?by=model&days=7&measure=tokens")
        await page.reload()
        await expect(page.locator(".bar")).to_have_count(7)


@pytest.mark.parametrize("width", [390, 1280])
async def test_axe_finds_nothing_in_spend(browser: Browser, width: int) -> None:
    async with opened(browser, await spent(), width=width, alone=True) as console:
        page = console.page
        await page.clock.set_fixed_time(NOW)
        await console.go("spend")
        await page.get_by_role("region", name="Spend by agent").wait_for()

        assert await findings(page) == []
