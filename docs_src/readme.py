import asyncio
from pathlib import Path

from lib.algorithms import React
from lib.engine import Engine, LLMHandler, ToolHandler
from lib.events import SQLiteEventStore
from lib.llm import Reply, ScriptedClient, ToolCall
from lib.tools import DidNotHappen, Happened, tool

LEDGER = Path("refunds.txt")  # stands in for a bank


def was_refunded(order: int) -> Happened | DidNotHappen:
    done = LEDGER.exists() and str(order) in LEDGER.read_text(encoding="utf-8").splitlines()
    return Happened(f"order {order} refunded") if done else DidNotHappen()


@tool(effects="once", check=was_refunded)  # recorded before it happens, never made on a guess
def refund(order: int) -> str:
    """Give the customer the money back."""
    with LEDGER.open("a", encoding="utf-8") as ledger:
        ledger.write(f"{order}\n")
    return f"order {order} refunded"


model = ScriptedClient([Reply((ToolCall("c1", "refund", {"order": 7}),)), "Done, order 7."])
handlers = [LLMHandler(model), ToolHandler([refund])]  # ChatClient("gpt-5-mini") is a real model


async def main() -> None:
    async with Engine(SQLiteEventStore("runs.db"), handlers, algorithms=[React()]) as engine:
        run = await engine.start("Please refund order 7.", idempotency_key="ticket-1234")
        print((await run.result()).output)  # kill it anywhere, run it again: it goes on


asyncio.run(main())
