from pydantic_ai import Agent

buyer = Agent("openai:gpt-5-nano", instructions="You know the stock.")
clerk = Agent("openai:gpt-5-mini", instructions="You help customers.")


@clerk.tool_plain
async def ask_buyer(task: str) -> str:
    """Knows what is in stock."""
    return (await buyer.run(task)).output


print(clerk.run_sync("Are there 5 lamps?").output)
