"""One process starts runs and waits for them; workers drive them, and one of those is killed."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from lib import Agent, Engine, tool
from lib.llm import FunctionClient, Message, Reply, ToolCall, ToolResult

STORE = os.environ.setdefault("STORE", f"sqlite:///{Path.cwd()}/runs.db")  # or postgresql://…


@tool(effects="idempotent")
async def ship(order: str) -> str:
    """Ship an order; the warehouse knows a repeated call by its key."""
    await asyncio.sleep(0.2)  # noqa: TID251 - stands for the warehouse
    return f"{order} shipped"


def think(messages: Sequence[Message]) -> Reply | str:
    """Stand in for a model: ship first, then repeat the tool's result."""
    match messages[-1].parts[0]:
        case ToolResult(content=result):
            return result
        case _:
            order = messages[0].text.removeprefix("Ship ")
            return Reply((ToolCall("call-1", "ship", {"order": order}),))


shop = Agent(FunctionClient(think), name="shop", tools=[ship])


def make_engine(*, drive: bool = True) -> Engine:
    """Return an engine; `lib worker workers:make_engine` calls it without arguments."""
    return Engine(STORE, agents=[shop], lease_s=1.0, drive=drive)


def start_worker() -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "lib.cli", "worker", "workers:make_engine"]
    return subprocess.Popen(command, cwd=Path(__file__).parent, stderr=subprocess.DEVNULL)


async def main() -> None:
    async with make_engine(drive=False) as engine:  # a web server, say: it drives nothing itself
        runs = [await shop.start(engine, f"Ship order {n}", key=f"{n}") for n in (1, 2, 3)]
        workers = [start_worker(), start_worker()]
        async for event in runs[0].events():
            if event.kind == "lib.tool.requested":
                break
        workers[0].kill()  # if it drove a run, the other worker takes the run over
        for run in runs:
            print((await run.result()).output)
        workers[1].send_signal(signal.SIGTERM)
        print("exit statuses:", [worker.wait() for worker in workers])


if __name__ == "__main__":
    asyncio.run(main())
