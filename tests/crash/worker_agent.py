"""The agent that worker processes drive: `lib worker worker_agent:make_engine`.

Called by itself, it is a supervisor: it starts such a process again whenever that is killed.

Its folder is in the environment. The model calls each of three tools, which write who they are and
their keys into a ledger; `wait` then waits for a file, and `die` kills its process.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lib._util.clock import SYSTEM_CLOCK
from lib.algorithms import React
from lib.cli import main
from lib.engine import Engine, LLMHandler, ToolHandler
from lib.events import SQLiteEventStore
from lib.llm import FunctionClient, Message, Reply, ToolCall, ToolResult
from lib.tools import Tool, ToolContext, tool

LEASE_S = float(os.environ.get("WORKER_LEASE_S", "1"))


def folder() -> Path:
    return Path(os.environ["WORKER_FOLDER"])


def think(messages: Sequence[Message]) -> Reply:
    """Make the calls that the user has named, one after the other."""
    calls = messages[0].text.split()
    done = sum(isinstance(part, ToolResult) for message in messages for part in message.parts)
    if done == len(calls):
        return Reply(Message.assistant("done").parts)
    return Reply((ToolCall(f"call-{done}", calls[done]),), stop="tool_calls")


def tools() -> list[Tool]:
    def note(what: str, context: ToolContext) -> str:
        with (folder() / "ledger").open("a", encoding="utf-8") as book:
            book.write(f"{what} {context.idempotency_key} {os.getpid()}\n")
        return what

    @tool(effects="once")
    def once(context: ToolContext) -> str:
        """Happen once."""
        return note("once", context)

    @tool(effects="idempotent")
    def idempotent(context: ToolContext) -> str:
        """Happen once for each key."""
        return note("idempotent", context)

    @tool(effects="none", timeout_s=None)
    async def wait(context: ToolContext) -> str:
        """Wait for a file."""
        note("wait", context)
        while not (folder() / "go").exists():
            await SYSTEM_CLOCK.sleep(0.01)
        return "waited"

    @tool(effects="none")
    def die(context: ToolContext) -> str:
        """Kill this process."""
        note("die", context)
        os.kill(os.getpid(), signal.SIGKILL)
        return "never"

    return [once, idempotent, wait, die]


def open_engine(where: Path, **options: Any) -> Engine:
    """Return an engine over the store in a folder."""
    handlers: list[Any] = [LLMHandler(FunctionClient(think)), ToolHandler(tools())]
    store = SQLiteEventStore(where / "runs.db", durability="normal")
    return Engine(
        store, handlers, algorithms=[React()], lease_s=LEASE_S, poll_s=0.05, grace_s=60, **options
    )


def make_engine() -> Engine:
    """Return the engine of a worker."""
    return open_engine(folder())


async def make_engine_later() -> Engine:
    """Return it from an event loop."""
    await SYSTEM_CLOCK.sleep(0)
    return open_engine(folder())


def supervise() -> None:
    """Fork a worker, and another one whenever it is killed, until one ends well."""
    while True:
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            main(sys.argv[1:])
        signal.signal(signal.SIGTERM, lambda number, _, child=child: os.kill(child, number))
        if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) >= 0:
            return


if __name__ == "__main__":
    supervise()
