"""Workers claim runs without an owner, up to their limit, and poll no more than they need."""

import asyncio
from typing import Any

import pytest

from lib.engine import Worker
from lib.errors import RunNotFound, StoreClosed
from lib.events import MemoryEventStore

from .worker_kit import AgentTool, Counting, opened, shut, start, until, working


async def test_a_worker_drives_what_others_start_and_never_more_than_it_may() -> None:
    agent = await shut()
    async with opened(agent=agent) as (starter, engine):
        runs = await start(starter, 7)
        worker = Worker(engine, max_runs=3, poll_s=0.05)
        async with working(worker) as task:
            await until(lambda: agent.at_work == 3)
            assert worker.under_way == 3
            agent.gate.set()
            runs += await start(starter, 5)
            results = [await each.result() for each in runs]
            worker.drain()
            await task

        assert {result.outcome for result in results} == {"COMPLETED"}
        assert (agent.done, agent.most) == (12, 3)


async def test_a_failing_store_is_retried_and_logged_once() -> None:
    store, lines = Counting(), list[str]()
    async with opened(store=store) as (starter, engine):
        store.failing = 4
        async with working(Worker(engine, poll_s=0.01, report=lines.append)):
            await until(lambda: not store.failing)
            (begun,) = await start(starter, 1)
            assert (await begun.result()).outcome == "COMPLETED"
    assert lines[1:3] == [
        "the store fails, trying again: no connection",
        "the store answers again",
    ]


async def test_an_idle_worker_polls_the_store_about_once_every_poll_s() -> None:
    async def main() -> int:
        store = Counting()
        async with opened(store=store) as (_, engine):
            async with working(Worker(engine, poll_s=0.1)):
                await asyncio.sleep(0.5)  # noqa: TID251 - to see how often it asks
                claims = store.claims
                await until(lambda: store.claims > 2)
            return claims

    assert (await main()) <= 8


async def test_a_busy_store_is_not_polled_at_each_append() -> None:
    async def main() -> int:
        store, agent = Counting(), await shut()
        async with opened(store=store, agent=agent) as (starter, engine):
            await start(starter, 1)
            async with working(Worker(engine, poll_s=3600)):
                await until(lambda: agent.at_work)
                before = store.claims
                for _ in range(200):
                    store.wakeups.foreign()
                    await asyncio.sleep(0.001)  # noqa: TID251 - lets the worker run
                return store.claims - before

    assert (await main()) <= 20  # its rests have grown


async def test_leases_that_have_ended_are_taken_over_without_a_wake_up() -> None:
    async with opened() as (starter, engine):
        (begun,) = await start(starter, 1)
        assert len(await engine.store.claim("dead", ttl_s=0.1)) == 1
        async with working(Worker(engine, poll_s=0.02)):
            assert (await begun.result()).outcome == "COMPLETED"


async def test_a_run_that_was_erased_after_its_claim_is_let_go() -> None:
    async with opened() as (starter, engine):
        (begun,) = await start(starter, 1)
        (lease,) = await engine.hosting.claim_some(1)
        await engine.store.erase(begun.id)
        assert await engine.hosting.begin(lease) is False
        with pytest.raises(RunNotFound):
            await begun.info()


async def test_a_worker_of_a_closed_engine_raises() -> None:
    engine = (await shut()).engine(MemoryEventStore())
    with pytest.raises(StoreClosed):
        await Worker(engine).run()


@pytest.mark.parametrize("wrong", [{"max_runs": 0}, {"poll_s": 0}, {"drain_s": -1}])
def test_numbers_out_of_range_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="a worker needs"):
        Worker(AgentTool().engine(MemoryEventStore()), **wrong)


def test_an_engine_that_does_not_drive_makes_no_worker() -> None:
    with pytest.raises(ValueError, match="drives nothing"):
        Worker(AgentTool().engine(MemoryEventStore(), drive=False))
