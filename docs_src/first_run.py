import asyncio

from lib.algorithms import React
from lib.engine import Engine, LLMHandler, ToolHandler
from lib.events import SQLiteEventStore
from lib.llm import Reply, ScriptedClient, ToolCall
from lib.tools import tool


@tool(effects="none")
def opening_hours(day: str) -> str:
    """When the shop is open."""
    return "9 to 17" if day != "Sunday" else "closed"


async def main() -> None:
    # A scripted model, so that this page runs anywhere; ChatClient("gpt-5-mini") is a real one.
    model = ScriptedClient(
        [
            Reply((ToolCall("call-1", "opening_hours", {"day": "Sunday"}),)),
            "We are closed on Sundays.",
        ]
    )
    handlers = [LLMHandler(model), ToolHandler([opening_hours])]
    async with Engine(SQLiteEventStore("runs.db"), handlers, algorithms=[React()]) as engine:
        run = await engine.start("Are you open on Sunday?")
        result = await run.result()
        print(result.outcome, "-", result.output)
        async for event in run.events():
            print(event.seq, event.kind)


asyncio.run(main())
