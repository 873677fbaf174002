"""The agent of the test of killed servers: `killed_app:make_engine`.

The first answer stops in its middle for good in a process whose environment has `KILLED_HALTS`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from typing import Any

from lib import Agent, Engine
from lib.llm import Delta, Message, Reply, Text, ToolCall
from lib.tools import tool

LEASE_S = 2


class Writer:
    """A model that writes in pieces, wants a refund, and says what has become of it."""

    model, provider, modalities = "writer", "test", frozenset({"text"})

    async def complete(self, messages: Sequence[Message], **options: Any) -> Reply:
        raise AssertionError("expected a request for a stream")

    async def stream(
        self, messages: Sequence[Message], **options: Any
    ) -> AsyncIterator[Delta | Reply]:
        if messages[-1].role == "tool":
            yield Reply((Text("Order 7 has been refunded."),))
            return
        yield Delta(text="I look into it. ")
        if "KILLED_HALTS" in os.environ:
            await asyncio.Event().wait()
        yield Delta(text="I refund it.")
        words = Text("I look into it. I refund it.")
        yield Reply((words, ToolCall("c1", "refund", {"order": 7})), stop="tool_calls")


@tool(approval=True)
def refund(order: int) -> str:
    """Give the customer the money back."""
    return f"order {order} refunded"


def make_engine() -> Engine:
    """Return an engine over the store that the environment names."""
    model: Any = Writer()
    agent = Agent(model, name="refunder", tools=[refund])
    return Engine(os.environ["KILLED_STORE"], agents=[agent], lease_s=LEASE_S)
