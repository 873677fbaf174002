from agents import Agent, Runner

agent = Agent(name="agent", model="gpt-5-mini", instructions="You answer in one sentence.")
result = Runner.run_sync(agent, "What is an append-only log?")
print(result.final_output)
