"""Shared by tests of workers: a tool that waits, stores that wait or fail, workers at work."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from lib.engine import Engine, Run, Worker
from lib.errors import StoreError
from lib.events import EventStore, Lease, MemoryEventStore, RunInfo
from lib.llm import FunctionClient, Message, Reply, ToolCall
from lib.testing.agents import make_engine
from lib.tools import tool


class Counting(MemoryEventStore):
    """Counts claims, and fails as often as `failing` says."""

    def __init__(self) -> None:
        super().__init__()
        self.claims = 0
        self.failing = 0

    async def claim(self, owner: str, **named: Any) -> list[Lease]:
        self.claims += 1
        if self.failing:
            self.failing -= 1
            raise StoreError("no connection")
        return await super().claim(owner, **named)


def think(messages: Sequence[Message]) -> Reply | str:
    return Reply((ToolCall("c", "work"),)) if len(messages) == 1 else "done"


class AgentTool:
    """An agent whose tool waits at a gate."""

    def __init__(self, *, is_open: bool = True) -> None:
        self.gate = asyncio.Event()
        self.at_work = self.most = self.done = 0
        if is_open:
            self.gate.set()

        @tool(effects="idempotent", timeout_s=None)
        async def work() -> str:
            self.at_work += 1
            self.most = max(self.most, self.at_work)
            try:
                await self.gate.wait()
            finally:
                self.at_work -= 1
            self.done += 1
            return "x"

        self.work = work

    def engine(self, store: EventStore, **options: Any) -> Engine:
        return make_engine(FunctionClient(think), self.work, store=store, **options)


@asynccontextmanager
async def working(worker: Worker) -> AsyncGenerator[asyncio.Task[None]]:
    task = asyncio.create_task(worker.run())
    try:
        yield task
    finally:
        worker.stop()
        await task


async def until(ready: Callable[[], object]) -> None:
    while not ready():  # noqa: ASYNC110 - nothing tells
        await asyncio.sleep(0.001)  # noqa: TID251 - lets the worker run


@asynccontextmanager
async def opened(
    *, agent: AgentTool | None = None, store: MemoryEventStore | None = None
) -> AsyncGenerator[tuple[Engine, Engine]]:
    """Open an engine that starts runs, and one that drives them, over one store."""
    agent, store = agent or await asyncio.to_thread(AgentTool), store or MemoryEventStore()
    async with agent.engine(store, drive=False) as starter, agent.engine(store) as engine:
        yield starter, engine


async def shut() -> AgentTool:
    """Return an agent whose gate is shut; its tool is looked at in files."""
    return await asyncio.to_thread(AgentTool, is_open=False)


async def start(engine: Engine, count: int) -> list[Run]:
    return [await engine.start(f"go {number}") for number in range(count)]


class Waiting(Counting):
    """Delays or fails reads of one run, and counts them, releases and leases."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.gate.set()
        self.delayed_reads = self.failing_runs = self.releases = self.leased = 0
        self.failing_releases = False
        self.claim_takes_s = 0.0

    async def claim(self, owner: str, **named: Any) -> list[Lease]:
        await asyncio.sleep(self.claim_takes_s)  # noqa: TID251 - as a server on a network
        leases = await super().claim(owner, **named)
        self.leased += len(leases)
        return leases

    async def run(self, run_id: str) -> RunInfo | None:
        self.delayed_reads += not self.gate.is_set()
        await self.gate.wait()
        if self.failing_runs:
            self.failing_runs -= 1
            raise StoreError("no connection")
        return await super().run(run_id)

    async def release(self, lease: Lease, *, idle_at: int | None = None) -> None:
        self.releases += 1
        if self.failing_releases:
            raise StoreError("no connection")
        await super().release(lease, idle_at=idle_at)
