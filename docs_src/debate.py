import asyncio

from lib import Agent
from lib.algorithms import Debate
from lib.llm import ScriptedClient

optimist = Agent(
    ScriptedClient(["We sell 900.", "Then 500, if it rains."]),
    name="optimist",
    instructions="You look at what can go well.",
)
sceptic = Agent(
    ScriptedClient(["We sell 400.", "500, I forgot the fair."]),
    name="sceptic",
    instructions="You look at what can go wrong.",
)
chief = Agent(
    ScriptedClient(["Order 500 lamps."]),
    name="chief",
    instructions="You decide what is bought.",
    algorithm=Debate([optimist, sceptic], rounds=2),
)


async def main() -> None:
    async with chief.engine() as engine:
        run = await chief.start(engine, "How many lamps do we order?")
        print((await run.result()).output)
        async for event in run.events():
            if event.kind == "lib.debate.turn":
                print(event.data["round"], event.data["agent"], "-", event.data["text"])


asyncio.run(main())
