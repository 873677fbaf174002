"""The work of the chaos test: agents that call agents, and tools of each effect class.

`lib worker workload:engine` imports it; the environment says which store and where the world is.
The world is a folder: what an effect has done there is visible to every process and outlives each.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from lib._util.clock import SYSTEM_CLOCK
from lib.algorithms import React
from lib.engine import AgentTool, ChildHandler, Engine, LLMHandler, ToolHandler
from lib.events import Event, open_store
from lib.llm import FunctionClient, Message, Reply, ToolCall, ToolResult
from lib.tools import Tool, ToolContext, tool

GROUPS = ("audit", "billing")
LEASE_S = 1.5
SLOW_S = 0.15
AGENT, HELPER = "agent", "helper"


def tools(world: Path) -> list[Tool]:
    """Return a tool of each effect class, slow enough to die in."""

    @tool(effects="once")
    async def pay(context: ToolContext, bill: int = 1) -> str:
        """Pay, which must not happen twice."""
        await SYSTEM_CLOCK.sleep(SLOW_S)
        note(world / "payments", context.idempotency_key)
        await SYSTEM_CLOCK.sleep(SLOW_S)
        return "paid"

    @tool(effects="idempotent")
    async def book(context: ToolContext) -> str:
        """Book once for each key."""
        await SYSTEM_CLOCK.sleep(SLOW_S)
        note(world / "attempts", context.idempotency_key)
        name = context.idempotency_key.replace("/", "_")
        (world / "bookings" / name).touch()  # the other side knows the key
        await SYSTEM_CLOCK.sleep(SLOW_S)
        return "booked"

    @tool(effects="none")
    async def look() -> str:
        """Look, which changes nothing."""
        await SYSTEM_CLOCK.sleep(SLOW_S)
        return "seen"

    return [pay, book, look]


def note(book: Path, line: str) -> None:
    """Append a line as a whole, beside whatever other processes append."""
    handle = os.open(book, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(handle, f"{line}\n".encode())
    finally:
        os.close(handle)


async def think(messages: Sequence[Message]) -> Reply:
    """Look, pay and book at once; let a helper book, too; then say what became of all."""
    await SYSTEM_CLOCK.sleep(SLOW_S)
    results = [p for m in messages for p in m.parts if isinstance(p, ToolResult)]
    if messages[0].text != "go":
        return answered(results) if results else asks("book", "look")
    if not results:
        return asks("pay", "book", "look")
    if len(results) == 3:
        return Reply((ToolCall("h", HELPER, {"task": "help me"}),), stop="tool_calls")
    if len(results) == 4:
        return Reply((ToolCall("pay", "pay", {"bill": 2}),), stop="tool_calls")
    return answered(results)


def asks(*names: str) -> Reply:
    return Reply(tuple(ToolCall(name, name) for name in names), stop="tool_calls")


def answered(results: Sequence[ToolResult]) -> Reply:
    return Reply(Message.assistant(f"{len(results)} results").parts)


def make(*, drive: bool) -> Engine:
    """Return an engine over the store that the environment names."""
    world = Path(os.environ["CHAOS_WORLD"])
    helper = AgentTool(HELPER, "Books as well.", HELPER)
    return Engine(
        open_store(os.environ["CHAOS_STORE"]),
        [
            LLMHandler(FunctionClient(think)),
            ToolHandler(tools(world)),
            ChildHandler([helper]),
        ],
        algorithms=[
            React(AGENT, tools=["pay", "book", "look", HELPER]),
            React(HELPER, tools=["book", "look"]),
        ],
        lease_s=LEASE_S,
        poll_s=0.2,
        grace_s=1.0,
        drive=drive,
    )


@asynccontextmanager
async def engine() -> AsyncGenerator[Engine]:
    """Yield a worker's engine, whose bus tells two groups of every event."""
    world = Path(os.environ["CHAOS_WORLD"])
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, tell_tasks)
    async with make(drive=True) as running:
        for group in GROUPS:
            await running.bus.subscribe(group, Audit(world / f"seen-{group}-{os.getpid()}"))
        await asyncio.to_thread((world / f"up-{os.getpid()}").touch)
        yield running


def tell_tasks() -> None:
    """Print where every task is: why a worker does not end."""
    for task in asyncio.all_tasks():
        task.print_stack(file=sys.stderr)


class Audit:
    """Writes down which events a group has received."""

    def __init__(self, book: Path) -> None:
        self._book = book

    async def __call__(self, events: list[Event]) -> None:
        note(self._book, "\n".join(f"{event.run_id} {event.seq}" for event in events))
