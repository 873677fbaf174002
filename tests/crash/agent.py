"""The agent that the crash tests kill: three effect classes, a ledger on disk, a crash plan.

A crash plan names the point at which the process dies: `append:3:before` (the third append of the
process has not reached the store), `append:3:after` (it has, nobody knows yet), `pay:1:before` and
`pay:1:after` (inside the first effect of that tool, on either side of its entry in the ledger).
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from lib._util.clock import SYSTEM_CLOCK
from lib.algorithms import React
from lib.engine import Agent, ChildHandler, Engine, LLMHandler, Result, ToolHandler
from lib.events import Event, NewEvent, SQLiteEventStore
from lib.llm import FunctionClient, Message, Reply, ToolCall, ToolResult
from lib.tools import Tool, ToolContext, tool

ALGORITHMS = [React(), React("helper", system="helper")]
HELPER = Agent("helper", "Pays and books.", "helper")
DIED = 77
"""The exit status of a process that died by its plan."""


@dataclass
class CrashPlan:
    """Dies at one point; `seen` lists the points that were passed."""

    point: str = ""
    seen: list[str] = field(default_factory=list[str])
    counts: Counter[str] = field(default_factory=Counter[str])

    def next(self, what: str) -> str:
        self.counts[what] += 1
        return f"{what}:{self.counts[what]}"

    def pass_by(self, point: str) -> None:
        self.seen.append(point)
        if point == self.point:
            os._exit(DIED)


class CrashingStore(SQLiteEventStore):
    """A store whose process dies beside an append."""

    def __init__(self, path: Path, plan: CrashPlan, *, clock: LaterClock) -> None:
        super().__init__(path, clock=clock, durability="normal")
        self._plan = plan

    async def append(
        self, run_id: str, events: Sequence[NewEvent], *, expected: int | None
    ) -> list[Event]:
        point = self._plan.next("append")
        self._plan.pass_by(f"{point}:before")
        stored = await super().append(run_id, events, expected=expected)
        self._plan.pass_by(f"{point}:after")
        return stored


class LaterClock:
    """A clock that is ahead, so that the leases of dead processes have ended."""

    def __init__(self, hours: int) -> None:
        self._ahead = timedelta(hours=hours)

    def now(self) -> datetime:
        return SYSTEM_CLOCK.now() + self._ahead

    def monotonic(self) -> float:
        return SYSTEM_CLOCK.monotonic()

    async def sleep(self, delay_s: float) -> None:
        await SYSTEM_CLOCK.sleep(delay_s)


def tools(ledger: Path, plan: CrashPlan) -> list[Tool]:
    """Return a tool of each effect class; each writes its key into the ledger."""

    def effect(name: str, key: str) -> str:
        point = plan.next(name)
        plan.pass_by(f"{point}:before")
        with ledger.open("a", encoding="utf-8") as book:
            book.write(f"{name} {key}\n")
        plan.pass_by(f"{point}:after")
        return f"{name} done"

    @tool(effects="once")
    async def pay(context: ToolContext) -> str:
        return effect("pay", context.idempotency_key)

    @tool(effects="idempotent")
    async def book(context: ToolContext) -> str:
        return effect("book", context.idempotency_key)

    @tool(effects="none")
    async def look(context: ToolContext) -> str:
        return effect("look", context.idempotency_key)

    return [pay, book, look]


def think(messages: Sequence[Message]) -> Reply:
    """Do it all, or have it done: see `act` and `delegate`."""
    return delegate(messages) if messages[0].text == "delegate" else act(messages)


def delegate(messages: Sequence[Message]) -> Reply:
    """Let another agent act, and say what it says."""
    results = [p for m in messages for p in m.parts if isinstance(p, ToolResult)]
    if not results:
        return Reply((ToolCall("ask", "helper", {"task": "go"}),), stop="tool_calls")
    return Reply(Message.assistant(results[0].content).parts)


def act(messages: Sequence[Message]) -> Reply:
    """Call all three at once, then pay alone, then say what each call answered.

    A helper pays once, and that is all.
    """
    names = ("pay",) if messages[0].text == "helper" else ("pay", "book", "look")
    results = [p for m in messages for p in m.parts if isinstance(p, ToolResult)]
    if not results:
        calls = [ToolCall(f"{name}-1", name) for name in names]
        return Reply(tuple(calls), stop="tool_calls")
    if len(results) == 3:
        return Reply((ToolCall("pay-2", "pay"),), stop="tool_calls")
    told = [f"{r.call_id}={'unknown' if 'unknown' in r.content else r.content}" for r in results]
    return Reply(Message.assistant(" ".join(told)).parts)


async def drive(folder: Path, plan: CrashPlan, *, attempt: int, order: str) -> Result:
    """Start the run, or go on with it; the same call each time, as a user would make it.

    Args:
        folder: where the logs and the ledger are.
        plan: when to die.
        attempt: how many hours later it is.
        order: "go" or "delegate".
    """
    store = CrashingStore(folder / "runs.db", plan, clock=LaterClock(attempt))
    handlers: list[Any] = [
        LLMHandler(FunctionClient(think)),
        ToolHandler(tools(folder / "ledger", plan)),
        ChildHandler([HELPER]),
    ]
    engine = Engine(store, handlers, algorithms=ALGORITHMS, clock=LaterClock(attempt))
    async with engine:
        run = await engine.start(order, idempotency_key="the-order")
        return await run.result()
