"""Signing in to the console, the frame around its views, and its settings."""

import pytest
from console_kit import clerk, opened
from playwright.async_api import Browser, expect

from lib_server import Principal, Server, Unauthenticated
from lib_server.auth.principal import Scope

pytestmark = pytest.mark.asyncio(loop_scope="module")


class Keys:
    """Takes the keys that are in it.

    Attributes:
        valid: the keys.
    """

    def __init__(self, *valid: str) -> None:
        self.valid: set[str] = set(valid)

    def recognizes(self, token: str) -> bool:
        return True

    async def authenticate(self, authorization: str | None) -> Principal:
        if authorization is None:
            raise Unauthenticated("missing")
        key = authorization.removeprefix("Bearer ")
        if key not in self.valid:
            raise Unauthenticated("unknown")
        scopes: tuple[Scope, ...] = ("read",) if key == "reader" else ("read", "run")
        return Principal(key_id=key, tenant="acme", user="ann", scopes=frozenset(scopes))


async def test_a_key_is_needed_and_a_wrong_one_is_refused_with_a_word_why(
    browser: Browser,
) -> None:
    server = Server(clerk(), auth=Keys("right"))
    async with opened(browser, server, refused=True) as console:
        page = console.page
        await expect(page.get_by_role("heading", level=1)).to_have_text("Sign in")
        await expect(page.get_by_role("navigation")).to_be_hidden()
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("alert")).to_have_text("Enter a key.")
        await page.get_by_label("Key", exact=True).fill("wrong")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("alert")).to_have_text("the credential is not valid")
        await page.get_by_label("Key", exact=True).fill("right")
        await page.keyboard.press("Enter")

        await expect(page.get_by_role("heading", level=1)).to_have_text("Inbox")
        assert "right" not in page.url
        assert await page.evaluate("sessionStorage.length + localStorage.length") == 0
        await page.reload()
        await expect(page.get_by_role("heading", level=1)).to_have_text("Sign in")


async def test_a_key_is_kept_for_the_tab_if_the_person_wants_so(browser: Browser) -> None:
    server = Server(clerk(), auth=Keys("right"))
    async with opened(browser, server, refused=True) as console:
        page = console.page
        await page.get_by_label("Key", exact=True).fill("right")
        await page.get_by_label("Keep it until this tab is closed").check()
        await page.get_by_role("button", name="Sign in").click()
        await expect(page.get_by_role("heading", level=1)).to_have_text("Inbox")
        await page.reload()
        await expect(page.get_by_role("heading", level=1)).to_have_text("Inbox")

        await page.get_by_role("link", name="Settings").click()
        await page.get_by_role("button", name="Sign out").click()

        await expect(page.get_by_role("heading", level=1)).to_have_text("Sign in")
        assert await page.evaluate("sessionStorage.length") == 0


async def test_a_key_that_ends_signs_out_with_a_word_why(browser: Browser) -> None:
    keys = Keys("right")
    async with opened(browser, Server(clerk(), auth=keys), refused=True) as console:
        page = console.page
        await page.get_by_label("Key", exact=True).fill("right")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", level=1)).to_have_text("Inbox")

        keys.valid.clear()

        await expect(page.get_by_role("heading", level=1)).to_have_text("Sign in")
        await expect(page.get_by_role("alert")).to_have_text("the credential is not valid")


async def test_a_missing_scope_is_named(browser: Browser) -> None:
    server = Server(clerk(), auth=Keys("reader"))
    async with opened(browser, server, refused=True) as console:
        page = console.page
        await page.get_by_label("Key", exact=True).fill("reader")
        await page.keyboard.press("Enter")
        await page.get_by_role("link", name="Chat").click()
        await page.get_by_role("link", name="clerk").click()
        await page.get_by_role("textbox").fill("hi")
        await page.keyboard.press("Enter")

        await expect(page.get_by_role("alert")).to_contain_text("Your key lacks the scope run.")
        await expect(page.get_by_role("textbox")).to_have_value("hi")


async def test_the_theme_is_chosen_and_stays(browser: Browser) -> None:
    async with opened(browser, Server(clerk())) as console:
        page = console.page
        background = "getComputedStyle(document.body).backgroundColor"
        light = await page.evaluate(background)
        await page.get_by_role("link", name="Settings").click()
        await expect(page.get_by_text("lib-server 0")).to_be_visible()

        await page.get_by_label("Dark").check()

        assert await page.evaluate(background) != light
        await page.reload()
        assert await page.evaluate(background) != light


async def test_keys_go_to_every_place_and_help_lists_them(browser: Browser) -> None:
    async with opened(browser, Server(clerk())) as console:
        page = console.page
        title = page.get_by_role("heading", level=1)
        await expect(title).to_have_text("Inbox")

        for keys, name in (("gc", "Chat"), ("gs", "Settings"), ("gi", "Inbox"), ("gr", "Runs")):
            for key in keys:
                await page.keyboard.press(key)
            await expect(title).to_have_text(name)
        await page.keyboard.press("/")
        await expect(page.get_by_role("searchbox")).to_be_focused()
        await page.keyboard.press("Escape")
        await page.keyboard.press("?")
        await expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
        await page.keyboard.press("Escape")
        await expect(page.get_by_role("dialog", name="Keys")).to_be_hidden()
