import asyncio
from typing import Literal

from pydantic import BaseModel, Field

from lib.algorithms import React
from lib.llm import ScriptedClient
from lib.testing.agents import make_engine


class Ticket(BaseModel):
    """What a customer wants."""

    topic: Literal["refund", "delivery", "other"]
    order: int = Field(gt=0)
    summary: str


model = ScriptedClient(
    [
        '{"topic": "money back", "order": 7}',  # does not fit: the model reads why, and repairs it
        '{"topic": "refund", "order": 7, "summary": "The cup is broken."}',
    ]
)


async def main() -> None:
    async with make_engine(model, agent=React(output=Ticket)) as engine:
        run = await engine.start("My cup from order 7 came broken, I want my money back!")
        result = await run.result()
        ticket = Ticket.model_validate_json(result.output)
        print(result.outcome, "after", result.spend.llm_calls, "model calls")
        print(ticket.topic, ticket.order, ticket.summary)


asyncio.run(main())
