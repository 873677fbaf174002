"""A store that does not answer for a while, and what that must not cost: nothing."""

import asyncio
import signal
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from lib.algorithms import React
from lib.engine import ChildHandler, Engine, LLMHandler, ToolHandler
from lib.engine.handlers.agent_tool import AgentTool
from lib.errors import StoreError
from lib.events import (
    Event,
    EventStore,
    Lease,
    MemoryEventStore,
    NewEvent,
    SQLiteEventStore,
    open_store,
)
from lib.events import kinds as k
from lib.events.verify import verify_store
from lib.llm import FunctionClient, Message, Reply, ScriptedClient, ToolCall
from lib.testing.agents import kinds, make_engine
from lib.testing.clock import ManualClock
from lib.tools import Tool, tool
from servers import postgres
from servers.redis import own_server

CALL = Reply((ToolCall("c1", "pay"),), stop="tool_calls")


class Unsteady(MemoryEventStore):
    """Fails while it is down; what was appended meanwhile may be stored or not."""

    def __init__(self, *, stores: bool, clock: ManualClock | None = None) -> None:
        super().__init__(**({} if clock is None else {"clock": clock}))
        self.down = False
        self.stores = stores
        self.tried = 0

    def fail(self) -> None:
        if self.down:
            self.tried += 1
            raise StoreError("the connection was lost", retryable=True)

    async def append(
        self, run_id: str, events: Sequence[NewEvent], *, expected: int | None
    ) -> list[Event]:
        if self.down and self.stores:
            self.stores = False  # once: what comes again finds it there
            await super().append(run_id, events, expected=expected)
        self.fail()
        return await super().append(run_id, events, expected=expected)

    async def read(self, run_id: str, *, after: int = 0, limit: int | None = None) -> list[Event]:
        self.fail()
        return await super().read(run_id, after=after, limit=limit)

    async def renew(self, lease: Lease, *, ttl_s: float) -> Lease | None:
        self.fail()
        return await super().renew(lease, ttl_s=ttl_s)


async def _until(true: Callable[[], object]) -> None:
    while not true():  # noqa: ASYNC110 - nothing tells
        await asyncio.sleep(0.001)  # noqa: TID251 - lets the run go on


def paying(during: Callable[[], object]) -> tuple[Tool, list[str]]:
    """Return a tool to be called once, and its calls; something happens during each."""
    made: list[str] = []

    @tool(name="pay", effects="once", timeout_s=None)
    async def pay() -> str:
        made.append("paid")
        outcome = during()
        if asyncio.iscoroutine(outcome):
            await outcome
        return "paid"

    return pay, made


@pytest.mark.parametrize("stores", [True, False])
async def test_a_result_outlives_an_outage_and_is_written_once(
    caplog: pytest.LogCaptureFixture, *, stores: bool
) -> None:
    store = Unsteady(stores=stores)
    pay, made = paying(lambda: setattr(store, "down", True))

    client = ScriptedClient([CALL, "done"])
    async with make_engine(client, pay, store=store, poll_s=60) as engine:
        started = await engine.start("go")
        await _until(lambda: store.tried > 1)
        if stores:  # what came after it is not passed over
            note = NewEvent("acme.note", {}, engine.clock.now())
            await MemoryEventStore.append(store, started.id, [note], expected=None)
        store.down = False
        assert (await started.result()).output == "done"
        log = await store.read(started.id)
    written = [kind for kind in kinds(log) if kind != "acme.note"]
    assert written[-5:] == [
        "tool.requested",
        "tool.completed",
        "llm.requested",
        "llm.completed",
        "run.completed",
    ]
    assert made == ["paid"]
    assert caplog.text.count("the store fails, trying again") == 1


async def test_an_outage_is_waited_out_under_any_clock_of_the_store() -> None:
    store = Unsteady(stores=False, clock=ManualClock())  # months behind the engine's
    pay, made = paying(lambda: setattr(store, "down", True))

    client = ScriptedClient([CALL, "done"])
    async with make_engine(client, pay, store=store, poll_s=60) as engine:
        started = await engine.start("go")
        await _until(lambda: store.tried > 1)
        store.down = False
        assert (await started.result()).output == "done"
    assert made == ["paid"]


