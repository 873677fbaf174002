"""A run in the console outlives its server: killed, taken up by another, approved elsewhere."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, expect

from browser.chromium import VIOLATIONS

pytestmark = pytest.mark.asyncio(loop_scope="module")

LISTENING = b"running on http://"
LOST = re.compile("no process from .* to .*")


@asynccontextmanager
async def serving_process(
    store: Path, port: int, *, halts: bool
) -> AsyncGenerator[asyncio.subprocess.Process]:
    """Run `lib-server serve` in a process of its own, and kill it at the end of the block."""
    environment = {**os.environ, "KILLED_STORE": str(store)}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "lib_server", "serve", "killed_app:make_engine"),
        *("--port", str(port)),
        cwd=Path(__file__).parent,
        env=environment | ({"KILLED_HALTS": "yes"} if halts else {}),
        stderr=asyncio.subprocess.PIPE,
    )
    log, listening = list[bytes](), asyncio.Event()
    reading = asyncio.create_task(_read(process, log, listening))
    try:
        await listening.wait()
        assert LISTENING in log[-1], b"".join(log).decode()
        yield process
    finally:
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGKILL)
        await process.wait()
        await reading


async def _read(
    process: asyncio.subprocess.Process, log: list[bytes], listening: asyncio.Event
) -> None:
    """Note what the process logs, until its end."""
    assert process.stderr is not None
    async for line in process.stderr:
        if not listening.is_set():
            log.append(line)
        if LISTENING in line:
            listening.set()
    listening.set()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return listening.getsockname()[1]


async def begin_and_kill(page: Page, store: Path, port: int) -> None:
    """Start a run in a chat, and kill its server while it streams."""
    async with serving_process(store, port, halts=True) as first:
        await page.goto(f"http://127.0.0.1:{port}/console/#/chat/refunder")
        await page.evaluate("window.loadedOnce = true")
        await page.get_by_role("textbox").fill("Please refund order 7")
        await page.keyboard.press("Enter")
        await expect(page.locator(".message.writing")).to_contain_text("I look into it.")
        first.send_signal(signal.SIGKILL)
        await first.wait()
        await expect(page.locator(".live")).to_have_text("away")


async def approve(page: Page, port: int) -> None:
    """Approve in the inbox the only call that waits."""
    await page.goto(f"http://127.0.0.1:{port}/console/")
    need = page.locator("article.need")
    await expect(need).to_contain_text("refund")
    await need.get_by_role("button", name="Approve").click()
    await page.get_by_role("dialog").get_by_role("button", name="Approve").click()
    await expect(page.locator("article.need.settled")).to_have_count(1)


async def test_a_run_outlives_its_killed_server_and_is_approved_in_another_window(
    browser: Browser, tmp_path: Path
) -> None:
    store, port = tmp_path / "runs.db", free_port()
    window, other = await browser.new_context(), await browser.new_context()
    page = await window.new_page()
    await page.add_init_script(VIOLATIONS)
    await begin_and_kill(page, store, port)

    async with serving_process(store, port, halts=False):
        await expect(page.locator(".live")).to_have_text("live")
        await expect(page.locator(".call")).to_contain_text("waits for approval")
        answers = page.locator(".message.assistant .markdown")
        await expect(answers).to_have_text(["I look into it. I refund it."])
        await approve(await other.new_page(), port)

        await expect(page.locator(".moment.ok")).to_have_count(1)
        done = ["I look into it. I refund it.", "Order 7 has been refunded."]
        await expect(answers).to_have_text(done)
        await expect(page.locator(".message.user")).to_have_count(1)
        await page.get_by_role("link", name="Open the run").click()
        await page.get_by_role("tab", name="Timeline").click()
        await expect(page.get_by_role("treegrid").get_by_role("row")).to_have_count(7)
        await expect(page.locator(".timeline .dead").first).to_have_attribute("title", LOST)
        assert await page.evaluate("window.loadedOnce") is True
        assert await page.evaluate("window.violations") == []
    await window.close()
    await other.close()
