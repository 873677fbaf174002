import asyncio

from lib import Agent, tool
from lib.llm import Reply, ScriptedClient, ToolCall


@tool(effects="none")
def opening_hours(day: str) -> str:
    """When the shop is open."""
    return "9 to 17" if day != "Sunday" else "closed"


async def main() -> None:
    # A scripted model, so that this page runs anywhere; "openai:gpt-5-mini" is a real one.
    model = ScriptedClient(
        [
            Reply((ToolCall("call-1", "opening_hours", {"day": "Sunday"}),)),
            "We are closed on Sundays.",
        ]
    )
    agent = Agent(model, instructions="You work in a shop.", tools=[opening_hours])
    async with agent.engine("runs.db") as engine:
        run = await agent.start(engine, "Are you open on Sunday?")
        result = await run.result()
        print(result.outcome, "-", result.output)
        async for event in run.events():
            print(event.seq, event.kind)


asyncio.run(main())
