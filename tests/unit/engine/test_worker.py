"""Workers: they drive what nobody drives, not more than they should, and leave nothing behind."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest

from lib.algorithms import React
from lib.engine import Engine, LLMHandler, Run, Turn, Worker
from lib.errors import RunNotFound, StoreClosed, StoreError
from lib.events import Event, EventStore, Lease, MemoryEventStore, RunInfo
from lib.events import kinds as k
from lib.llm import FunctionClient, Message, Reply, ToolCall
from lib.testing.agents import make_engine
from lib.testing.aio import run
from lib.tools import tool


class Counting(MemoryEventStore):
    """Counts claims, and fails for as long as it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.claims = 0
        self.failing = 0

    async def claim(
        self,
        owner: str,
        *,
        ttl_s: float,
        run_id: str | None = None,
        limit: int = 1,
        algorithms: Collection[str] | None = None,
        skip: Collection[str] = (),
    ) -> list[Lease]:
        self.claims += 1
        if self.failing:
            self.failing -= 1
            raise StoreError("no connection")
        return await super().claim(
            owner, ttl_s=ttl_s, run_id=run_id, limit=limit, algorithms=algorithms, skip=skip
        )


def think(messages: list[Message]) -> Reply:
    if len(messages) == 1:
        return Reply((ToolCall("c", "work"),), stop="tool_calls")
    return Reply(Message.assistant("done").parts)


class Agent:
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
        client = FunctionClient(lambda messages: think(list(messages)))
        return make_engine(client, self.work, store=store, **options)


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
    *, agent: Agent | None = None, store: MemoryEventStore | None = None
) -> AsyncGenerator[tuple[Engine, Engine]]:
    """Open an engine that starts runs, and one that drives them, over one store."""
    agent, store = agent or await asyncio.to_thread(Agent), store or MemoryEventStore()
    async with agent.engine(store, drive=False) as starter, agent.engine(store) as engine:
        yield starter, engine


async def shut() -> Agent:
    """Return an agent whose gate is shut; its tool is looked at in files."""
    return await asyncio.to_thread(Agent, is_open=False)


async def start(engine: Engine, count: int) -> list[Run]:
    return [await engine.start(f"go {number}") for number in range(count)]


def test_a_worker_drives_what_others_start_and_never_more_than_it_may() -> None:
    async def main() -> None:
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

    run(main())


def test_a_worker_that_drains_claims_nothing_more_and_lets_its_runs_end() -> None:
    async def main() -> list[str]:
        agent, said = await shut(), list[str]()
        async with opened(agent=agent) as (starter, engine):
            (first,) = await start(starter, 1)
            worker = Worker(engine, say=said.append)
            async with working(worker) as task:
                await until(lambda: agent.at_work)
                worker.drain()
                await until(lambda: len(said) == 2)
                (late,) = await start(starter, 1)
                agent.gate.set()
                await task

            assert (await first.info()).outcome == "COMPLETED"
            assert (await late.info()).head == 1
        return said

    assert run(main()) == [
        "working: up to 32 runs of session, react",
        "draining: 1 runs under way",
        "stopped",
    ]


@pytest.mark.parametrize("at_once", [False, True])
def test_what_is_under_way_too_long_is_interrupted_and_another_worker_goes_on_at_once(
    at_once: bool,
) -> None:
    async def main() -> None:
        agent, said = await shut(), list[str]()
        async with opened(agent=agent) as (starter, engine), agent.engine(starter.store) as other:
            (begun,) = await start(starter, 1)
            worker = Worker(engine, drain_s=60 if at_once else 0.01, say=said.append)
            async with working(worker) as task:
                await until(lambda: agent.at_work)
                worker.drain()
                await until(lambda: len(said) == 2)
                if at_once:
                    worker.stop()
                await task
            assert engine.hosting.algorithms == ["session", "react"]
            assert begun.id not in engine.hosting
            agent.gate.set()
            async with working(Worker(other)):
                assert (await begun.result()).outcome == "COMPLETED"

    run(main())


def test_a_worker_that_is_stopped_before_it_claims_has_nothing_to_wait_for() -> None:
    async def main() -> None:
        async with opened() as (starter, engine):
            worker, said = Worker(engine), list[str]()
            worker.stop()
            await worker.run()
            (begun,) = await start(starter, 1)
            assert (await begun.info()).head == 1
            assert said == []

    run(main())


