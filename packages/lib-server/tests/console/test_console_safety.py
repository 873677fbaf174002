"""Hostile text in the console is only ever text, and lost connections lose nothing."""

import asyncio
from pathlib import Path

import pytest
from console_kit import Halting, opened
from playwright.async_api import Browser, Page, expect
from server_kit import serving

from browser.chromium import VIOLATIONS
from lib import Agent, tool
from lib.llm import Reply, ScriptedClient, Text, Thinking, ToolCall
from lib_server import Server

pytestmark = pytest.mark.asyncio(loop_scope="module")

ATTACK = (
    "</script><img src='//evil.invalid/' onerror='window.hacked=1'><script>window.hacked=1</script>"
)
HOSTILE = f"""# {ATTACK}

{ATTACK}

| {ATTACK} | b |
|---|---|
| {ATTACK} | [x](javascript:window.hacked=1) |

- [run me](javascript:window.hacked=1) [data](data:text/html,<script>window.hacked=1</script>)
- ![picture](https://evil.invalid/pixel.png)
- `{ATTACK}`

```html
{ATTACK}
```

\u202egnp.exe \x1b[31mred \u2066 z{"̸" * 500}
"""


@tool
def search(query: str) -> str:
    """Search, and find what others have planted."""
    del query
    return HOSTILE


async def is_unharmed(page: Page) -> None:
    """Check that nothing of the attack has become more than text."""
    assert await page.evaluate("window.hacked") is None
    assert await page.locator("main img, iframe, object, embed, script:not([src])").count() == 0
    addresses = await page.locator("main a").evaluate_all("links => links.map((each) => each.href)")
    assert all(each.startswith(("http://127.0.0.1", "https://")) for each in addresses)
    text = await page.locator("main").inner_text()
    assert not any(mark in text for mark in "\u202e\u2066\x1b")
    assert "̸" * 7 not in text


async def test_hostile_text_of_models_tools_and_users_is_only_ever_text(browser: Browser) -> None:
    call = Reply((Thinking(HOSTILE), Text(HOSTILE), ToolCall("c1", "search", {"query": ATTACK})))
    agent = Agent(ScriptedClient([call, HOSTILE]), name=f"a {ATTACK[:40]}", tools=[search])
    async with opened(browser, Server(agent)) as console:
        page = console.page
        await console.go("chat")
        await page.locator("a.card").click()
        await page.get_by_role("textbox").fill(HOSTILE)
        await page.keyboard.press("Enter")
        await expect(page.locator(".moment.ok")).to_have_count(1)
        for summary in await page.locator("summary").all():
            await summary.click()
        await is_unharmed(page)
        assert await page.get_by_text("</script><img").count() > 10
        outside = page.locator("a.outside")
        assert await outside.first.get_attribute("rel") == "noreferrer noopener"
        await expect(outside.first).to_contain_text("Image: picture evil.invalid")

        await page.get_by_role("link", name="Open the run").click()
        await expect(page.locator(".moment.ok")).to_have_count(1)
        await page.get_by_role("tab", name="Timeline").click()
        rows = page.get_by_role("treegrid").get_by_role("row")
        await rows.first.click()
        for span in range(await rows.count()):
            await rows.nth(span).click()
            await is_unharmed(page)
        assert await page.get_by_text("</script><img").count() > 3
        assert await page.locator(".timeline a, .timeline img").count() == 0
        await page.get_by_role("tab", name="Log").click()
        for summary in await page.locator(".event summary").all():
            await summary.click()
        await is_unharmed(page)
        await page.get_by_role("link", name="Runs").click()
        await expect(page.locator("a.run")).to_have_count(1)
        await is_unharmed(page)


