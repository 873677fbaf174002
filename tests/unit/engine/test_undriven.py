"""An engine that starts and watches runs, and leaves the driving to workers."""

import asyncio

import pytest

from lib.engine import Engine, RunAbandoned
from lib.errors import StoreClosed
from lib.events import MemoryEventStore
from lib.llm import ScriptedClient
from lib.testing.agents import make_engine


def watcher(store: MemoryEventStore) -> Engine:
    return make_engine(ScriptedClient([]), store=store, drive=False)


async def test_an_engine_without_drivers_starts_runs_and_waits_for_workers():
    store = MemoryEventStore()

    async with watcher(store) as web:
        started = await web.start("go")
        waiting = asyncio.create_task(started.result())
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(waiting), 0.05)
        info = await started.info()
        assert (info.owner, info.ready) == (None, True)
        async with make_engine(ScriptedClient(["done"]), store=store) as worker:
            assert [taken.id for taken in await worker.recover()] == [started.id]
            assert (await waiting).output == "done"


@pytest.mark.parametrize("what", ["a run", "a turn"])
async def test_waiting_for_a_result_raises_when_the_engine_closes(what: str) -> None:
    async with watcher(MemoryEventStore()) as web:
        session = await web.start_session()
        watched = await web.start("go") if what == "a run" else await session.send("go")
        waiting = asyncio.create_task(watched.result())
        done, _ = await asyncio.wait([waiting], timeout=0.05)
        assert not done
    with pytest.raises(RunAbandoned, match="the engine is closing"):
        await waiting
    with pytest.raises(StoreClosed):
        await watched.result()


async def test_an_engine_without_drivers_resumes_nothing_and_ignores_wake_ups():
    store = MemoryEventStore()

    async with watcher(store) as web:
        started = await web.start("go", idempotency_key="k")
        assert not await web.resume(started.id)
        assert await web.recover() == []
        assert (await web.start("go", idempotency_key="k")).id == started.id
        assert await started.cancel()
        assert (await started.info()).owner is None
