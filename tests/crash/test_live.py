"""A driver is killed while it streams a reply: a third process sees the reply begin anew, whole."""

import asyncio
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack, aclosing
from pathlib import Path
from typing import Any

import pytest

from lib.algorithms import React
from lib.engine import Engine, LLMHandler, ModelReplied, ReplyDelta, ReplyReset, Run, RunEnded
from lib.events.store import end_lease
from lib.llm import ScriptedClient
from servers import postgres, redis

sys.path.insert(0, str(Path(__file__).parent))

from live_driver import open_one, words

HERE = Path(__file__).parent
HANGING_S = 240.0
PLACES: dict[str, Callable[[Path], tuple[str, str]]] = {
    "sqlite": lambda place: (str(place / "log.db"), ""),
    "postgres": lambda place: (postgres.url(), postgres.schema_of(place)),
    "redis": lambda place: (redis.url(), redis.prefix_of(place)),
}


class Reader:
    """Reads a stream, and has what a person would see of the reply."""

    def __init__(self) -> None:
        self.items: list[Any] = []
        self.texts = [""]
        self._grown = asyncio.Event()

    async def read(self, run: Run) -> None:
        async with aclosing(run.stream()) as items:
            async for item in items:
                self.items.append(item)
                if isinstance(item, ReplyReset):
                    self.texts.append("")
                elif isinstance(item, ReplyDelta):
                    self.texts[-1] += item.text
                self._grown.set()

    async def seen(self, text: str) -> None:
        """Wait until the reply has this text."""
        while self.texts[-1] != text:
            assert text.startswith(self.texts[-1]) or len(self.texts) == 1
            await self._grown.wait()
            self._grown.clear()


@pytest.fixture(params=list(PLACES))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str, str]:
    return (request.param, *PLACES[request.param](tmp_path))


class Drivers:
    """Processes that drive the run."""

    def __init__(self, place: tuple[str, str, str], go: Path, env: dict[str, str]) -> None:
        self._place, self._go, self._env = place, go, env
        self._started: list[asyncio.subprocess.Process] = []

    async def start(self, run: Run, how: str) -> asyncio.subprocess.Process:
        arguments = ("live_driver.py", *self._place, run.id, how, str(self._go))
        process = await asyncio.create_subprocess_exec(
            sys.executable, *arguments, env=self._env, cwd=HERE
        )
        self._started.append(process)
        return process

    async def kill(self) -> None:
        for process in self._started:
            if process.returncode is None:
                process.kill()
            await process.wait()


async def test_a_reply_whose_driver_is_killed_begins_anew_and_equals_the_log(
    place: tuple[str, str, str], tmp_path: Path, unmeasured: dict[str, str]
) -> None:
    drivers, reader = Drivers(place, tmp_path / "go", unmeasured), Reader()
    half = "".join(words("half")[: len(words("half")) // 2])
    whole = "".join(words("whole"))
    handlers = [LLMHandler(ScriptedClient([]))]
    store = await asyncio.to_thread(open_one, *place)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(asyncio.timeout(HANGING_S))
        engine = Engine(store, handlers, algorithms=[React()], drive=False)
        await stack.enter_async_context(engine)
        stack.push_async_callback(drivers.kill)
        run = await engine.start("write")
        reading = asyncio.create_task(reader.read(run))
        await drivers.start(run, "half")
        await reader.seen(half)
        await drivers.kill()
        await end_lease(engine.store, await run.info())
        await drivers.start(run, "whole")
        await reader.seen(whole)
        await asyncio.to_thread((tmp_path / "go").touch)
        await reading

    assert reader.texts == [half, whole]
    (replied,) = [item for item in reader.items if isinstance(item, ModelReplied)]
    assert replied.text == whole
    assert [type(item) for item in reader.items][-1] is RunEnded
    assert reader.items[-1].result.output == whole