async def test_a_huge_answer_shows_its_first_part_and_all_of_it_as_a_file(
    browser: Browser,
) -> None:
    huge = "word " * 100_000
    async with opened(browser, Server(Agent(ScriptedClient([huge]), name="clerk"))) as console:
        page = console.page
        await console.ask("clerk", "all of it")
        await expect(page.locator(".moment.ok")).to_have_count(1)

        message = page.locator(".message.assistant")
        assert len(await message.inner_text()) < 25_000
        async with page.expect_download() as downloading:
            await message.get_by_role("button", name="Download all").click()
        download = await downloading.value
        assert Path(await download.path()).read_text(encoding="utf-8") == huge


class Cutting:
    """A proxy of one server, which cuts each stream after some bytes.

    Attributes:
        cuts: how many streams were cut.
        port: where it listens.
    """

    def __init__(self, target: int, after: int) -> None:
        self.cuts = 0
        self.port = 0
        self._target = target
        self._after = after

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        onward, out = await asyncio.open_connection("127.0.0.1", self._target)
        host = f"127.0.0.1:{self.port}".encode()
        head = head.replace(host, b"127.0.0.1:%d" % self._target)
        out.write(head.replace(b"\r\n", b"\r\nConnection: close\r\n", 1))
        left = self._after if b"text/event-stream" in head else -1
        pumping = asyncio.create_task(_pump(reader, out))
        while chunk := await onward.read(left if left > 0 else 65536):
            writer.write(chunk)
            left -= len(chunk) if left > 0 else 0
            if left == 0:
                self.cuts += 1
                break
        pumping.cancel()
        await asyncio.wait([pumping])
        writer.close()
        out.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while chunk := await reader.read(65536):
        writer.write(chunk)


async def test_a_stream_that_is_cut_again_and_again_shows_each_event_once(
    browser: Browser,
) -> None:
    calls = [Reply((ToolCall(f"c{n}", "search", {"query": str(n)}),)) for n in range(6)]
    agent = Agent(ScriptedClient([*calls, "found"]), name="clerk", tools=[search])
    async with serving(Server(agent)) as up:
        run_id = (await up.client.post("/v1/runs", json={"input": "go"})).json()["id"]
        await up.client.get(f"/v1/runs/{run_id}/result?wait_s=60")
        log = (await up.client.get(f"/v1/runs/{run_id}/events")).json()["events"]
        proxy = Cutting(up.port, after=12_000)
        async with await asyncio.start_server(proxy.serve, "127.0.0.1", 0) as listening:
            proxy.port = listening.sockets[0].getsockname()[1]
            page = await browser.new_page()
            await page.goto(f"http://127.0.0.1:{proxy.port}/console/#/runs/{run_id}?tab=log")
            shown = page.locator(".event code")
            await expect(shown).to_have_text([each["kind"] for each in log])
            await expect(page.locator(".live")).to_have_text("ended")
            await page.close()

    assert proxy.cuts >= 2


async def test_a_run_goes_on_in_the_page_when_its_server_is_replaced(
    browser: Browser, tmp_path: Path
) -> None:
    first, second = Halting("Half", " done."), Halting("Half", " done.")
    second.go_on.set()
    store = tmp_path / "runs.db"
    page = await browser.new_page()
    await page.add_init_script(VIOLATIONS)
    async with serving(Server(Agent(first, name="slow"), store=store, drain_s=0)) as up:
        port = up.port
        await page.goto(f"http://127.0.0.1:{port}/console/#/chat/slow")
        await page.get_by_role("textbox").fill("go")
        await page.keyboard.press("Enter")
        await expect(page.locator(".message.writing")).to_contain_text("Half")
    await expect(page.locator(".live")).to_have_text("away")

    async with serving(Server(Agent(second, name="slow"), store=store), port=port):
        await expect(page.locator(".moment.ok")).to_have_count(1)
        await expect(page.locator(".message.assistant .markdown")).to_have_text(["Half done."])
        await expect(page.locator(".message.writing")).to_have_count(0)
        assert await page.evaluate("window.violations") == []
        await page.close()