async def test_no_effect_begins_before_its_intent_is_confirmed_stored() -> None:
    store = Unsteady(stores=True)
    pay, made = paying(lambda: None)

    def think(messages: Sequence[Message]) -> Reply | str:
        store.down = len(messages) == 1
        return CALL if store.down else "done"

    async with make_engine(FunctionClient(think), pay, store=store, poll_s=60) as engine:
        started = await engine.start("go")
        await _until(lambda: store.tried > 1)
        assert k.TOOL_REQUESTED in {e.kind for e in await MemoryEventStore.read(store, started.id)}
        assert made == []
        store.down = False
        assert (await started.result()).output == "done"
        assert kinds(await store.read(started.id)).count("tool.requested") == 1
    assert made == ["paid"]


async def test_an_owner_whose_append_was_stored_before_another_took_over_stops() -> None:
    store = Unsteady(stores=True)
    pay, made = paying(lambda: setattr(store, "down", True))

    async with make_engine(ScriptedClient([CALL, "done"]), pay, store=store) as engine:
        started = await engine.start("go")
        waiting = asyncio.create_task(engine.wait_while_driven(started.id))
        await _until(lambda: store.tried)
        head = len(await MemoryEventStore.read(store, started.id))
        other = NewEvent(k.RUN_RESUMED, {"worker": "other", "epoch": 9}, engine.clock.now())
        await MemoryEventStore.append(store, started.id, [other], expected=head)
        store.down = False
        assert await waiting is None
        assert kinds(await store.read(started.id))[-2:] == ["run.resumed", "lease.lost"]
    assert made == ["paid"]


class Coarse(Unsteady):
    """Keeps whole seconds, as a custom store may."""

    async def append(
        self, run_id: str, events: Sequence[NewEvent], *, expected: int | None
    ) -> list[Event]:
        coarse = [replace(event, at=event.at.replace(microsecond=0)) for event in events]
        return await super().append(run_id, coarse, expected=expected)


async def test_an_intent_is_recognised_in_a_store_that_keeps_whole_seconds() -> None:
    store = Coarse(stores=True)
    pay, made = paying(lambda: None)

    def think(messages: Sequence[Message]) -> Reply | str:
        store.down = len(messages) == 1
        return CALL if store.down else "done"

    async with make_engine(FunctionClient(think), pay, store=store, poll_s=60) as engine:
        started = await engine.start("go")
        await _until(lambda: store.tried > 1)
        store.down = False
        assert (await started.result()).output == "done"
        assert (await verify_store(store)).faults == []
    assert made == ["paid"]


