from agno.agent import Agent
from agno.models.openai import OpenAIResponses
from agno.team import Team

buyer = Agent(
    name="buyer",
    model=OpenAIResponses(id="gpt-5-nano"),
    role="Knows what is in stock.",
    instructions="You know the stock.",
)
clerk = Team(
    name="clerk",
    model=OpenAIResponses(id="gpt-5-mini"),
    instructions="You help customers.",
    members=[buyer],
)
print(clerk.run("Are there 5 lamps?").content)
