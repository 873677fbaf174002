import asyncio

from lib.algorithms import React
from lib.engine import Engine, LLMHandler, ToolHandler, pending_approvals
from lib.events import SQLiteEventStore
from lib.llm import Reply, ScriptedClient, ToolCall
from lib.tools import tool


@tool(approval=lambda arguments: arguments["amount"] > 50)
def refund(order: int, amount: int) -> str:
    """Give money back."""
    return f"refunded {amount} for order {order}"


def engine() -> Engine:
    call = Reply((ToolCall("call-1", "refund", {"order": 7, "amount": 80}),))
    model = ScriptedClient([call, "You have your 80 back."])
    handlers = [LLMHandler(model), ToolHandler([refund])]
    return Engine(SQLiteEventStore("runs.db"), handlers, algorithms=[React()])


async def ask() -> None:
    async with engine() as shop:
        run = await shop.start("My parcel never came, order 7.")
        async for event in run.events():
            if event.kind == "lib.approval.requested":
                break


async def decide() -> None:
    async with engine() as shop:
        async for call in pending_approvals(shop.store):
            print("waits:", call.name, dict(call.arguments))
            run = shop.run(call.run_id)
            await run.approve(call.key, user="grace")
            print((await run.result()).output)


asyncio.run(ask())  # this process could end here, for days
asyncio.run(decide())
