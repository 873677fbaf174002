"""A driver holds the lease of its run: it is renewed, and nothing is begun without it."""

import asyncio
from collections.abc import Sequence

import pytest

from lib.errors import StoreError
from lib.events import Event, Lease, MemoryEventStore, NewEvent
from lib.events import kinds as k
from lib.llm import FunctionClient, Message, Reply, ScriptedClient
from lib.testing.agents import kinds, make_engine
from lib.testing.clock import ManualClock
from lib.tools import tool

from .run_kit import NEVER_ANSWERS, Kept, ask, failures, join_results, play


async def test_an_intent_is_recorded_only_under_a_valid_lease() -> None:
    clock = ManualClock()
    store = MemoryEventStore(clock=clock)

    def sleep_through_the_lease(_: Sequence[Message]) -> Reply | str:
        clock.advance(3600)
        return ask("act") if clock.monotonic() == 3600 else "done"

    @tool
    def act() -> str:
        return "acted"

    result, log = await play(FunctionClient(sleep_through_the_lease), act, store=store, clock=clock)

    assert (result.output, failures(log)) == ("done", [])
    assert "run.resumed" not in kinds(log)


async def test_an_engine_does_not_take_over_from_itself() -> None:
    clock = ManualClock()
    release = asyncio.Event()

    async def answer(_: Sequence[Message]) -> str:
        await release.wait()
        return "answer"

    async def main() -> str:
        store = MemoryEventStore(clock=clock)
        async with make_engine(FunctionClient(answer), store=store, clock=clock) as engine:
            started = await engine.start("go")
            clock.advance(3600)
            assert await engine.recover() == []
            release.set()
            return (await started.result()).output

    assert (await main()) == "answer"


async def test_a_failed_renewal_is_retried(caplog: pytest.LogCaptureFixture) -> None:
    class Flaky(MemoryEventStore):
        renewals = 0
        renewed = asyncio.Event()

        async def renew(self, lease: Lease, *, ttl_s: float) -> Lease | None:
            self.renewals += 1
            if self.renewals == 1:
                raise StoreError("try again")
            self.renewed.set()
            return await super().renew(lease, ttl_s=ttl_s)

    clock = ManualClock()
    store = Flaky(clock=clock)

    @tool
    async def long() -> str:
        await store.renewed.wait()
        return "done"

    client = ScriptedClient([ask("long"), "end"])
    result, _ = await play(client, long, store=store, clock=clock, lease_s=0.09)

    assert result.output == "end"
    assert "its lease was not renewed" in caplog.text


async def test_a_lease_that_cannot_be_renewed_ends_the_driving() -> None:
    class Broken(MemoryEventStore):
        async def renew(self, lease: Lease, *, ttl_s: float) -> Lease | None:
            raise StoreError("disk gone")

    clock = ManualClock()

    store = Broken(clock=clock)
    async with make_engine(NEVER_ANSWERS, store=store, clock=clock, lease_s=0.03) as engine:
        started = await engine.start("go")
        clock.advance(1)
        with pytest.raises(StoreError, match="disk gone"):
            await started.result()


async def test_a_lease_that_another_worker_has_taken_ends_the_driving() -> None:
    clock = ManualClock()

    store = MemoryEventStore(clock=clock)
    async with make_engine(NEVER_ANSWERS, store=store, clock=clock, lease_s=0.03) as engine:
        started = await engine.start("go")
        clock.advance(1)
        assert await store.claim("another", ttl_s=60.0, run_id=started.id)
        assert await engine.wait_while_driven(started.id) is None
        assert (await started.info()).owner == "another"


async def test_an_effect_is_not_begun_after_the_lease_has_ended() -> None:
    clock = ManualClock()
    made: list[str] = []

    class SlowStore(MemoryEventStore):
        async def append(
            self, run_id: str, events: Sequence[NewEvent], *, expected: int | None
        ) -> list[Event]:
            stored = await super().append(run_id, events, expected=expected)
            if any(event.kind == k.TOOL_REQUESTED for event in stored) and not made:
                made.append("paused")
                clock.advance(3600)  # the process is stopped here, and continued an hour later
            return stored

    @tool
    async def act() -> str:
        made.append("acted")
        return "acted"

    async def main() -> str:
        store = SlowStore(clock=clock)
        client = ScriptedClient([ask("act"), join_results])
        async with make_engine(client, act, store=store, clock=clock) as engine:
            started = await engine.start("go")
            assert await engine.wait_while_driven(started.id) is None
            return (await started.result()).output

    assert (await main()).startswith("outcome unknown")
    assert made == ["paused"]


async def test_a_lease_is_renewed_for_as_long_as_the_run_is_driven() -> None:
    clock = ManualClock()
    store = MemoryEventStore(clock=clock)
    done = asyncio.Event()

    @tool
    async def long() -> str:
        await done.wait()
        return "done"

    client = ScriptedClient([ask("long"), "end"])
    async with make_engine(client, long, store=store, clock=clock, lease_s=0.03) as engine:
        started = await engine.start("go")
        first = (await started.info()).lease_until
        clock.advance(0.01)
        while (await started.info()).lease_until == first:  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0)  # noqa: TID251 - lets the lease be renewed
        done.set()
        assert (await started.result()).outcome == "COMPLETED"


async def test_a_lease_is_kept_while_the_calls_of_an_engine_that_closes_come_to_an_end() -> None:
    class Renewed(Kept):
        renewed = asyncio.Event()

        async def renew(self, lease: Lease, *, ttl_s: float) -> Lease | None:
            renewed = await super().renew(lease, ttl_s=ttl_s)
            self.renewed.set()
            return renewed

    clock, begun = ManualClock(), asyncio.Event()
    store, held = Renewed(clock=clock), list[bool]()

    @tool(effects="once", timeout_s=None)
    async def pay() -> str:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            for _ in range(5):
                clock.advance(0.05)
                store.renewed.clear()
                await store.renewed.wait()
            [info] = await store.runs()
            held.append(info.lease_until is not None and info.lease_until > clock.now())
        return "paid"

    client = ScriptedClient([ask("pay")])
    engine = make_engine(client, pay, store=store, clock=clock, lease_s=0.1, grace_s=200)

    async with engine:
        started = await engine.start("go")
        await begun.wait()
    assert kinds(await store.read(started.id))[-1] == "tool.completed"
    assert held == [True]
