from typing import Literal

from pydantic import BaseModel, Field

from lib import Agent
from lib.llm import ScriptedClient


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

result = Agent(model, output=Ticket).run_sync(
    "My cup from order 7 came broken, I want my money back!"
)
ticket = result.output  # a Ticket, for your type checker as well
print(result.outcome, "after", result.spend.llm_calls, "model calls")
print(ticket.topic, ticket.order, ticket.summary)
