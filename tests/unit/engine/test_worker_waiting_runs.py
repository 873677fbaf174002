"""Runs that wait for a person or for others take no room of a worker, and few looks."""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing

from lib.engine import Turn, Worker
from lib.events import Event, MemoryEventStore, RunInfo
from lib.events import kinds as k
from lib.llm import FunctionClient, Message, Reply, ToolCall
from lib.testing.agents import make_engine
from lib.tools import tool

from .worker_kit import opened, shut, start, think, until, working


@tool(effects="once", approval=True)
async def pay() -> str:
    return "paid"


def answer(messages: Sequence[Message]) -> Reply | str:
    return Reply((ToolCall("c", "pay"),)) if messages[-1].text == "pay" else "done"


async def approval_key(turn: Turn) -> str:
    """Wait for the request of an approval, and return its key."""
    async with aclosing(turn.events()) as events:
        async for event in events:
            if event.kind == k.APPROVAL_REQUESTED:
                return event.data["key"]
    raise AssertionError("no approval was requested")


class Looked(MemoryEventStore):
    """Counts how often it is read."""

    looks = 0

    async def run(self, run_id: str) -> RunInfo | None:
        self.looks += 1
        return await super().run(run_id)

    async def read(self, run_id: str, *, after: int = 0, limit: int | None = None) -> list[Event]:
        self.looks += 1
        return await super().read(run_id, after=after, limit=limit)


async def test_a_run_that_waits_for_approval_takes_no_slot_and_goes_on_after_the_decision() -> None:
    @tool(effects="once", approval=True)
    async def work() -> str:
        return "x"

    store = MemoryEventStore()
    client = FunctionClient(think)
    async with (
        make_engine(client, work, store=store, drive=False) as starter,
        make_engine(client, work, store=store) as engine,
    ):
        runs = await start(starter, 3)
        worker = Worker(engine, max_runs=1, poll_s=0.02)
        async with working(worker):
            for each in runs:
                while not (waiting := await each.pending()):  # noqa: ASYNC110 - nothing tells
                    await asyncio.sleep(0.001)  # noqa: TID251 - lets the worker run
                await each.approve(waiting[0].key)
            for each in runs:
                assert (await each.result()).outcome == "COMPLETED"


async def test_sessions_whose_turns_wait_for_approval_take_no_slot() -> None:
    store, client = MemoryEventStore(), FunctionClient(answer)
    async with (
        make_engine(client, pay, store=store, drive=False) as starter,
        make_engine(client, pay, store=store) as engine,
        working(Worker(engine, max_runs=1, poll_s=0.02)),
        asyncio.timeout(200),
    ):
        turns = [await (await starter.start_session()).send("pay") for _ in range(3)]
        other = await starter.start("hello")
        assert (await other.result()).output == "done"
        for turn in turns:
            await turn.run.approve(await approval_key(turn))
            assert (await turn.result()).output == "done"


async def test_a_worker_that_drains_does_not_wait_for_people() -> None:
    store, client = MemoryEventStore(), FunctionClient(answer)
    async with (
        make_engine(client, pay, store=store, drive=False) as starter,
        make_engine(client, pay, store=store) as engine,
        asyncio.timeout(200),
    ):
        turn = await (await starter.start_session()).send("pay")
        worker = Worker(engine, drain_s=3600)
        async with working(worker) as task:
            await approval_key(turn)
            worker.drain()
            await task


async def test_a_worker_that_drains_lets_the_turn_of_a_session_end() -> None:
    agent = await shut()
    async with opened(agent=agent) as (starter, engine), asyncio.timeout(200):
        turn = await (await starter.start_session()).send("hello")
        worker = Worker(engine, drain_s=3600)
        async with working(worker) as task:
            await until(lambda: agent.at_work)
            worker.drain()
            await asyncio.sleep(0.5)  # noqa: TID251 - it would have ended by now
            assert agent.at_work
            agent.gate.set()
            assert (await turn.result()).output == "done"
            await task


async def test_waiting_runs_do_not_read_at_each_commit_of_another_process() -> None:
    store, client = Looked(), FunctionClient(answer)
    async with (
        make_engine(client, pay, store=store, poll_s=3600) as engine,
        asyncio.timeout(200),
    ):
        turns = [await (await engine.start_session()).send("pay") for _ in range(10)]
        for turn in turns:
            await approval_key(turn)
        before = -1
        while store.looks != before:  # until all of them rest
            before = store.looks
            for _ in range(100):
                await asyncio.sleep(0)  # noqa: TID251 - lets them look
        for _ in range(100):
            store.wakeups.foreign()
            await asyncio.sleep(0.001)  # noqa: TID251 - lets them look
        assert store.looks - before <= 10 * 2 * 3
        for turn in turns:
            await turn.run.approve(await approval_key(turn))
            assert (await turn.result()).output == "done"
