"""A payment, killed between its effect and its record; then the same command again."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from lib.algorithms import React
from lib.engine import Engine, LLMHandler, ToolHandler
from lib.events import SQLiteEventStore
from lib.llm import FunctionClient, Message, Reply, ToolCall, ToolResult
from lib.tools import tool

LEDGER = Path("ledger.txt")


@tool(effects="once")
def pay(amount: int, to: str) -> str:
    """Pay somebody."""
    with LEDGER.open("a", encoding="utf-8") as ledger:
        ledger.write(f"{amount} to {to}\n")
    os.kill(os.getpid(), signal.SIGKILL)  # the process dies before it can record the payment
    return "paid"


def think(messages: Sequence[Message]) -> Reply | str:
    """Stand in for a model: pay first, then repeat what the tool has said."""
    match messages[-1].parts[0]:
        case ToolResult(content=told):
            return f"I was told: {told}."
        case _:
            return Reply((ToolCall("call-1", "pay", {"amount": 100, "to": "Ada"}),))


async def work() -> None:
    engine = Engine(
        SQLiteEventStore("runs.db"),
        [LLMHandler(FunctionClient(think)), ToolHandler([pay])],
        algorithms=[React()],
        lease_s=1.0,  # how long a dead process keeps its runs
    )
    async with engine:
        run = await engine.start("Pay Ada 100.", idempotency_key="invoice-7")
        print((await run.result()).output)


if sys.argv[1:] == ["work"]:
    asyncio.run(work())
else:
    for attempt in (1, 2):
        done = subprocess.run(
            [sys.executable, __file__, "work"], capture_output=True, encoding="utf-8", check=False
        )
        print(f"attempt {attempt}: exit status {done.returncode}")
        print(done.stdout, end="")
    print("ledger:", LEDGER.read_text(encoding="utf-8").splitlines())
