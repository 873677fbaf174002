"""The console of a server on a real socket, in a real browser; and agents to look at."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, Final, Literal
from weakref import WeakKeyDictionary

from playwright.async_api import Browser, ConsoleMessage, Error, Page, Request
from server_kit import Up, serving

from browser.chromium import VIOLATIONS
from lib import Agent, tool
from lib.llm import Delta, FunctionClient, Message, Reply, ScriptedClient, Thinking, ToolCall
from lib_server import Server

AXE = (files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")

THEMES: Final[tuple[Literal["light", "dark"], ...]] = ("dark", "light")

HANGING_MS = 120_000
"""Guards against hanging only: the machine of a test may be busy."""

ANSWER = """# Refunds

You get **all** of it back, `order 7`:

| order | sum   |
|-------|-------|
| 7     | 12.50 |

1. first
   - inner

See [the terms](https://example.com/terms).
"""


@tool(approval=True)
def refund(order: int) -> str:
    """Give the customer the money back."""
    return f"order {order} refunded"


@tool
def look_up(order: int) -> dict[str, Any]:
    """Look an order up."""
    return {"order": order, "total": 12.5}


def clerk(*answers: str) -> Agent[Any]:
    """Return an agent that answers with these texts, one after another."""
    return Agent(ScriptedClient(answers or [ANSWER] * 8), name="clerk")


def refunder() -> Agent[Any]:
    """Return an agent that looks an order up and then waits until a refund is approved."""
    look = Reply((Thinking("First the order."), ToolCall("c1", "look_up", {"order": 7})))
    pay = Reply((ToolCall("c2", "refund", {"order": 7}),))
    model = ScriptedClient([look, pay, "Order 7 has been refunded."])
    return Agent(model, name="refunder", tools=[look_up, refund])


class Halting(FunctionClient):
    """A model that writes the first half of its answer, and the second one when it may.

    Attributes:
        go_on: set when it may.
    """

    def __init__(self, first: str, second: str) -> None:
        super().__init__(lambda _: first + second)
        self.go_on: asyncio.Event = asyncio.Event()
        self._halves = (first, second)

    async def stream(
        self, messages: Sequence[Message], **options: Any
    ) -> AsyncIterator[Delta | Reply]:
        yield Delta(text=self._halves[0])
        await self.go_on.wait()
        yield Delta(text=self._halves[1])
        yield await self.complete(messages, **options)


@dataclass(slots=True)
class Opened:
    """The console of a server, open in a page.

    Attributes:
        page: of the browser.
        up: the server.
        complaints: errors, foreign requests and violations of the policy; empty at the end.
        refused: True if requests may be answered with errors, which browsers note.
    """

    page: Page
    up: Up
    complaints: list[str] = field(default_factory=list[str])
    refused: bool = False

    async def go(self, place: str) -> None:
        """Go to a place such as `chat/clerk`."""
        await self.page.goto(f"http://127.0.0.1:{self.up.port}/console/#/{place}")

    async def ask(self, agent: str, words: str) -> str:
        """Write to an agent in a new chat; return the id of the run that answers."""
        await self.go(f"chat/{agent}")
        await self.page.get_by_role("heading", name=f"Try {agent}").wait_for()
        await self.page.get_by_role("textbox").fill(words)
        await self.page.keyboard.press("Enter")
        link = self.page.get_by_role("link", name="Open the run")
        await link.wait_for()
        return (await link.get_attribute("href") or "").rpartition("/")[2]


@asynccontextmanager
async def opened(
    browser: Browser,
    server: Server,
    *,
    width: int = 1280,
    refused: bool = False,
    alone: bool = False,
) -> AsyncGenerator[Opened]:
    """Serve, and open the console; at the end of the block nothing must have gone wrong.

    The tests of a browser take turns in one page, for a new one takes longer than most tests. Each
    server has an origin of its own, and so its own storage.

    Args:
        browser: a real one.
        server: not yet started.
        width: of the window, in pixels.
        refused: allow that requests are answered with errors, which browsers note.
        alone: in a page of its own, as for a test that sets the clock of the page.
    """
    async with serving(server) as up:
        page = (None if alone else _left.pop(browser, None)) or await _new_page(browser)
        await page.set_viewport_size({"width": width, "height": 800})
        await page.emulate_media(color_scheme="light")
        console = Opened(page, up, refused=refused)
        with watched(console, f"http://127.0.0.1:{up.port}/"):
            await page.goto(f"http://127.0.0.1:{up.port}/")
            yield console
            console.complaints += await page.evaluate("window.violations")
        if alone:
            await page.context.close()
        else:
            await _leave(page)
            _left[browser] = page
        assert console.complaints == []


_left: Final[WeakKeyDictionary[Browser, Page]] = WeakKeyDictionary()
"""The page of each browser that the next test may have; a test that fails leaves none."""


async def _new_page(browser: Browser) -> Page:
    context = await browser.new_context()
    context.set_default_timeout(HANGING_MS)
    page = await context.new_page()
    await page.add_init_script(VIOLATIONS)
    return page


async def _leave(page: Page) -> None:
    """Leave nothing in the page for the test that has it next."""
    await page.evaluate("localStorage.clear(), sessionStorage.clear()")
    await page.goto("about:blank")
    await page.mouse.move(-1, -1)
    for other in page.context.pages:
        if other is not page:
            await other.close()


@contextmanager
def watched(console: Opened, origin: str) -> Generator[None]:
    """Note what goes wrong in a page."""
    page, complaints = console.page, console.complaints

    def on_error(error: Error) -> None:
        complaints.append(f"error: {error}")

    def on_message(message: ConsoleMessage) -> None:
        if not (console.refused and "Failed to load resource" in message.text):
            complaints.append(f"console: {message.text}")

    def on_request(request: Request) -> None:
        if not request.url.startswith((origin, "blob:")):
            complaints.append(f"request: {request.url}")

    page.on("pageerror", on_error)
    page.on("console", on_message)
    page.on("request", on_request)
    yield
    page.remove_listener("pageerror", on_error)
    page.remove_listener("console", on_message)
    page.remove_listener("request", on_request)


async def findings(page: Page) -> list[str]:
    """Return what is wrong with the page as it is: what axe finds in each theme, its width."""
    if not await page.evaluate("'axe' in window"):
        await page.evaluate(AXE)
    found: list[str] = []
    for theme in THEMES:
        await page.emulate_media(color_scheme=theme)
        report: dict[str, Any] = await page.evaluate("axe.run({ preload: false })")
        found += [
            f"{theme} {each['id']}: {each['nodes'][0]['html']}" for each in report["violations"]
        ]
    if await page.evaluate("document.documentElement.scrollWidth > window.innerWidth"):
        found.append("scrolls sideways")
    return found
