from pathlib import Path

from lib import Agent, tool
from lib.llm import Reply, ScriptedClient, ToolCall
from lib.tools import DidNotHappen, Happened

LEDGER = Path("refunds.txt")  # stands in for a bank


def was_refunded(order: int) -> Happened | DidNotHappen:
    done = LEDGER.exists() and str(order) in LEDGER.read_text(encoding="utf-8").splitlines()
    return Happened(f"order {order} refunded") if done else DidNotHappen()


@tool(effects="once", check=was_refunded)  # recorded before it happens, never made on a guess
def refund(order: int) -> str:
    """Give the customer the money back."""
    with LEDGER.open("a", encoding="utf-8") as ledger:
        ledger.write(f"{order}\n")
    return f"order {order} refunded"


# Stands in for a model: "openai:gpt-5-mini" is a real one.
model = ScriptedClient([Reply((ToolCall("c1", "refund", {"order": 7}),)), "Done, order 7."])
clerk = Agent(model, name="clerk", instructions="You help customers.", tools=[refund])

# Kill it anywhere, run it again: it goes on.
print(clerk.run_sync("Please refund order 7.", store="runs.db", key="ticket-1234").output)
