from langchain.agents import create_agent

agent = create_agent("openai:gpt-5-mini", system_prompt="You answer in one sentence.")
question = {"role": "user", "content": "What is an append-only log?"}
result = agent.invoke({"messages": [question]})
print(result["messages"][-1].content)
