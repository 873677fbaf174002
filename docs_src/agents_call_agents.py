import asyncio

from lib import Agent, Budget, tool
from lib.llm import Reply, ScriptedClient, ToolCall


@tool(effects="none")
def stock(article: str) -> int:  # noqa: ARG001 - there are seven of everything
    """How many there are in the warehouse."""
    return 7


buyer = Agent(
    ScriptedClient(
        [Reply((ToolCall("call-1", "stock", {"article": "lamp"}),)), "Yes, there are 7."]
    ),
    name="buyer",
    tools=[stock],
    budget=Budget(llm_calls=5),
)
task = {"task": "Are there 5 lamps?"}
clerk = Agent(
    ScriptedClient([Reply((ToolCall("call-1", "buyer", task),)), "You can have your 5 lamps."]),
    name="clerk",
    tools=[buyer.as_tool("Knows what is in stock and what has to be ordered.")],
    budget=Budget(llm_calls=20, depth=1),
)


async def main() -> None:
    async with clerk.engine("runs.db") as engine:
        run = await clerk.start(engine, "I need 5 lamps.")
        result = await run.result()
        print(result.output)
        print("together:", result.spend.llm_calls, "model calls,", result.spend.tool_calls, "calls")
        for info in await engine.store.runs():
            first = (await engine.store.read(info.run_id, limit=1))[0]
            print(info.algorithm, info.outcome, first.data["budget"])


asyncio.run(main())
