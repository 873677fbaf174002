"""The agents that front ends talk to, for tests and for `scripts/front-ends`."""

from __future__ import annotations

from collections.abc import Sequence

from lib import Agent
from lib.llm import FunctionClient, Message, Reply, ToolCall, ToolResult
from lib.tools import tool


@tool
def look_up(order: str) -> str:
    """Look an order up."""
    return f"order {order} was lost"


@tool(approval=True)
def refund(order: str) -> str:
    """Pay an order back."""
    return f"paid back {order}"


def helps(messages: Sequence[Message]) -> Reply | str:
    """Answer at once; look a lost order up and pay it back; paint with a page's tool."""
    texts = [part.content for part in messages[-1].parts if isinstance(part, ToolResult)]
    if not texts:
        if messages[-1].text == "paint it":
            return Reply(parts=(ToolCall("c", "paint", {"colour": "red"}),))
        if "lost" not in messages[-1].text:
            return f"You wrote: {messages[-1].text}"
        call = ToolCall("c", "look_up", {"order": "7"})
        return Reply(parts=(*Message.assistant("One moment.").parts, call))
    if "painted" in texts[0]:
        return "It is painted red."
    if "was lost" in texts[0]:
        return Reply(parts=(ToolCall("c", "refund", {"order": "7"}),))
    return f"Done: {'denied' if 'denied' in texts[0] else 'paid back'}."


def agents() -> list[Agent]:
    """Return the agents."""
    return [Agent(FunctionClient(helps), name="shop", tools=[look_up, refund])]
