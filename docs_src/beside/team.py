from lib import Agent

buyer = Agent("openai:gpt-5-nano", name="buyer", instructions="You know the stock.")
clerk = Agent(
    "openai:gpt-5-mini",
    name="clerk",
    instructions="You help customers.",
    tools=[buyer.as_tool("Knows what is in stock.")],
)
print(clerk.run_sync("Are there 5 lamps?").output)
