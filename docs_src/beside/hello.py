from lib import Agent

agent = Agent("openai:gpt-5-mini", instructions="You answer in one sentence.")
result = agent.run_sync("What is an append-only log?")
print(result.output)
