"""One of two workers for the split-brain test: `owner.py FOLDER first|second`.

The first says "working" from inside a tool and goes on after a line on its standard input.
The second lives an hour later, when the first one's lease has ended.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from agent import LaterClock

from lib.algorithms import React
from lib.engine import Engine, LLMHandler, RunAbandoned, ToolHandler
from lib.events import SQLiteEventStore
from lib.llm import FunctionClient, Message, Reply, ToolCall, ToolResult
from lib.tools import tool


def think(messages: Sequence[Message]) -> Reply:
    results = [p for m in messages for p in m.parts if isinstance(p, ToolResult)]
    names = ("look", "pay")
    if len(results) < len(names):
        return Reply((ToolCall("c", names[len(results)]),), stop="tool_calls")
    return Reply(Message.assistant(" ".join(result.content for result in results)).parts)


async def main(folder: Path, who: str) -> str:
    @tool(effects="none", timeout_s=None)
    async def look() -> str:
        if who == "first":
            print("working", flush=True)  # noqa: T201 - the test waits for it
            await asyncio.to_thread(sys.stdin.readline)
        return f"seen by {who}"

    @tool(effects="once")
    def pay() -> str:
        with (folder / "ledger").open("a", encoding="utf-8") as ledger:
            ledger.write(f"paid by {who}\n")
        return f"paid by {who}"

    clock = LaterClock(0 if who == "first" else 1)
    engine = Engine(
        SQLiteEventStore(folder / "runs.db", clock=clock),
        [LLMHandler(FunctionClient(think)), ToolHandler([look, pay])],
        algorithms=[React()],
        clock=clock,
    )
    async with engine:
        run = await engine.start("go", idempotency_key="k")
        try:
            return (await run.result()).output
        except RunAbandoned as error:
            return error.reason


if __name__ == "__main__":
    print(asyncio.run(main(Path(sys.argv[1]), sys.argv[2])))  # noqa: T201 - its result
