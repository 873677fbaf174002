"""Workers that drain, are stopped or are cancelled leave nothing behind."""

import asyncio

import pytest

from lib.engine import Worker

from .worker_kit import Waiting, opened, shut, start, until, working


async def test_a_worker_that_drains_claims_nothing_more_and_lets_its_runs_end() -> None:
    agent, lines = await shut(), list[str]()
    async with opened(agent=agent) as (starter, engine):
        (first,) = await start(starter, 1)
        worker = Worker(engine, report=lines.append)
        async with working(worker) as task:
            await until(lambda: agent.at_work)
            worker.drain()
            await until(lambda: len(lines) == 2)
            (late,) = await start(starter, 1)
            agent.gate.set()
            await task

        assert (await first.info()).outcome == "COMPLETED"
        assert (await late.info()).head == 1
    assert lines == [
        "working: up to 32 runs of session, react",
        "draining: 1 runs under way",
        "stopped",
    ]


@pytest.mark.parametrize("at_once", [False, True])
async def test_calls_that_outlast_the_grace_are_interrupted_and_another_worker_goes_on_at_once(
    at_once: bool,
) -> None:
    agent, lines = await shut(), list[str]()
    async with opened(agent=agent) as (starter, engine), agent.engine(starter.store) as other:
        (begun,) = await start(starter, 1)
        worker = Worker(engine, drain_s=60 if at_once else 0.01, report=lines.append)
        async with working(worker) as task:
            await until(lambda: agent.at_work)
            worker.drain()
            await until(lambda: len(lines) == 2)
            if at_once:
                worker.stop()
            await task
        assert engine.hosting.algorithms == ["session", "react"]
        assert begun.id not in engine.hosting
        agent.gate.set()
        async with working(Worker(other)):
            assert (await begun.result()).outcome == "COMPLETED"


async def test_a_worker_that_is_stopped_before_it_claims_has_nothing_to_wait_for() -> None:
    async with opened() as (starter, engine):
        worker, lines = Worker(engine), list[str]()
        worker.stop()
        await worker.run()
        (begun,) = await start(starter, 1)
        assert (await begun.info()).head == 1
        assert lines == []


async def test_a_worker_that_is_cancelled_leaves_its_runs_to_the_engine() -> None:
    agent = await shut()
    async with opened(agent=agent) as (starter, engine):
        (begun,) = await start(starter, 1)
        task = asyncio.create_task(Worker(engine).run())
        await until(lambda: agent.at_work)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert begun.id in engine.hosting
        agent.gate.set()
        assert (await begun.result()).outcome == "COMPLETED"


@pytest.mark.parametrize("how", ["stop", "drain"])
async def test_a_run_that_is_claimed_when_its_worker_is_to_end_is_interrupted_too(how: str) -> None:
    agent, store = await shut(), Waiting()
    async with opened(agent=agent, store=store) as (starter, engine):
        (begun,) = await start(starter, 1)
        worker = Worker(engine, drain_s=0.01)
        async with working(worker) as task:
            store.gate.clear()
            await until(lambda: worker.under_way and store.delayed_reads)
            if how == "stop":
                worker.stop()
            else:
                worker.drain()
                await asyncio.sleep(0.05)  # noqa: TID251 - until the drain is over
            assert begun.id not in engine.hosting
            store.gate.set()
            async with asyncio.timeout(200):
                await task
        info = await store.run(begun.id)
        assert info is not None
        assert (info.status, info.owner) == ("open", None)


async def test_a_worker_that_is_cancelled_between_a_claim_and_its_driver_loses_nothing() -> None:
    agent, store = await shut(), Waiting()
    async with opened(agent=agent, store=store) as (starter, engine):
        (begun,) = await start(starter, 1)
        worker = Worker(engine)
        task = asyncio.create_task(worker.run())
        store.gate.clear()
        await until(lambda: store.delayed_reads)
        task.cancel()
        await asyncio.wait([task])
        store.gate.set()
        await until(lambda: begun.id in engine.hosting)
        await until(lambda: not worker.under_way)
        agent.gate.set()
        assert (await begun.result()).outcome == "COMPLETED"


async def test_a_worker_that_is_cancelled_while_it_is_full_leaves_no_task_behind() -> None:
    agent = await shut()
    async with opened(agent=agent) as (starter, engine):
        await start(starter, 1)
        task = asyncio.create_task(Worker(engine, max_runs=1, poll_s=0.01).run())
        await until(lambda: agent.at_work)
        await asyncio.sleep(0.1)  # noqa: TID251 - until it waits for room
        task.cancel()
        await asyncio.wait([task])
        await asyncio.sleep(0.01)  # noqa: TID251 - for what was cancelled to end
        names = [str(task.get_coro()) for task in asyncio.all_tasks()]
        agent.gate.set()
    assert [name for name in names if "Event.wait" in name] == []
