"""The list of runs in the console, in a real browser."""

import pytest
from console_kit import clerk, opened, refunder
from playwright.async_api import Browser, expect

from lib_server import Server

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_runs_stand_newest_first_and_filters_stand_in_the_address(browser: Browser) -> None:
    async with opened(browser, Server([clerk("yes"), refunder()])) as console:
        page = console.page
        ids = [await console.ask("clerk", "a"), await console.ask("clerk", "b")]
        await expect(page.locator(".moment.ok")).to_have_count(1)
        waiting = await console.ask("refunder", "c")
        await page.get_by_role("link", name="Runs").click()

        rows = page.get_by_role("listitem").locator("a.run")
        await expect(rows.locator("code")).to_have_text([waiting, ids[1], ids[0]])
        await page.get_by_label("Status").select_option("open")
        await expect(rows.locator("code")).to_have_text([waiting])
        assert page.url.endswith("#/runs?status=open")
        await page.reload()
        await expect(rows.locator("code")).to_have_text([waiting])
        await page.get_by_role("button", name="Remove the filter Open").click()
        await page.get_by_role("searchbox").fill(ids[0])
        await expect(rows.locator("code")).to_have_text([ids[0]])
        await page.get_by_role("searchbox").fill("nothing like it")
        await expect(page.get_by_role("heading", level=2)).to_have_text(
            "No run passes these filters"
        )
        await page.get_by_role("searchbox").fill(ids[1])
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", level=1)).to_have_text("clerk")
        assert page.url.endswith(f"#/runs/{ids[1]}")


async def test_new_runs_wait_behind_a_button_and_open_ones_change_in_place(
    browser: Browser,
) -> None:
    async with opened(browser, Server([clerk("yes"), refunder()])) as console:
        page = console.page
        waiting = await console.ask("refunder", "c")
        await page.get_by_role("link", name="Runs").click()
        rows = page.locator("a.run")
        await expect(rows.locator("code")).to_have_text([waiting])
        await expect(rows.first).to_contain_text("waiting")

        started = await console.up.client.post("/v1/runs", json={"agent": "clerk", "input": "x"})
        await console.up.client.post(f"/v1/runs/{waiting}/cancel", json={})

        await expect(rows.first).to_contain_text("cancelled")
        fresh = page.get_by_role("button", name="1 new")
        await expect(fresh).to_be_visible()
        await expect(rows).to_have_count(1)
        await fresh.click()
        await expect(rows.locator("code")).to_have_text([started.json()["id"], waiting])
        await expect(rows.first).to_be_focused()


async def test_of_many_runs_only_those_in_sight_are_elements(browser: Browser) -> None:
    server = Server(clerk("yes"))
    async with opened(browser, server) as console:
        page = console.page
        for number in range(450):
            await console.up.client.post("/v1/runs", json={"input": f"{number}"})
        await console.go("runs")

        rows = page.locator("a.run")
        await expect(page.get_by_text("450 runs")).to_be_visible()
        assert await rows.count() < 60
        await rows.first.focus()
        await page.keyboard.press("End")
        last = page.locator('[role=listitem][aria-posinset="450"]')
        await expect(last).to_be_visible()
        await expect(last.locator("a")).to_be_focused()
        assert await rows.count() < 60
        await page.keyboard.press("k")
        await expect(page.locator('[role=listitem][aria-posinset="449"] a')).to_be_focused()


async def test_a_server_without_runs_says_how_to_start_one(browser: Browser) -> None:
    async with opened(browser, Server(clerk())) as console:
        await console.go("runs")
        await expect(console.page.get_by_role("heading", level=2)).to_have_text("No runs")
        await console.page.get_by_label("Started in").select_option("all")
        await expect(console.page.get_by_text("Start one in Chat")).to_be_visible()


async def test_a_search_that_waits_leaves_the_address_of_the_run_that_it_has_opened(
    browser: Browser,
) -> None:
    async with opened(browser, Server([clerk("yes")])) as console:
        page = console.page
        wanted = await console.ask("clerk", "a")
        await page.get_by_role("link", name="Runs").click()
        await expect(page.get_by_role("listitem").locator("a.run code")).to_have_text([wanted])
        await page.clock.install()
        await page.clock.pause_at("2100-01-01")
        await page.get_by_role("searchbox").fill(wanted)
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", level=1)).to_have_text("clerk")
        await page.clock.run_for(1_000)

        assert page.url.endswith(f"#/runs/{wanted}")
