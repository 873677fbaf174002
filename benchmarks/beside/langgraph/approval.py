import sys
from pathlib import Path

from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain.tools import tool
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.types import Command


@tool
def refund(order: int) -> str:
    """Give the customer the money back."""
    with Path("refunds.txt").open("a", encoding="utf-8") as ledger:
        ledger.write(f"{order}\n")
    return f"order {order} refunded"


with SqliteSaver.from_conn_string("runs.db") as saver:
    clerk = create_agent(
        "openai:gpt-5-mini",
        tools=[refund],
        system_prompt="You help customers.",
        middleware=[HumanInTheLoopMiddleware(interrupt_on={"refund": True})],
        checkpointer=saver,
    )
    config = {"configurable": {"thread_id": "ticket-1234"}}
    if sys.argv[1] == "ask":
        question = {"role": "user", "content": "Please refund order 7."}
        result = clerk.invoke({"messages": [question]}, config)
        for action in result["__interrupt__"][0].value["action_requests"]:
            print("waits:", action["name"], action["args"])
    else:
        waits = clerk.get_state(config).interrupts
        approve = Command(resume={"decisions": [{"type": "approve"}]})
        result = clerk.invoke(approve if waits else None, config)
        print(result["messages"][-1].content)
