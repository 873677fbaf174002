import asyncio
import sys

from lib import Agent
from lib.evals import Score
from lib.events import MemoryEventStore
from lib.llm import ScriptedClient
from lib.observe import ConsoleSink, InMemorySink, Observer
from lib.testing.clock import ManualClock

# So that this page shows the same whenever it is run.
clock = ManualClock()
IDS = iter(("a-worker", "support-run"))


async def main() -> None:
    store = MemoryEventStore(clock=clock)
    client = ScriptedClient(["You can return it within 30 days."])
    async with Agent(client).engine(store, clock=clock, new_id=IDS.__next__) as engine:
        run = await engine.start("How long can I return it?")
        result = await run.result()

        # By your code, right away.
        await run.score("names_days", value="30 days" in result.output, signal_id="check-1")

        # By a customer, an hour later; the second click of an impatient one changes nothing.
        clock.advance(3600)
        thumbs = Score(name="helpful", value=0.8, source="human", comment="quick and clear")
        for _ in range(2):
            await engine.score(run.id, thumbs, signal_id="feedback-7")

        kept = InMemorySink()
        async with Observer(engine, [ConsoleSink(sys.stdout), kept], settle_s=0) as observer:
            await observer.export_trace(run.id)

    for span in kept.spans:
        if span.kind == "evaluator":
            print(span.name, span.attributes["gen_ai.evaluation.score.value"])


asyncio.run(main())
