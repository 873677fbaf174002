import asyncio
import sys
from pathlib import Path

from lib import Agent, tool


@tool(approval=True)
def refund(order: int) -> str:
    """Give the customer the money back."""
    with Path("refunds.txt").open("a", encoding="utf-8") as ledger:
        ledger.write(f"{order}\n")
    return f"order {order} refunded"


clerk = Agent("openai:gpt-5-mini", name="clerk", instructions="You help customers.", tools=[refund])


async def main(step: str) -> None:
    async with clerk.engine("runs.db") as engine:
        run = await clerk.start(engine, "Please refund order 7.", key="ticket-1234")
        if step == "ask":
            async for event in run.events():
                if event.kind == "lib.approval.requested":
                    break
            for call in await run.pending():
                print("waits:", call.name, dict(call.arguments))
        else:
            for call in await run.pending():
                await run.approve(call.key, user="grace")
            print((await run.result()).output)


asyncio.run(main(sys.argv[1]))
