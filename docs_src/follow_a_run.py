import asyncio

from lib import Agent, Budget, tool
from lib.llm import Reply, ScriptedClient, ToolCall


@tool(effects="none")
async def look_up(word: str) -> str:
    """Look up a word."""
    return f"{word}: a greeting"


async def main() -> None:
    model = ScriptedClient(
        [Reply((ToolCall("c1", "look_up", {"word": "hello"}),)), "It is a greeting."]
    )
    async with Agent(model, tools=[look_up]).engine() as engine:
        run = await engine.start("What does hello mean?", budget=Budget(llm_calls=5, tokens=1_000))

        async def typewriter() -> None:
            async for piece in run.deltas():
                if piece.delta.text:
                    print(piece.delta.text, end="|")
            print()

        watching = asyncio.create_task(typewriter())
        result = await run.result()
        await watching
        print(result.outcome, result.spend.llm_calls, "model calls")
        async for event in run.events(after=6):
            print(event.seq, event.kind)


asyncio.run(main())
