from agno.agent import Agent
from agno.models.openai import OpenAIResponses

agent = Agent(model=OpenAIResponses(id="gpt-5-mini"), instructions="You answer in one sentence.")
result = agent.run("What is an append-only log?")
print(result.content)
