from agents import Agent, Runner

buyer = Agent(name="buyer", model="gpt-5-nano", instructions="You know the stock.")
clerk = Agent(
    name="clerk",
    model="gpt-5-mini",
    instructions="You help customers.",
    tools=[buyer.as_tool(tool_name="ask_buyer", tool_description="Knows what is in stock.")],
)
print(Runner.run_sync(clerk, "Are there 5 lamps?").final_output)
