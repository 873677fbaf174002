"""Shared by tests of runs: driving one to where it is looked at; models, tools, a store."""

import asyncio
from collections.abc import Sequence
from typing import Any

from lib.engine import Result, Run, Turn
from lib.events import Event, MemoryEventStore, NewEvent
from lib.events import kinds as k
from lib.llm import FunctionClient, LLMClient, Message, Reply, ToolCall, ToolResult
from lib.testing.agents import make_engine
from lib.testing.event_store.kit import AT
from lib.tools import Tool, tool

NEVER_ANSWERS = FunctionClient(lambda _: asyncio.Event().wait())  # pyright: ignore[reportArgumentType] - never answers


def ask(name: str, **arguments: Any) -> Reply:
    """Return a reply that calls one tool."""
    return Reply((ToolCall("c1", name, arguments),), stop="tool_calls")


async def play(client: LLMClient, *tools: Tool, **options: Any) -> tuple[Result, list[Event]]:
    """Drive a run to its end; return how it ended, and its log."""

    async def main() -> tuple[Result, list[Event]]:
        async with make_engine(client, *tools, **options) as engine:
            started = await engine.start("go")
            return await started.result(), await engine.store.read(started.id)

    return await main()


def failures(log: Sequence[Event]) -> list[tuple[str, str]]:
    """Return why calls of tools have failed."""
    return [(e.data["reason"], e.data["code"]) for e in log if e.kind == k.TOOL_FAILED]


def join_results(messages: Sequence[Message]) -> str:
    """Answer with the results of the tools."""
    return "|".join(p.content for m in messages for p in m.parts if isinstance(p, ToolResult))


async def reached(watched: Run | Turn, kind: str) -> None:
    """Wait until a run, or a turn of a session, has an event of that kind."""
    async for event in watched.events():
        if event.kind == kind:
            return


@tool(effects="none")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
async def pay() -> str:
    """Take for ever, and have an effect all the same when it is interrupted."""
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        return "paid"
    return "never"


def stubborn_until(release: asyncio.Event) -> Tool:
    """Return a tool that ignores its cancellation until it is released."""

    @tool
    async def stubborn() -> str:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        return "too late"

    return stubborn


def new(kind: str, **data: object) -> NewEvent:
    return NewEvent(kind, data, AT)


class NoteBefore(MemoryEventStore):
    """A store into which another writer appends just before an append of some kind."""

    def __init__(self, kind: str, note: NewEvent, *, expected: int | None = None) -> None:
        super().__init__()
        self._kind, self._note, self._expected = kind, note, expected
        self.noted = False

    async def append(
        self, run_id: str, events: Sequence[NewEvent], *, expected: int | None
    ) -> list[Event]:
        if events[0].kind == self._kind and not self.noted:
            self.noted = True
            foreign = None if self._expected is None else expected
            await super().append(run_id, [self._note], expected=foreign)
        return await super().append(run_id, events, expected=expected)


class Kept(MemoryEventStore):
    """A store that stays open: the next engine goes on with it."""

    async def close(self) -> None: ...
