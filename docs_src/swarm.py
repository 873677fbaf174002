import asyncio

from lib import Agent, Budget, tool
from lib.algorithms import Swarm
from lib.llm import Reply, ScriptedClient, ToolCall


@tool(effects="idempotent")
def refund(order: int) -> str:
    """Give the customer the money back."""
    return f"order {order} is paid back"


billing = Agent(
    ScriptedClient([Reply((ToolCall("call-1", "refund", {"order": 7}),)), "You have it back."]),
    name="billing",
    instructions="You answer for invoices.",
    tools=[refund],
)
shipping = Agent(ScriptedClient([]), name="shipping", instructions="You answer for parcels.")
desk = Agent(
    ScriptedClient([Reply((ToolCall("call-1", "hand_off_to_billing", {"note": "order 7"}),))]),
    name="desk",
    instructions="You find out who can help.",
    algorithm=Swarm(
        [billing.as_tool("Pays back."), shipping.as_tool("Finds parcels.")], max_handoffs=4
    ),
    budget=Budget(llm_calls=20),
)


async def main() -> None:
    async with desk.engine() as engine:
        run = await desk.start(engine, "Refund order 7, please.")
        print((await run.result()).output)
        async for event in run.events():
            if event.kind == "lib.swarm.handoff":
                print(event.data["source"], "->", event.data["target"])


asyncio.run(main())
