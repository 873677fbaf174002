"""A payment, killed between its effect and its record; then the same command again."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from lib import Agent, tool
from lib.llm import FunctionClient, Message, Reply, ToolCall, ToolResult

LEDGER = Path("ledger.txt")


@tool(effects="once")
def pay(amount: int, to: str) -> str:
    """Pay a person."""
    with LEDGER.open("a", encoding="utf-8") as ledger:
        ledger.write(f"{amount} to {to}\n")
    os.kill(os.getpid(), signal.SIGKILL)  # the process dies before it can record the payment
    return "paid"


def think(messages: Sequence[Message]) -> Reply | str:
    """Stand in for a model: pay first, then repeat the tool's result."""
    match messages[-1].parts[0]:
        case ToolResult(content=result):
            return f"The tool says: {result}."
        case _:
            return Reply((ToolCall("call-1", "pay", {"amount": 100, "to": "Ada"}),))


agent = Agent(FunctionClient(think), tools=[pay])


async def work() -> None:
    lease_s = 1.0  # how long a dead process keeps its runs
    async with agent.engine("runs.db", lease_s=lease_s) as engine:
        run = await agent.start(engine, "Pay Ada 100.", key="invoice-7")
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
