"""The list of runs in the console, in a real browser."""

from collections.abc import Sequence

import pytest
from console_kit import clerk, opened, refunder
from playwright.async_api import Browser, expect

from lib import Agent
from lib.llm import FunctionClient, Message, Reply, Text, Usage
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
        words = page.locator("a.run .words")
        await expect(words).to_have_text(["c", "b", "a"])
        await page.get_by_label("Status").select_option("open")
        await expect(words).to_have_text(["c"])
        assert page.url.endswith("#/runs?status=open")
        await page.reload()
        await expect(words).to_have_text(["c"])
        await expect(rows).to_have_attribute("data-item", waiting)
        await page.get_by_role("button", name="Remove the filter Open").click()
        await page.get_by_role("searchbox").fill(ids[0])
        await expect(words).to_have_text(["a"])
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
        await expect(rows).to_have_attribute("data-item", waiting)
        await expect(rows.first).to_contain_text("waiting")

        started = await console.up.client.post("/v1/runs", json={"agent": "clerk", "input": "x"})
        await console.up.client.post(f"/v1/runs/{waiting}/cancel", json={})

        await expect(rows.first).to_contain_text("cancelled")
        fresh = page.get_by_role("button", name="1 new")
        await expect(fresh).to_be_visible()
        await expect(rows).to_have_count(1)
        await fresh.click()
        await expect(page.locator("a.run .words")).to_have_text(["x", "c"])
        await expect(rows.first).to_have_attribute("data-item", started.json()["id"])
        await expect(rows.first).to_be_focused()


async def test_of_many_runs_only_those_in_sight_are_elements(browser: Browser) -> None:
    server = Server(clerk("yes"))
    async with opened(browser, server) as console:
        page = console.page
        for number in range(450):
            await console.up.client.post("/v1/runs", json={"input": f"{number}"})
        await console.go("runs")

        rows = page.locator("a.run")
        await expect(page.get_by_text("100+ runs")).to_be_visible()
        assert await rows.count() < 60
        await rows.first.focus()
        for loaded in ("200+ runs", "300+ runs", "400+ runs", "450 runs"):
            await page.keyboard.press("End")
            await expect(page.get_by_text(loaded)).to_be_visible()
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
    async with opened(browser, Server([clerk("yes")]), alone=True) as console:
        page = console.page
        wanted = await console.ask("clerk", "a")
        await page.get_by_role("link", name="Runs").click()
        await expect(page.locator("a.run")).to_have_attribute("data-item", wanted)
        await page.clock.install()
        await page.clock.pause_at("2100-01-01")
        await page.get_by_role("searchbox").fill(wanted)
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", level=1)).to_have_text("clerk")
        await page.clock.run_for(1_000)

        assert page.url.endswith(f"#/runs/{wanted}")


async def test_the_server_filters_and_a_search_reads_on_until_it_finds(browser: Browser) -> None:
    async with opened(browser, Server([clerk("yes"), refunder()])) as console:
        page = console.page
        await console.up.client.post("/v1/runs", json={"input": "the needle"})
        for number in range(250):
            await console.up.client.post("/v1/runs", json={"input": f"hay {number}"})
        await console.go("runs")
        words = page.locator("a.run .words")
        await expect(words.first).to_have_text("hay 249")

        await page.get_by_role("searchbox").fill("needle")
        await page.keyboard.press("Enter")
        await expect(words).to_have_text(["the needle"])
        await expect(page.get_by_text("1 of 251 runs")).to_be_visible()
        await page.get_by_role("searchbox").fill("")
        await page.get_by_label("Agent", exact=True).select_option("refunder")
        await expect(page.get_by_role("heading", level=2)).to_have_text(
            "No run passes these filters"
        )
        await page.get_by_label("Agent", exact=True).select_option("clerk")
        await page.get_by_label("User", exact=True).fill("ann")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", level=2)).to_have_text(
            "No run passes these filters"
        )
        assert page.url.endswith("#/runs?agent=clerk&user=ann")


async def test_the_open_runs_of_a_list_are_cancelled_together(browser: Browser) -> None:
    async with opened(browser, Server([clerk("yes"), refunder()])) as console:
        page = console.page
        await console.up.client.post("/v1/runs", json={"agent": "clerk", "input": "done"})
        for words in ("a", "b"):
            body = {"agent": "refunder", "input": words}
            run = (await console.up.client.post("/v1/runs", json=body)).json()
        await page.get_by_role("link", name="Runs").click()
        cancel = page.get_by_role("button", name="Cancel 2 open runs…")
        await cancel.click()
        dialog = page.get_by_role("dialog")
        await expect(dialog.get_by_role("heading")).to_have_text("Cancel 2 open runs?")
        await dialog.get_by_role("button", name="Back").click()
        assert (await console.up.client.get(f"/v1/runs/{run['id']}")).json()["status"] == "open"

        await cancel.click()
        await dialog.get_by_label("Reason").fill("wrong input")
        await dialog.get_by_role("button", name="Cancel 2 runs").click()
        await expect(page.locator("a.run .state", has_text="cancelled")).to_have_count(2)
        await expect(page.get_by_role("button", name="Cancel 2 open runs…")).to_be_hidden()
        result = (await console.up.client.get(f"/v1/runs/{run['id']}/result")).json()

    assert (result["outcome"], result["reason"]) == ("CANCELLED", "wrong input")


async def test_runs_are_filtered_by_what_they_cost(browser: Browser) -> None:
    def answer(messages: Sequence[Message]) -> Reply:
        cost = 2.5 if messages[-1].text == "one" else 0.02
        return Reply((Text("yes"),), usage=Usage(input_tokens=9, cost=cost))

    agent = Agent(FunctionClient(answer), name="clerk")
    async with opened(browser, Server(agent)) as console:
        page = console.page
        for words in ("one", "two"):
            run = (await console.up.client.post("/v1/runs", json={"input": words})).json()
            await console.up.client.get(f"/v1/runs/{run['id']}/result?wait_s=60")
        await page.get_by_role("link", name="Runs").click()
        words = page.locator("a.run .words")
        await expect(words).to_have_text(["two", "one"])
        await page.get_by_label("Cost").select_option("$1 or more")
        await expect(words).to_have_text(["one"])
        assert page.url.endswith("#/runs?cost=1.00")
        await page.get_by_role("button", name="Remove the filter $1 or more").click()
        await expect(words).to_have_text(["two", "one"])
