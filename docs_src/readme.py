import asyncio

from lib.algorithms import React
from lib.engine import Engine, LLMHandler, ToolHandler
from lib.events import SQLiteEventStore
from lib.llm import Reply, ScriptedClient, ToolCall
from lib.tools import tool


@tool(effects="once")  # recorded before it happens, and never silently repeated
def refund(order: int) -> str:
    """Give the customer the money back."""
    return f"order {order} refunded"


model = ScriptedClient([Reply((ToolCall("c1", "refund", {"order": 7}),)), "Done, order 7."])
handlers = [LLMHandler(model), ToolHandler([refund])]  # ChatClient("gpt-5-mini") is a real model


async def main() -> None:
    async with Engine(SQLiteEventStore("runs.db"), handlers, algorithms=[React()]) as engine:
        run = await engine.start("Please refund order 7.", idempotency_key="ticket-1234")
        print((await run.result()).output)  # kill it anywhere, run it again: it goes on


asyncio.run(main())
