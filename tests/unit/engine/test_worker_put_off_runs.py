"""Claimed runs that cannot go on here are put off, and keep no other run waiting."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from lib.algorithms import React
from lib.engine import Engine, LLMHandler, Worker
from lib.events import EventStore, MemoryEventStore
from lib.llm import FunctionClient

from .worker_kit import Counting, Waiting, opened, start, think, until, working

BOTH = [React(), React(name="strange")]


@asynccontextmanager
async def lacking_handlers(store: EventStore) -> AsyncGenerator[tuple[Engine, Engine]]:
    """Open an engine that starts runs, and one that can drive none of them."""
    async with (
        Engine(store, [LLMHandler(FunctionClient(think))], algorithms=BOTH, drive=False) as starter,
        Engine(store, [], algorithms=[React()]) as lacking,
    ):
        yield starter, lacking


def lacked(lines: list[str]) -> int:
    return sum("MissingHandler" in line for line in lines)


@pytest.mark.parametrize("max_failures", [1, 1000])
async def test_a_run_that_cannot_go_on_here_backs_off_and_keeps_no_other_waiting(
    max_failures: int,
) -> None:
    store, lines = Counting(), list[str]()
    async with lacking_handlers(store) as (starter, lacking):
        broken = await start(starter, 3)
        strange = await starter.start("go", algorithm="strange")
        worker = Worker(
            lacking, max_runs=2, poll_s=0.02, report=lines.append, max_failures=max_failures
        )
        async with working(worker):
            await until(lambda: lacked(lines) >= 3)
            claims = store.claims
            await asyncio.sleep(0.2)  # noqa: TID251 - for it to do what it should not
            assert store.claims - claims < 40
        heads = [(await each.info()).head for each in broken]
        assert heads == [1, 1, 1]
        assert (await strange.info()).owner is None
        assert all([(await each.info()).owner is None for each in broken])


@pytest.mark.parametrize("failing", ["run", "run and release"])
async def test_a_claimed_run_that_cannot_be_begun_is_released_if_the_store_answers(
    failing: str,
) -> None:
    store, lines = Waiting(), list[str]()
    async with opened(store=store) as (starter, engine):
        (begun,) = await start(starter, 1)
        async with working(Worker(engine, poll_s=0.01, report=lines.append)):
            store.gate.clear()
            await until(lambda: store.delayed_reads)
            store.failing_runs, store.failing_releases = 1, failing != "run"
            store.gate.set()
            await until(lambda: any("StoreError" in line for line in lines))
            info = await MemoryEventStore.run(store, begun.id)
            assert info is not None
            assert (info.owner is None) == (failing == "run")
            store.failing_releases = False


async def test_leases_of_backed_off_runs_are_released_as_soon_as_the_store_answers() -> None:
    store, lines = Waiting(), list[str]()
    async with lacking_handlers(store) as (starter, lacking):
        await start(starter, 2)
        async with working(Worker(lacking, poll_s=0.02, report=lines.append, max_skipped=1)):
            await until(lambda: lacked(lines) >= 2)
            store.failing_releases = True
            await until(lambda: "the store fails, trying again: no connection" in lines)
            store.failing_releases = False
            await until(lambda: "the store answers again" in lines)


async def test_more_backed_off_runs_than_claims_skip_cost_a_small_part_of_a_store() -> None:
    store, lines = Waiting(), list[str]()
    async with lacking_handlers(store) as (starter, lacking):
        await start(starter, 60)
        store.claim_takes_s = 0.02
        async with working(Worker(lacking, poll_s=0.02, report=lines.append, max_skipped=20)):
            await until(lambda: lacked(lines) >= 60)
            store.leased = store.releases = 0
            await asyncio.sleep(0.5)  # noqa: TID251 - for it to do what it should not
            assert store.leased < 200
            assert store.releases < 200


async def test_hundreds_of_backed_off_runs_do_not_delay_other_runs() -> None:
    store, lines = Waiting(), list[str]()
    handlers = [LLMHandler(FunctionClient(lambda _: "done"))]
    async with (
        Engine(store, handlers, algorithms=BOTH, drive=False) as starter,
        Engine(store, handlers, algorithms=[React()]) as lacking,
        working(Worker(lacking, max_runs=4, poll_s=0.02, report=lines.append)),
    ):
        for _ in range(100):
            await (await starter.start_session("strange")).send("go")
        await until(lambda: sum("UnknownAlgorithm" in line for line in lines) >= 100)
        store.claim_takes_s = 0.04
        async with asyncio.timeout(200):
            assert (await (await starter.start("go")).result()).output == "done"
        for _ in range(2):
            leased, stops = store.leased, len(lines)
            await asyncio.sleep(0.2)  # noqa: TID251 - for it to do what it should not
            assert store.leased - leased <= len(lines) - stops + 4
        store.claim_takes_s = 0.0
