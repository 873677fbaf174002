import asyncio

from lib.algorithms import React
from lib.engine import Engine, LLMHandler, ToolHandler
from lib.events import SQLiteEventStore
from lib.llm import Reply, ScriptedClient, ToolCall
from lib.tools import tool


@tool(approval=True)
def refund(order: int, amount: int) -> str:
    """Give money back."""
    return f"refunded {amount} for order {order}"


async def main() -> None:
    call = Reply((ToolCall("call-1", "refund", {"order": 7, "amount": 80}),))
    handlers = [LLMHandler(ScriptedClient([call, "You have it."])), ToolHandler([refund])]
    async with Engine(SQLiteEventStore("runs.db"), handlers, algorithms=[React()]) as shop:
        run = await shop.start("My parcel never came, order 7.")
        async for event in run.events():
            if event.kind == "lib.approval.requested":
                break
        result = await run.result(wait=False)
        if result.waiting_for is not None:
            for waiting in result.waiting_for.approvals:  # those of child runs, too
                print("waits for a person:", waiting.name, waiting.key)
                await shop.run(waiting.run_id).approve(waiting.key)
        print((await run.result()).output)


asyncio.run(main())