class Forgetful(MemoryEventStore):
    """Lets a first append wait for that of another, and loses claims, as after a fail-over."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock=clock)
        self.held = asyncio.Event()
        self.go_on = asyncio.Event()
        self.appends = 0

    async def append(
        self, run_id: str, events: Sequence[NewEvent], *, expected: int | None
    ) -> list[Event]:
        self.appends += 1
        if self.appends == 2:  # the first after the start
            self.held.set()
            await self.go_on.wait()
        return await super().append(run_id, events, expected=expected)

    async def lose_claim(self, run_id: str, *, count: bool) -> None:
        [info] = [info for info in await self.runs() if info.run_id == run_id]
        assert info.owner is not None
        lease = Lease(run_id=run_id, owner=info.owner, epoch=1, until=info.created_at)
        await self.release(lease)
        if count:
            self._runs[run_id].epoch = 0


@pytest.mark.parametrize("count", [True, False], ids=["counts it the same", "counts on"])
async def test_a_worker_whose_claim_was_lost_does_not_mistake_the_intent_of_another_for_its_own(
    count: bool,
) -> None:
    called = list[str]()

    clock = ManualClock()  # everything happens at the same microsecond
    store, stopped = Forgetful(clock), asyncio.Event()

    def model(name: str) -> FunctionClient:
        async def think(_: Sequence[Message]) -> str:
            called.append(name)
            await stopped.wait()
            return "done"

        return FunctionClient(think)

    async with (
        make_engine(model("first"), store=store, poll_s=60, clock=clock) as first,
        make_engine(model("second"), store=store, poll_s=60, clock=clock) as second,
    ):
        started = await first.start("go")
        await store.held.wait()
        await store.lose_claim(started.id, count=count)
        assert await second.resume(started.id)
        await _until(lambda: "second" in called)
        store.go_on.set()
        await _until(lambda: "first" in called or started.id not in first.hosting)
        stopped.set()
        assert (await second.run(started.id).result()).output == "done"
        intent = next(e for e in await store.read(started.id) if e.kind == k.LLM_REQUESTED)
        assert intent.data["epoch"] == (1 if count else 2)
    assert called == ["second"]


async def test_a_driver_gives_up_when_its_lease_has_ended() -> None:
    clock = ManualClock()
    store = Unsteady(stores=False, clock=clock)
    pay, _ = paying(lambda: setattr(store, "down", True))

    engine = make_engine(ScriptedClient([CALL]), pay, store=store, clock=clock, lease_s=10)
    async with engine:
        started = await engine.start("go")
        waiting = asyncio.create_task(engine.wait_while_driven(started.id))
        await _until(lambda: store.tried and clock.sleepers)
        clock.advance(11)
        with pytest.raises(StoreError, match="connection was lost"):
            await waiting


async def test_a_lease_that_is_never_renewed_ends_the_driving() -> None:
    class Unrenewed(MemoryEventStore):
        async def renew(self, lease: Lease, *, ttl_s: float) -> Lease | None:
            raise StoreError("not renewed", retryable=True)

    pay, _ = await asyncio.to_thread(paying, asyncio.Event().wait)
    engine = make_engine(ScriptedClient([CALL]), pay, store=Unrenewed(), lease_s=0.2)
    async with engine:
        started = await engine.start("go")
        with pytest.raises(StoreError, match="not renewed"):
            await started.result()


async def test_a_log_that_cannot_be_read_does_not_count_as_a_fault_of_its_run() -> None:
    async def unread(run_id: str, **_: object) -> list[Event]:
        raise StoreError("unreadable")

    store = MemoryEventStore()
    starter = make_engine(ScriptedClient([]), store=store, drive=False)
    async with starter, make_engine(ScriptedClient(["done"]), store=store) as engine:
        started = await starter.start("go")
        read, store.read = store.read, unread
        with pytest.raises(StoreError, match="unreadable"):
            await engine.run(started.id).result()
        store.read = read
        assert (await engine.run(started.id).result()).output == "done"
        assert "run.resumed" not in kinds(await store.read(started.id))


async def test_an_engine_that_closes_tries_no_longer_than_its_grace() -> None:
    store = Unsteady(stores=False)
    pay, _ = paying(lambda: setattr(store, "down", True))

    async def main() -> Sequence[str]:
        async with make_engine(
            ScriptedClient([CALL]), pay, store=store, grace_s=0.05, lease_s=3600
        ) as engine:
            started = await engine.start("go")
            await _until(lambda: store.tried)
        store.down = False
        await store.setup()
        return kinds(await store.read(started.id))

    async def bounded() -> Sequence[str]:
        async with asyncio.timeout(200):
            return await main()

    assert (await bounded())[-1] == "tool.requested"


async def test_a_signal_that_wakes_a_run_during_an_outage_does_not_end_its_calls() -> None:
    store = Unsteady(stores=False)
    gate = asyncio.Event()
    pay, made = paying(gate.wait)

    async with make_engine(ScriptedClient([CALL, "done"]), pay, store=store) as engine:
        started = await engine.start("go")
        await _until(lambda: made)
        note = NewEvent("acme.note", {}, engine.clock.now())
        await store.append(started.id, [note], expected=None)
        store.down = True
        await _until(lambda: store.tried)
        store.down = False
        gate.set()
        assert (await started.result()).output == "done"
        assert kinds(await store.read(started.id)).count("run.resumed") == 0


async def test_a_parent_outlives_an_outage_beside_its_child() -> None:
    class Lost(Unsteady):
        async def run(self, run_id: str):  # noqa: ANN202 - as it is
            self.fail()
            return await super().run(run_id)

    store = Lost(stores=False)
    gate = asyncio.Event()
    pay, made = paying(gate.wait)

    def think(messages: Sequence[Message]) -> Reply | str:
        if messages[-1].text == "both":
            return Reply((*CALL.parts, ToolCall("c2", "helper", {"task": "ask"})))
        if messages[-1].text == "ask":
            return Reply((ToolCall("c3", "wait"),))
        return "done"

    @tool(approval=True)
    async def wait() -> str:
        return "waited"

    handlers = [
        LLMHandler(FunctionClient(think)),
        ToolHandler([pay, wait]),
        ChildHandler([AgentTool("helper", "d", "child")]),
    ]
    agents = [React(), React("child", tools=["wait"])]
    async with Engine(store, handlers, algorithms=agents, poll_s=0.01) as engine:
        started = await engine.start("both")
        while not (child := [r for r in await store.runs() if r.parent_id and not r.ready]):  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.001)  # noqa: TID251 - lets it go on
        store.down = True
        await _until(lambda: store.tried > 2)
        store.down = False
        gate.set()
        await engine.run(child[0].run_id).approve("tool/1/c3")
        assert (await started.result()).output == "done"
        assert "run.resumed" not in kinds(await store.read(started.id))
    assert made == ["paid"]


# -- real servers --------------------------------------------------------------------------


async def through_a_restart(
    store: EventStore, stop: Callable[[], object], start: Callable[[], object]
) -> Sequence[Event]:
    """Return the log of a run whose tool was under way when the server went and came back."""
    back = asyncio.Event()

    async def outage() -> None:
        await asyncio.to_thread(stop)
        asyncio.get_running_loop().call_later(0.5, back.set)  # it returns while the server is down

    async def later() -> None:
        await back.wait()
        await asyncio.to_thread(start)

    pay, made = paying(outage)

    async def main() -> Sequence[Event]:
        async with make_engine(ScriptedClient([CALL, "done"]), pay, store=store) as engine:
            returning = asyncio.create_task(later())
            started = await engine.start("go")
            state = await engine.wait_while_driven(started.id)
            await returning
            assert state is not None
            assert state.outcome == "COMPLETED"
            assert made == ["paid"]
            assert (await verify_store(store)).faults == []
            return await store.read(started.id)

    return await main()


def check(log: Sequence[Event]) -> None:
    assert kinds(log).count("tool.completed") == 1
    assert "run.resumed" not in kinds(log)
    [payment] = [event.data for event in log if event.kind == k.TOOL_COMPLETED]
    assert "paid" in str(payment)


async def test_a_call_outlives_a_crash_of_postgresql() -> None:
    server = await asyncio.to_thread(postgres.PostgresServer, durable=True)
    store = open_store(server.url)
    check(await through_a_restart(store, lambda: server.stop("immediate"), server.start))


async def test_a_call_outlives_a_crash_of_redis() -> None:
    server = await asyncio.to_thread(own_server, "--appendfsync", "always")
    store = open_store(server.url)
    try:
        check(await through_a_restart(store, lambda: server.stop(signal.SIGKILL), server.start))
    finally:
        await asyncio.to_thread(server.stop)


class Impatient(SQLiteEventStore):
    _busy_s = 0.05


async def test_a_call_outlives_another_process_locking_the_sqlite_file(
    tmp_path: Path,
) -> None:
    import sqlite3

    other = sqlite3.connect(tmp_path / "log.db", isolation_level=None, check_same_thread=False)
    store = Impatient(tmp_path / "log.db")
    hold, let_go = partial(other.execute, "BEGIN IMMEDIATE"), partial(other.execute, "ROLLBACK")
    check(await through_a_restart(store, hold, let_go))
    other.close()
