import asyncio

from lib import Agent, tool
from lib.engine import pending_approvals
from lib.llm import Reply, ScriptedClient, ToolCall


@tool(approval=lambda arguments: arguments["amount"] > 50)
def refund(order: int, amount: int) -> str:
    """Give money back."""
    return f"refunded {amount} for order {order}"


call = Reply((ToolCall("call-1", "refund", {"order": 7, "amount": 80}),))
shop = Agent(ScriptedClient([call, "You have your 80 back."]), name="shop", tools=[refund])


async def ask() -> None:
    async with shop.engine("runs.db") as engine:
        run = await shop.start(engine, "My parcel never came, order 7.")
        async for event in run.events():
            if event.kind == "lib.approval.requested":
                break


async def decide() -> None:
    async with shop.engine("runs.db") as engine:
        async for waiting in pending_approvals(engine.store):
            print("waits:", waiting.name, dict(waiting.arguments))
            run = engine.run(waiting.run_id)
            await run.approve(waiting.key, user="grace")
            print((await run.result()).output)


asyncio.run(ask())  # this process could end here, for days
asyncio.run(decide())