@pytest.mark.parametrize("known", [1, 1000])
def test_a_run_that_cannot_go_on_here_is_put_off_and_keeps_no_other_waiting(
    known: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lib.engine.worker._MANY", known)

    async def main() -> None:
        store, said = Counting(), list[str]()
        client = FunctionClient(lambda messages: think(list(messages)))

        async with (
            Engine(
                store,
                [LLMHandler(client)],
                algorithms=[React(), React(name="strange")],
                drive=False,
            ) as starter,
            Engine(store, [], algorithms=[React()]) as lacking,
        ):
            broken = await start(starter, 3)
            strange = await starter.start("go", algorithm="strange")
            worker = Worker(lacking, max_runs=2, poll_s=0.02, say=said.append)
            async with working(worker):
                await until(lambda: sum("MissingHandler" in line for line in said) == 3)
                claims = store.claims
                await asyncio.sleep(0.2)  # noqa: TID251 - for it to do what it should not
                assert store.claims - claims < 40
            heads = [(await each.info()).head for each in broken]
            assert heads == [1, 1, 1]
            assert (await strange.info()).owner is None
            assert all([(await each.info()).owner is None for each in broken])

    run(main())


def test_a_store_that_fails_is_waited_for_and_that_is_said_once() -> None:
    async def main() -> list[str]:
        store, said = Counting(), list[str]()
        async with opened(store=store) as (starter, engine):
            store.failing = 4
            async with working(Worker(engine, poll_s=0.01, say=said.append)):
                await until(lambda: not store.failing)
                (begun,) = await start(starter, 1)
                assert (await begun.result()).outcome == "COMPLETED"
        return said

    assert run(main())[1:3] == [
        "the store fails, trying again: no connection",
        "the store answers again",
    ]


def test_an_idle_worker_asks_the_store_about_once_every_poll_s() -> None:
    async def main() -> int:
        store = Counting()
        async with opened(store=store) as (_, engine):
            async with working(Worker(engine, poll_s=0.1)):
                await asyncio.sleep(0.5)  # noqa: TID251 - to see how often it asks
            return store.claims

    assert 2 <= run(main()) <= 8


def test_a_busy_store_is_not_asked_at_each_append() -> None:
    async def main() -> int:
        store, agent = Counting(), await shut()
        async with opened(store=store, agent=agent) as (starter, engine):
            await start(starter, 1)
            async with working(Worker(engine, poll_s=0.2)):
                await until(lambda: agent.at_work)
                before = store.claims
                for _ in range(200):
                    store.wakeups.foreign()
                    await asyncio.sleep(0.001)  # noqa: TID251 - lets the worker run
                return store.claims - before

    assert run(main()) <= 8


def test_leases_that_have_ended_are_taken_over_without_a_wake_up() -> None:
    async def main() -> None:
        async with opened() as (starter, engine):
            (begun,) = await start(starter, 1)
            assert len(await engine.store.claim("dead", ttl_s=0.1)) == 1
            async with working(Worker(engine, poll_s=0.02)):
                assert (await begun.result()).outcome == "COMPLETED"

    run(main())


def test_a_run_that_waits_for_a_person_takes_no_room_and_goes_on_when_it_is_told() -> None:
    @tool(effects="once", approval=True)
    async def work() -> str:
        return "x"

    async def main() -> None:
        store = MemoryEventStore()
        client = FunctionClient(lambda messages: think(list(messages)))
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

    run(main())


@tool(effects="once", approval=True)
async def pay() -> str:
    return "paid"


def answer(messages: Sequence[Message]) -> Reply | str:
    return Reply((ToolCall("c", "pay"),)) if messages[-1].text == "pay" else "done"


async def asked(turn: Turn) -> str:
    """Wait until a person is asked about a call, and return its key."""
    async with aclosing(turn.events()) as events:
        async for event in events:
            if event.kind == k.APPROVAL_REQUESTED:
                return event.data["key"]
    raise AssertionError("nobody was asked")


class Looked(MemoryEventStore):
    """Counts how often it is read."""

    looks = 0

    async def run(self, run_id: str) -> RunInfo | None:
        self.looks += 1
        return await super().run(run_id)

    async def read(self, run_id: str, *, after: int = 0, limit: int | None = None) -> list[Event]:
        self.looks += 1
        return await super().read(run_id, after=after, limit=limit)


def test_sessions_whose_turns_wait_for_a_person_take_no_room_either() -> None:
    async def main() -> None:
        store, client = MemoryEventStore(), FunctionClient(answer)
        async with (
            make_engine(client, pay, store=store, drive=False) as starter,
            make_engine(client, pay, store=store) as engine,
            working(Worker(engine, max_runs=1, poll_s=0.02)),
            asyncio.timeout(5),
        ):
            turns = [await (await starter.start_session()).send("pay") for _ in range(3)]
            other = await starter.start("hello")
            assert (await other.result()).output == "done"
            for turn in turns:
                await turn.run.approve(await asked(turn))
                assert (await turn.result()).output == "done"

    run(main())


def test_runs_that_wait_for_others_do_not_look_at_each_commit_of_another_process() -> None:
    async def main() -> None:
        store, client = Looked(), FunctionClient(answer)
        async with (
            make_engine(client, pay, store=store, poll_s=0.2) as engine,
            asyncio.timeout(10),
        ):
            turns = [await (await engine.start_session()).send("pay") for _ in range(10)]
            for turn in turns:
                await asked(turn)
            await asyncio.sleep(0.3)  # noqa: TID251 - until all of them rest
            before = store.looks
            for _ in range(100):
                store.wakeups.foreign()
                await asyncio.sleep(0.001)  # noqa: TID251 - lets them look
            assert store.looks - before <= 10 * 2 * 3
            for turn in turns:
                await turn.run.approve(await asked(turn))
                assert (await turn.result()).output == "done"

    run(main())


def test_a_run_that_was_erased_after_its_claim_is_let_go() -> None:
    async def main() -> None:
        async with opened() as (starter, engine):
            (begun,) = await start(starter, 1)
            (lease,) = await engine.hosting.claim_some(1)
            await engine.store.erase(begun.id)
            assert await engine.hosting.begin(lease) is False
            with pytest.raises(RunNotFound):
                await begun.info()

    run(main())


def test_a_worker_whose_engine_was_left_says_so() -> None:
    async def main() -> None:
        engine = (await shut()).engine(MemoryEventStore())
        with pytest.raises(StoreClosed):
            await Worker(engine).run()

    run(main())


def test_a_worker_that_is_cancelled_leaves_its_runs_to_the_engine() -> None:
    async def main() -> None:
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

    run(main())


@pytest.mark.parametrize("wrong", [{"max_runs": 0}, {"poll_s": 0}, {"drain_s": -1}])
def test_numbers_out_of_range_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="a worker needs"):
        Worker(Agent().engine(MemoryEventStore()), **wrong)


