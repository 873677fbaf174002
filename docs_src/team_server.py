from collections.abc import Sequence

from lib import Agent
from lib.llm import FunctionClient, Message, Reply, ToolCall
from lib.tools import tool


@tool(effects="once", approval=True)
def refund(order: int) -> str:
    """Pay an order back."""
    return f"order {order} is paid back"


def think(messages: Sequence[Message]) -> Reply | str:
    """Stand in for a model, so that this page needs no key of a provider."""
    if messages[-1].role == "tool":
        return "Done: the order is paid back."
    return Reply((ToolCall("call-1", "refund", {"order": 7}),))


def agents() -> list[Agent]:
    return [Agent(FunctionClient(think), name="support", tools=[refund])]
