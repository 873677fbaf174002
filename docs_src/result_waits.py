import asyncio

from lib import Agent, tool
from lib.llm import Reply, ScriptedClient, ToolCall


@tool(approval=True)
def refund(order: int, amount: int) -> str:
    """Give money back."""
    return f"refunded {amount} for order {order}"


call = Reply((ToolCall("call-1", "refund", {"order": 7, "amount": 80}),))
shop = Agent(ScriptedClient([call, "You have it."]), name="shop", tools=[refund])


async def main() -> None:
    async with shop.engine("runs.db") as engine:
        run = await shop.start(engine, "My parcel never came, order 7.")
        async for event in run.events():
            if event.kind == "lib.approval.requested":
                break
        result = await run.result(wait=False)
        if result.waiting_for is not None:
            for waiting in result.waiting_for.approvals:  # those of child runs, too
                print("waits for a person:", waiting.name, waiting.key)
                await engine.run(waiting.run_id).approve(waiting.key)
        print((await run.result()).output)


asyncio.run(main())