def test_an_engine_that_does_not_drive_makes_no_worker() -> None:
    with pytest.raises(ValueError, match="drives nothing"):
        Worker(Agent().engine(MemoryEventStore(), drive=False))


# -- moments between a claim and its driver ------------------------------------------------------


class Waiting(Counting):
    """Keeps whoever asks for one run waiting, or fails, and counts what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.gate.set()
        self.asked = self.failing_runs = self.releases = self.leased = 0
        self.failing_releases = False
        self.claim_takes_s = 0.0

    async def claim(self, owner: str, **named: Any) -> list[Lease]:
        await asyncio.sleep(self.claim_takes_s)  # noqa: TID251 - as a server on a network
        leases = await super().claim(owner, **named)
        self.leased += len(leases)
        return leases

    async def run(self, run_id: str) -> RunInfo | None:
        self.asked += not self.gate.is_set()
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


@pytest.mark.parametrize("how", ["stop", "drain"])
def test_a_run_that_is_claimed_when_its_worker_is_to_end_is_interrupted_too(how: str) -> None:
    async def main() -> None:
        agent, store = await shut(), Waiting()
        async with opened(agent=agent, store=store) as (starter, engine):
            (begun,) = await start(starter, 1)
            worker = Worker(engine, drain_s=0.01)
            async with working(worker) as task:
                store.gate.clear()
                await until(lambda: worker.under_way and store.asked)
                if how == "stop":
                    worker.stop()
                else:
                    worker.drain()
                    await asyncio.sleep(0.05)  # noqa: TID251 - until the drain is over
                assert begun.id not in engine.hosting
                store.gate.set()
                async with asyncio.timeout(5):
                    await task
            info = await store.run(begun.id)
            assert info is not None
            assert (info.status, info.owner) == ("open", None)

    run(main())


@pytest.mark.parametrize("failing", ["run", "run and release"])
def test_a_claimed_run_that_cannot_be_begun_is_given_back_if_the_store_lets_it(
    failing: str,
) -> None:
    async def main() -> None:
        store, said = Waiting(), list[str]()
        async with opened(store=store) as (starter, engine):
            (begun,) = await start(starter, 1)
            async with working(Worker(engine, poll_s=0.01, say=said.append)):
                store.gate.clear()
                await until(lambda: store.asked)
                store.failing_runs, store.failing_releases = 1, failing != "run"
                store.gate.set()
                await until(lambda: any("StoreError" in line for line in said))
                info = await MemoryEventStore.run(store, begun.id)
                assert info is not None
                assert (info.owner is None) == (failing == "run")
                store.failing_releases = False

    run(main())


def test_leases_of_runs_that_are_put_off_are_given_back_as_soon_as_the_store_lets_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("lib.engine.worker._MOST_SKIPPED", 1)

    async def main() -> None:
        store, said = Waiting(), list[str]()
        client = FunctionClient(lambda messages: think(list(messages)))
        async with (
            Engine(store, [LLMHandler(client)], algorithms=[React()], drive=False) as starter,
            Engine(store, [], algorithms=[React()]) as lacking,
        ):
            await start(starter, 2)
            async with working(Worker(lacking, poll_s=0.02, say=said.append)):
                await until(lambda: sum("MissingHandler" in line for line in said) == 2)
                store.failing_releases = True
                await until(lambda: "the store fails, trying again: no connection" in said)
                store.failing_releases = False
                await until(lambda: "the store answers again" in said)

    run(main())


def test_a_worker_that_is_cancelled_between_a_claim_and_its_driver_loses_nothing() -> None:
    async def main() -> None:
        agent, store = await shut(), Waiting()
        async with opened(agent=agent, store=store) as (starter, engine):
            (begun,) = await start(starter, 1)
            worker = Worker(engine)
            task = asyncio.create_task(worker.run())
            store.gate.clear()
            await until(lambda: store.asked)
            task.cancel()
            await asyncio.wait([task])
            store.gate.set()
            await until(lambda: begun.id in engine.hosting)
            await until(lambda: not worker.under_way)
            agent.gate.set()
            assert (await begun.result()).outcome == "COMPLETED"

    run(main())


def test_a_worker_that_is_cancelled_while_it_is_full_leaves_no_task_behind() -> None:
    async def main() -> list[str]:
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
        return [name for name in names if "Event.wait" in name]

    assert run(main()) == []


def test_more_runs_that_are_put_off_than_claims_pass_over_cost_a_small_part_of_a_store(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("lib.engine.worker._MOST_SKIPPED", 20)

    async def main() -> None:
        store, said = Waiting(), list[str]()
        client = FunctionClient(lambda messages: think(list(messages)))
        async with (
            Engine(store, [LLMHandler(client)], algorithms=[React()], drive=False) as starter,
            Engine(store, [], algorithms=[React()]) as lacking,
        ):
            await start(starter, 60)
            store.claim_takes_s = 0.02
            async with working(Worker(lacking, poll_s=0.02, say=said.append)):
                await until(lambda: sum("MissingHandler" in line for line in said) >= 60)
                store.leased = store.releases = 0
                await asyncio.sleep(0.5)  # noqa: TID251 - for it to do what it should not
                assert store.leased < 200
                assert store.releases < 200

    run(main())


def test_hundreds_of_runs_that_are_put_off_do_not_keep_work_that_can_be_done_waiting() -> None:
    async def main() -> None:
        store, said = Waiting(), list[str]()
        handlers = [LLMHandler(FunctionClient(lambda _: "done"))]
        strange = [React(), React(name="strange")]
        async with (
            Engine(store, handlers, algorithms=strange, drive=False) as starter,
            Engine(store, handlers, algorithms=[React()]) as lacking,
            working(Worker(lacking, max_runs=4, poll_s=0.02, say=said.append)),
        ):
            for _ in range(100):
                await (await starter.start_session("strange")).send("go")
            await until(lambda: sum("UnknownAlgorithm" in line for line in said) >= 100)
            store.claim_takes_s = 0.04
            async with asyncio.timeout(10):
                assert (await (await starter.start("go")).result()).output == "done"
            for _ in range(2):
                leased, stops = store.leased, len(said)
                await asyncio.sleep(0.2)  # noqa: TID251 - for it to do what it should not
                assert store.leased - leased <= len(said) - stops + 4
            store.claim_takes_s = 0.0

    run(main())
