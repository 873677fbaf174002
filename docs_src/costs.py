import asyncio
from collections.abc import Sequence
from decimal import Decimal

from lib import Agent, Budget
from lib.events import MemoryEventStore
from lib.llm import FunctionClient, GenAIPrices, Message, Reply, Text, Usage
from lib.observe import TotalSpend, spend_of
from lib.testing.clock import ManualClock

answer = Reply(
    (Text("Bonn has 340,000 inhabitants."),),
    usage=Usage(input_tokens=2_000, output_tokens=150, cache_read_tokens=1_500),
    model="gpt-4o-2024-08-06",
)
local = Reply((Text("About 340,000."),), usage=Usage(output_tokens=8), model="a-model-of-my-own")


def think(messages: Sequence[Message]) -> Reply:
    return local if "roughly" in messages[0].text else answer


async def main() -> None:
    store, clock = MemoryEventStore(), ManualClock()
    agent = Agent(FunctionClient(think), prices=GenAIPrices("openai"))
    async with agent.engine(store, clock=clock) as engine:
        spends: list[TotalSpend] = []
        # The second model has no price: a ceiling of cost could not hold it, one of tokens does.
        for how, budget in (("exactly", Budget(cost=0.50)), ("roughly", Budget(tokens=10_000))):
            run = await agent.start(engine, f"People in Bonn, {how}?", budget=budget)
            result = await run.result()
            spends.append(spend_of(await store.read(run.id)))
            print(result.output, result.spend.cost)

    total = sum(spends, TotalSpend())
    for model, spend in total.models.items():
        print(f"{model}: {spend.tokens} tokens, cost {spend.cost}")
    print(f"known cost {total.total.known_cost}, calls without a price: {total.total.unpriced}")
    assert total.total.known_cost == Decimal("0.004625")


asyncio.run(main())
