"""A process that is observed until it is killed: `observed.py FOLDER OPTIONS`.

Its agent makes 21 tool calls. In the last of them it says "working" and waits, or it ends and says
"done", when the observer has heard of it. The test has the backends, and is the next process.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

from agent import LaterClock

from fakes.trace_servers.langfuse import PUBLIC_KEY, SECRET_KEY
from fakes.trace_servers.langsmith import API_KEY
from lib.algorithms import React
from lib.engine import Engine, LLMHandler, ToolHandler
from lib.events import SQLiteEventStore
from lib.llm import FunctionClient, Message, Reply, ToolCall, ToolResult
from lib.observe import (
    CallableSink,
    LangfuseSink,
    LangSmithSink,
    Observer,
    OTelSink,
    PhoenixSink,
    Span,
)
from lib.tools import tool

CALLS = 21
ANSWER = "seen it all"


class HastyClock(LaterClock):
    """A clock that waits for nothing: the stand-in for Langfuse reads in at once what it takes."""

    async def sleep(self, delay_s: float) -> None:
        await super().sleep(0)


def think(messages: Sequence[Message]) -> Reply:
    """Look once more, until there is nothing left to see."""
    seen = sum(isinstance(part, ToolResult) for message in messages for part in message.parts)
    if seen < CALLS:
        return Reply((ToolCall(f"call-{seen + 1}", "look"),), stop="tool_calls")
    return Reply(Message.assistant(ANSWER).parts)


def sinks(folder: Path, urls: dict[str, str]) -> list[Any]:
    """Return a sink for each backend there is, and one for a file beside the log.

    The plain OpenTelemetry sink finds its backend in the environment.
    """
    opened: dict[str, Callable[[str], Any]] = {
        "otel": lambda _: OTelSink(),
        "langfuse": lambda url: LangfuseSink(PUBLIC_KEY, SECRET_KEY, url, clock=HastyClock(0)),
        "langsmith": lambda url: LangSmithSink(API_KEY, "tests", url),
        "phoenix": lambda url: PhoenixSink(url, "tests"),
    }

    def write_lines(spans: Sequence[Span]) -> None:
        lines = [
            {
                "id": span.span_id,
                "open": span.end is None,
                "error": span.attributes.get("error.type"),
            }
            for span in spans
        ]
        with (folder / "spans.jsonl").open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)

    return [*(opened[name](url) for name, url in urls.items()), CallableSink(write_lines)]


@asynccontextmanager
async def observed(
    folder: Path,
    urls: dict[str, str],
    *,
    hours: int,
    working: asyncio.Event | None = None,
    **options: Any,
) -> AsyncGenerator[tuple[Engine, Observer]]:
    """Open an engine and its observer some hours later, when leases and claims have ended."""

    @tool(effects="none", timeout_s=None)
    async def look() -> str:
        looked.append("x")
        if working is not None and len(looked) == CALLS:
            working.set()
            await asyncio.Event().wait()
        return "x"

    looked: list[str] = []
    clock = LaterClock(hours)
    store = SQLiteEventStore(folder / "runs.db", clock=clock, durability="normal")
    handlers: list[Any] = [LLMHandler(FunctionClient(think)), ToolHandler([look])]
    chosen = sinks(folder, urls)
    try:
        async with (
            Engine(store, handlers, algorithms=[React(max_steps=CALLS + 1)], clock=clock) as engine,
            Observer(engine, chosen, **options) as observer,
        ):
            yield engine, observer
    finally:
        for sink in chosen[:-1]:
            await sink.aclose()


async def main(folder: Path, *, wait: bool, flush: bool = False, **options: Any) -> None:
    """Run the agent, and wait to be killed."""
    working = asyncio.Event() if wait else None
    async with observed(folder, hours=0, working=working, **options) as (engine, observer):
        run = await engine.start("go", idempotency_key="k")
        if working is None:
            await run.result()
            await engine.bus.flush()
            print("done", flush=True)  # noqa: T201 - the test waits for it
        else:
            await working.wait()
            if flush:
                await observer.flush_open()
            print("working", flush=True)  # noqa: T201 - the test waits for it
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), **json.loads(sys.argv[2])))
