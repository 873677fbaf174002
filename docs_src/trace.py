import asyncio
import sys

from lib import Agent, ToolError, tool
from lib.llm import Reply, ScriptedClient, ToolCall
from lib.observe import ConsoleSink, InMemorySink, Observer
from lib.testing.clock import ManualClock

# So that this page shows the same whenever it is run.
clock = ManualClock()
IDS = iter(("a-worker", "weather-run"))


@tool(effects="none")
async def weather(city: str) -> str:
    """Ask for the weather."""
    clock.advance(0.25)
    if city == "Atlantis":
        raise ToolError("not_found", "no such city")
    return f"sunny in {city}"


async def main() -> None:
    calls = [ToolCall(f"c{n}", "weather", {"city": city}) for n, city in enumerate(CITIES)]
    model = ScriptedClient([Reply(tuple(calls)), "Sunny in Bonn. I do not know about Atlantis."])
    kept = InMemorySink()
    async with (
        Agent(model, tools=[weather]).engine(clock=clock, new_id=IDS.__next__) as engine,
        Observer(engine, [ConsoleSink(sys.stdout), kept], settle_s=0) as observer,
    ):
        run = await engine.start("How is the weather in Bonn and in Atlantis?")
        await run.result()
        await observer.drain()
    print([span.name for span in kept.spans if span.status == "error"])


CITIES = ("Bonn", "Atlantis")
asyncio.run(main())
