"""API keys in the console's settings, in a real browser."""

from typing import Any

import pytest
from console_kit import clerk, findings, opened
from playwright.async_api import Browser, Page, expect

from lib.engine import Budget
from lib.events import MemoryEventStore
from lib_server import ApiKeyAuthenticator, ApiKeys, Limits, Quota, Server

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def with_keys(tenant: str | None, *scopes: Any) -> tuple[Server, str]:
    """Return a server, and a key of it with these scopes."""
    store = MemoryEventStore()
    await store.setup()
    new = await ApiKeys(store).create(tenant=tenant, user="ann", scopes=scopes, name="Ann")
    return Server(clerk(), auth=ApiKeyAuthenticator(store, max_age_s=0)), new.key


async def sign_in(page: Page, key: str) -> None:
    """Sign in, and go to the settings."""
    await page.get_by_label("Key", exact=True).fill(key)
    await page.keyboard.press("Enter")
    await page.get_by_role("link", name="Settings").click()


async def test_an_administrator_creates_a_key_sees_it_once_and_revokes_it(
    browser: Browser,
) -> None:
    server, root = await with_keys("acme", "admin", "read")
    async with opened(browser, server, refused=True) as console:
        page = console.page
        await sign_in(page, root)
        await expect(page.get_by_text("admin, read").first).to_be_visible()
        await page.get_by_text("Create a key").first.click()
        await expect(page.get_by_label("Tenant, or none")).to_have_count(0)
        await page.get_by_label("Name: which").fill("<i>bot</i>")
        await page.get_by_role("button", name="Create a key").click()
        secret = await page.get_by_role("region", name="The new key").inner_text()
        await page.get_by_role("button", name="Done").click()

        rows = page.get_by_role("region", name="API keys").locator("tbody tr")
        await expect(rows).to_have_count(2)
        await expect(rows.first).to_contain_text("<i>bot</i>")
        assert secret not in await page.content()
        headers = {"authorization": f"Bearer {secret}"}
        me = (await console.up.client.get("/v1/me", headers=headers)).json()
        assert (me["tenant"], me["scopes"]) == ("acme", ["read", "run"])
        assert me["expires_at"] is not None

        await rows.first.get_by_role("button", name="Revoke").click()
        await page.get_by_role("dialog").get_by_role("button", name="Revoke").click()
        await expect(rows.first).to_contain_text("revoked")
        assert (await console.up.client.get("/v1/me", headers=headers)).status_code == 401


async def test_what_is_left_of_the_budget_of_today_is_shown(browser: Browser) -> None:
    limits = Limits(server=Quota(day=Budget(cost=40.0, tokens=10_000)))
    async with opened(browser, Server(clerk(), limits=limits)) as console:
        await console.go("settings")
        card = console.page.get_by_role("region", name="Budget of today")
        await expect(card.locator("tbody tr").first).to_have_text(
            "Tokens of the server10\u20090000010\u2009000"
        )
        await expect(card.locator("tbody tr").last).to_contain_text("$40.00")
        assert await findings(console.page) == []
    async with opened(browser, Server(clerk())) as console:
        await console.go("settings")
        await expect(console.page.get_by_text("lib-server 0")).to_be_visible()
        await expect(console.page.get_by_text("Budget of today")).to_have_count(0)


async def test_others_see_who_they_are_and_no_keys(browser: Browser) -> None:
    server, key = await with_keys("acme", "read")
    async with opened(browser, server, refused=True) as console:
        page = console.page
        await sign_in(page, key)

        facts = page.locator("section", has_text="Credential").locator("dl")
        await expect(facts).to_contain_text("acme")
        await expect(facts).to_contain_text("ann")
        await expect(page.get_by_role("heading", name="API keys")).to_have_count(0)


@pytest.mark.parametrize("width", [390, 1280])
async def test_axe_finds_nothing_in_keys(browser: Browser, width: int) -> None:
    server, root = await with_keys(None, "admin", "read")
    async with opened(browser, server, width=width, refused=True) as console:
        page = console.page
        await sign_in(page, root)
        await page.get_by_role("region", name="API keys").wait_for()
        await page.get_by_text("Create a key").first.click()

        assert await findings(page) == []
        await page.get_by_role("button", name="Create a key").click()
        await page.get_by_role("region", name="The new key").wait_for()
        assert await findings(page) == []
