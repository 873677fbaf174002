"""Scores of a run in the console, in a real browser."""

import pytest
from console_kit import clerk, findings, opened
from playwright.async_api import Browser, expect

from lib_server import Server

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_score_is_added_to_a_run_that_has_ended(browser: Browser) -> None:
    async with opened(browser, Server(clerk("yes"))) as console:
        page = console.page
        run_id = await console.ask("clerk", "well?")
        await expect(page.locator(".moment.ok")).to_have_count(1)
        earlier = {"name": "polite", "value": True, "source": "code", "comment": "<b>fine</b>"}
        await console.up.client.post(f"/v1/runs/{run_id}/scores", json=earlier)
        await console.go(f"runs/{run_id}?tab=scores")
        rows = page.get_by_role("region", name="Scores").locator("tbody tr")
        await expect(rows).to_have_count(1)
        await expect(rows).to_contain_text("<b>fine</b>")

        await page.get_by_role("button", name="Add the score").click()
        await expect(page.get_by_role("alert")).to_have_text("Enter a name and a value.")
        for name, value in (("helpful", "0.8"), ("tone", "warm"), ("right", "no")):
            await page.get_by_label("Name, such as").fill(name)
            await page.get_by_label("Value").fill(value)
            await page.get_by_label("Comment", exact=True).fill("as seen")
            await page.keyboard.press("Enter")
            await expect(page.get_by_label("Name, such as")).to_have_value("")

        await expect(rows).to_have_count(4)
        scores = (await console.up.client.get(f"/v1/runs/{run_id}/scores")).json()["scores"]
        assert [(each["name"], each["value"]) for each in scores] == [
            ("polite", True),
            ("helpful", 0.8),
            ("tone", "warm"),
            ("right", False),
        ]
        await page.reload()
        await expect(rows).to_have_count(4)


@pytest.mark.parametrize("width", [390, 1280])
async def test_axe_finds_nothing_in_scores(browser: Browser, width: int) -> None:
    async with opened(browser, Server(clerk("yes")), width=width) as console:
        page = console.page
        run_id = await console.ask("clerk", "well?")
        await console.up.client.post(
            f"/v1/runs/{run_id}/scores", json={"name": "helpful", "value": 0.8}
        )
        await console.go(f"runs/{run_id}?tab=scores")
        await page.get_by_role("cell", name="0.8").wait_for()

        assert await findings(page) == []
