"""The servers and workers of the test of resumed streams: `resume_app:make_engine`.

Each reply of the agent is written in pieces and depends on nothing but its place in the
conversation, so that two attempts write the same.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence
from typing import Any

from lib import Agent, Engine
from lib._util.clock import SYSTEM_CLOCK
from lib.events import EventStore
from lib.llm import Delta, Message, Reply, Text, ToolCall
from lib.tools import tool

LEASE_S = 1.5
PAUSE_S = 0.002
ROUNDS, PIECES = 3, 12


class Writer:
    """A model that streams: some words before each of its calls, and at the end."""

    model, provider, modalities = "writer", "test", frozenset({"text"})

    async def complete(self, messages: Sequence[Message], **options: Any) -> Reply:
        raise AssertionError("expected a request for a stream")

    async def stream(
        self, messages: Sequence[Message], **options: Any
    ) -> AsyncIterator[Delta | Reply]:
        done = sum(message.role == "tool" for message in messages)
        pieces = [f"{messages[0].text} é{done}.{number}\U0001f600 " for number in range(PIECES)]
        for piece in pieces:
            yield Delta(text=piece)
            await SYSTEM_CLOCK.sleep(PAUSE_S)
        text = Text("".join(pieces))
        if done == ROUNDS:
            yield Reply((text,))
        else:
            yield Reply((text, ToolCall(f"c{done}", "step", {"number": done})), stop="tool_calls")


@tool(effects="none")
async def step(number: int) -> int:
    """Take a step."""
    await SYSTEM_CLOCK.sleep(PAUSE_S)
    return number


def make_engine(store: EventStore | None = None) -> Engine:
    """Return an engine over a store, or over the one that the environment names."""
    model: Any = Writer()
    agent = Agent(model, tools=[step], name="writer")
    return Engine(
        store or os.environ["RESUME_STORE"],
        agents=[agent],
        lease_s=LEASE_S,
        drive=os.environ.get("RESUME_DRIVE") != "no",
    )
