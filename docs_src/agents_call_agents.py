import asyncio

from lib.algorithms import React
from lib.engine import AgentTool, Budget, ChildHandler, Engine, LLMHandler, ToolHandler
from lib.events import SQLiteEventStore
from lib.llm import Reply, ScriptedClient, ToolCall
from lib.tools import tool


@tool(effects="none")
def stock(article: str) -> int:  # noqa: ARG001 - there are seven of everything
    """How many there are in the warehouse."""
    return 7


steps = [
    Reply((ToolCall("call-1", "ask_buyer", {"task": "Are there 5 lamps?"}),)),
    Reply((ToolCall("call-1", "stock", {"article": "lamp"}),)),  # this is the buyer
    "Yes, there are 7.",
    "You can have your 5 lamps.",
]
buyer = AgentTool(
    "ask_buyer",
    "Knows what is in stock and what has to be ordered.",
    "buyer",  # the algorithm by which its runs go on
    budget=Budget(llm_calls=5),
)
algorithms = [React("clerk", tools=["ask_buyer"]), React("buyer", tools=["stock"])]
handlers = [LLMHandler(ScriptedClient(steps)), ToolHandler([stock]), ChildHandler([buyer])]


async def main() -> None:
    async with Engine(SQLiteEventStore("runs.db"), handlers, algorithms=algorithms) as engine:
        run = await engine.start("I need 5 lamps.", budget=Budget(llm_calls=20, depth=1))
        result = await run.result()
        print(result.output)
        print("together:", result.spend.llm_calls, "model calls,", result.spend.tool_calls, "calls")
        for info in await engine.store.runs():
            first = (await engine.store.read(info.run_id, limit=1))[0]
            print(info.algorithm, info.outcome, first.data["budget"])


asyncio.run(main())
