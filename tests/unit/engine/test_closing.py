"""An engine that closes, and a driver that is stopped: nothing is lost, and nothing more begun."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from lib.algorithms import React
from lib.engine import Engine, RunAbandoned
from lib.engine.runtime.deltas import DeltaHub
from lib.engine.runtime.driver import Driver
from lib.errors import StoreError
from lib.events import Event, Lease, MemoryEventStore, NewEvent
from lib.events import kinds as k
from lib.events.wakeups import Wakeups
from lib.llm import ScriptedClient
from lib.testing.agents import kinds, make_engine
from lib.testing.event_store.kit import begin
from lib.tools import tool

from .run_kit import NEVER_ANSWERS, ask, pay, reached, stubborn_until


async def test_a_result_that_comes_while_the_engine_closes_is_kept() -> None:
    store = MemoryEventStore()
    async with make_engine(ScriptedClient([ask("pay")]), pay, store=store) as engine:
        started = await engine.start("go")
        await reached(started, k.TOOL_REQUESTED)
    await store.setup()
    assert kinds(await store.read(started.id))[-2:] == ["tool.requested", "tool.completed"]


async def test_intents_are_not_recorded_once_the_engine_closes() -> None:
    class Closing(MemoryEventStore):
        engine: Engine

        async def append(
            self, run_id: str, events: Sequence[NewEvent], *, expected: int | None
        ) -> list[Event]:
            if events[0].data.get("unstarted"):
                self.closing = asyncio.create_task(self.engine.close())
                await asyncio.sleep(0)  # noqa: TID251 - lets it begin
                await asyncio.sleep(0)  # noqa: TID251 - lets it stop the driver
            return await super().append(run_id, events, expected=expected)

    @tool(approval=True)
    async def act() -> str:
        return "acted"

    store = Closing()
    store.engine = make_engine(ScriptedClient([ask("act")]), act, store=store)
    async with store.engine as engine:
        started = await engine.start("go")
        await engine.wait_while_driven(started.id)
        await started.deny("tool/1/c1")
        with pytest.raises(RunAbandoned):
            await started.result()
    await store.setup()
    assert kinds(await store.read(started.id))[-2:] == ["tool.requested", "tool.failed"]


async def test_nothing_is_taken_up_while_the_engine_closes() -> None:
    class Slow(MemoryEventStore):
        claimed = asyncio.Event()

        async def claim(self, owner: str, **options: Any) -> list[Lease]:
            leases = await super().claim(owner, **options)
            self.claimed.set()
            for _ in range(10):
                await asyncio.sleep(0)  # noqa: TID251 - the engine closes meanwhile
            return leases

    store = Slow()
    engine = make_engine(ScriptedClient([]), store=store)
    async with engine:
        starting = asyncio.create_task(engine.start("go"))
        await store.claimed.wait()
        closing = asyncio.create_task(engine.close())
        started = await starting
        await closing
    await store.setup()
    info = await store.run(started.id)
    assert info is not None
    assert (info.status, info.head) == ("open", 1)


async def test_a_close_that_was_given_up_can_be_waited_for_again() -> None:
    release = asyncio.Event()

    engine = make_engine(ScriptedClient([ask("stubborn")]), stubborn_until(release), grace_s=30.0)
    async with engine:
        started = await engine.start("go")
        await reached(started, k.TOOL_REQUESTED)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await engine.close()
        release.set()
        await engine.close()
        with pytest.raises(StoreError):
            await engine.store.runs()


async def test_an_engine_that_was_never_entered_has_nothing_to_close() -> None:
    await make_engine(ScriptedClient([])).close()


async def test_a_driver_that_is_cancelled_from_outside_gives_its_run_back() -> None:
    async with make_engine(NEVER_ANSWERS) as engine:
        started = await engine.start("go")
        await reached(started, k.LLM_REQUESTED)
        (driving,) = [t for t in asyncio.all_tasks() if t.get_name().startswith("lib.run")]
        driving.cancel()
        await asyncio.wait([driving])
        info = await started.info()
    assert (info.status, info.ready, info.owner) == ("open", True, None)


async def test_a_driver_that_is_stopped_before_it_begins_begins_nothing() -> None:
    client = ScriptedClient([])

    async def main() -> Sequence[str]:
        store = MemoryEventStore()
        async with make_engine(client, store=store) as engine:
            await begin(store, "r", input=[])
            (lease,) = await store.claim("w", ttl_s=60.0, run_id="r")
            hub = DeltaHub(None, Wakeups())
            driver = Driver(engine._equipment, React(), lease, hub)  # pyright: ignore[reportPrivateUsage] - as the engine passes it
            driver.stop()
            with pytest.raises(RunAbandoned):
                await driver.drive()
            return kinds(await store.read("r"))

    assert (await main()) == ["run.started"]


async def test_an_engine_that_closes_at_once_leaves_the_run_to_the_next() -> None:
    store = MemoryEventStore()

    async def main() -> str:
        async with make_engine(NEVER_ANSWERS, store=store) as engine:
            started = await engine.start("go")
        async with make_engine(ScriptedClient(["answer"]), store=store) as engine:
            return (await engine.run(started.id).result()).output

    assert (await main()) == "answer"


async def test_an_engine_may_be_closed_twice() -> None:
    engine = make_engine(ScriptedClient([]))
    async with engine:
        pass
    await engine.close()
