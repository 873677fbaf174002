from langchain.agents import create_agent
from langchain.tools import tool

buyer = create_agent("openai:gpt-5-nano", system_prompt="You know the stock.")


@tool
def ask_buyer(task: str) -> str:
    """Knows what is in stock."""
    result = buyer.invoke({"messages": [{"role": "user", "content": task}]})
    return result["messages"][-1].content


clerk = create_agent("openai:gpt-5-mini", tools=[ask_buyer], system_prompt="You help customers.")
question = {"role": "user", "content": "Are there 5 lamps?"}
print(clerk.invoke({"messages": [question]})["messages"][-1].content)
