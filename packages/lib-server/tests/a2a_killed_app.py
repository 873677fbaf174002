"""Two applications that a test kills: `server`, for uvicorn, and a client, the program.

The agent of the server waits for a file; the client's calls it, and prints the answer.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from lib import Agent, Engine, tool
from lib._util.clock import SYSTEM_CLOCK
from lib.a2a import A2AAgent
from lib.llm import FunctionClient, Message, Reply, ToolCall
from lib_server import Server
from lib_server.a2a import A2AConfig

PLACE = Path(os.environ.get("A2A_PLACE", "."))
LEASE_S = 1.5


@tool(effects="none")
async def book(journey: str) -> str:
    """Book a journey, once the file `open` is there."""
    (PLACE / "begun").touch()
    while not (PLACE / "open").exists():
        await SYSTEM_CLOCK.sleep(0.05)
    return f"{journey} is booked"


def books(messages: Sequence[Message]) -> Reply | str:
    if messages[-1].role == "tool":
        return "Seat 42 to Rome is yours."
    return Reply((ToolCall("call-1", "book", {"journey": "Rome"}),))


def calls(messages: Sequence[Message]) -> Reply | str:
    if messages[-1].role == "tool":
        return f"I heard: {messages[-1]}"
    return Reply((ToolCall("call-1", "travel", {"message": "A seat to Rome."}),))


def make_engine() -> Engine:
    agent = Agent(FunctionClient(books), name="travel", tools=[book])
    return Engine(os.environ["A2A_STORE"], agents=[agent], lease_s=LEASE_S)


server = Server(make_engine, a2a=A2AConfig(description="Books journeys."))


async def call(url: str) -> None:
    travel = A2AAgent(url, allow_private_networks=True, effects="idempotent", poll_s=0.1)
    clerk = Agent(FunctionClient(calls), name="clerk", tools=[travel])
    async with Engine(str(PLACE / "client.db"), agents=[clerk], lease_s=LEASE_S) as engine:
        run = await engine.start("To Rome.", agent="clerk", idempotency_key="journey-1")
        sys.stdout.write((await run.result()).text)


if __name__ == "__main__":
    asyncio.run(call(sys.argv[1]))
