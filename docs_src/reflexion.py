import asyncio

from lib import Agent
from lib.algorithms import Reflexion
from lib.llm import ScriptedClient


def judge(answer: str) -> str | None:
    """Return what is wrong with the answer, None if nothing is."""
    words = len(answer.split())
    return f"it has {words} words, and at most 6 fit on the poster" if words > 6 else None


author = Agent(
    ScriptedClient(["Come in and see all of our lamps today.", "Come and see our lamps."]),
    name="author",
    instructions="You write posters.",
    algorithm=Reflexion(judge, trials=3),
)


async def main() -> None:
    async with author.engine() as engine:
        run = await author.start(engine, "A poster for our lamps.")
        result = await run.result()
        print(result.outcome, result.output)
        async for event in run.events():
            if event.kind == "lib.reflexion.feedback":
                print("trial", event.data["trial"], "-", event.data["text"])


asyncio.run(main())
