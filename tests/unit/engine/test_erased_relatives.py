"""Tests runs whose parents, children or sessions have been erased."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from fakes.team import boss_of, call, child_of, echo, say, task, team, until
from lib._util.clock import SYSTEM_CLOCK
from lib.algorithms import React
from lib.engine import AgentTool, Budget, Engine
from lib.errors import RunAbandoned, RunNotFound, StoreError
from lib.events import Event, MemoryEventStore, NewEvent, RunQuery
from lib.events import kinds as k
from lib.llm import Message, Reply, ToolCall
from lib.privacy import erase_run, erase_tenant
from lib.testing.agents import make_engine
from lib.testing.providers import KeepingClient, StrictClient
from lib.tools import tool


class Shared(MemoryEventStore):
    """Outlives the engines that use it."""

    async def close(self) -> None:
        pass


class RecordingModel:
    """A model that keeps the messages of its calls."""

    def __init__(self) -> None:
        self.shown: list[list[str]] = []

    def __call__(self, messages: Sequence[Message]) -> str:
        self.shown.append([message.text for message in messages])
        return f"a{len(self.shown)}"


def texts(messages: Sequence[Message]) -> list[str]:
    return [message.text for message in messages]


async def test_an_erased_turn_is_forgotten_by_the_engine_that_has_read_it() -> None:
    model = RecordingModel()
    async with make_engine(StrictClient(model)) as engine:
        session = await engine.start_session(tenant="acme")
        first = await session.send("MARKER")
        await first.result()
        await (await session.send("two")).result()
        assert texts(await session.history()) == ["MARKER", "a1", "two", "a2"]

        erased = await erase_run(engine.store, first.run_id)
        assert texts(await session.history()) == ["two", "a2"]
        await (await session.send("three")).result()
        assert model.shown[-1] == ["two", "a2", "three"]
        assert erased.parent_id == session.id

        await erase_tenant(engine.store, "acme", force=True)
        with pytest.raises(RunNotFound):
            await session.history()
        past = await engine.conversations.upto(session.id, 100)
        assert not past.conversation


class Looker:
    """A model that looks something up in the turn "two", which is optionally held up there.

    Its provider keeps conversations.
    """

    def __init__(self, *, held_up: bool) -> None:
        self.shown: list[list[str]] = []
        self.client = KeepingClient(self._think)
        self.looking, self._held_up = asyncio.Event(), held_up

        @tool(effects="none")
        async def look() -> str:
            held_up, self._held_up = self._held_up, False
            self.looking.set()
            if held_up:
                await asyncio.Event().wait()
            return "seen"

        self._look = look

    def engine(self, store: MemoryEventStore) -> Engine:
        agent = React(provider_state=True)
        return make_engine(self.client, self._look, store=store, agent=agent)

    def _think(self, messages: Sequence[Message]) -> Any:
        self.shown.append(texts(messages))
        if messages[-1].text == "two":
            return Reply((ToolCall("c1", "look", {}),))
        return "ok"


@pytest.mark.parametrize("within", [False, True])
async def test_a_provider_handle_is_dropped_when_its_conversation_was_erased(
    within: bool,
) -> None:
    looker = Looker(held_up=within)

    store = Shared()
    async with looker.engine(store) as engine:
        session = await engine.start_session()
        first = await session.send("MARKER")
        await first.result()
        second = await session.send("two")
        await (looker.looking.wait() if within else second.result())
    async with looker.engine(store) as engine:
        await erase_run(store, first.run_id)
        before = len(looker.shown)
        session = engine.session(session.id)
        results = [await turn.result() for turn in await session.turns()]
        assert [result.outcome for result in results] == ["COMPLETED"] * 2
        for word in ("three", "four"):
            await (await session.send(word)).result()
        assert len(looker.shown) == before + 2 + within
        assert not [one for one in looker.shown[before:] if "MARKER" in one]
        assert looker.client.sent[-1] == 1  # since then everything is held


class Slow(MemoryEventStore):
    """Holds up the start of a child until its gate opens."""

    def __init__(self) -> None:
        super().__init__()
        self.at, self.gate = asyncio.Event(), asyncio.Event()

    async def append(
        self, run_id: str, events: Sequence[NewEvent], *, expected: int | None
    ) -> list[Event]:
        if events[0].kind == k.RUN_STARTED and events[0].data.get("parent"):
            self.at.set()
            await self.gate.wait()
        return await super().append(run_id, events, expected=expected)


@pytest.mark.parametrize("whole", [True, False])
async def test_a_child_that_begins_after_its_parent_was_erased_does_nothing(whole: bool) -> None:
    done: list[int] = []

    @tool(effects="once")
    def pay(n: int) -> str:
        done.append(n)
        return "paid"

    def helper(messages: Sequence[Message]) -> Any:
        if messages[-1].role == "user":
            return call(ToolCall("c1", "pay", {"n": 1}))
        return say("done")

    store = Slow()
    async with team(boss_of(task(0, "MARKER")), helper, pay, store=store) as engine:
        started = await engine.start("go", tenant="acme")
        await store.at.wait()
        if whole:
            assert (await erase_run(store, started.id, force=True)).runs == 1
        else:
            await store.erase(started.id)
        store.gate.set()
        with pytest.raises(RunNotFound):
            await started.result()
        assert await store.runs(RunQuery()) == []
    assert done == []


async def test_a_child_that_begins_after_its_root_was_erased_does_nothing() -> None:
    """Its parent is there: another worker has taken that up, and it is about to go itself."""
    thoughts: list[str] = []

    def helper(messages: Sequence[Message]) -> Any:
        thoughts.append(messages[-1].text)
        return say("done")

    store = MemoryEventStore()
    async with team(boss_of(task(0, "deep")), helper, store=store) as engine:
        await store.erase("root")
        data = {
            "algorithm": "boss",
            "input": [{"role": "user", "content": "go"}],
            "config": {"system": "boss"},
            "parent": {"run_id": "root", "key": "tool/1/c0"},
            "root": "root",
        }
        await store.append("parent", [await engine.event(k.RUN_STARTED, data)], expected=0)
        result = await engine.run("parent").result()

    assert thoughts == []
    assert "FAILED (erased" in result.output


async def test_an_engine_that_is_closed_meanwhile_leaves_no_orphan() -> None:
    class Closing(Shared):
        async def append(
            self, run_id: str, events: Sequence[NewEvent], *, expected: int | None
        ) -> list[Event]:
            appended = await super().append(run_id, events, expected=expected)
            parent = events[0].data.get("parent")
            if parent is not None:
                await self.erase(parent["run_id"])
                closing.append(asyncio.create_task(engine.close()))
                for _ in range(20):
                    await SYSTEM_CLOCK.sleep(0)
            return appended

    closing: list[asyncio.Task[None]] = []
    engine = team(boss_of(task(0, "a")), store=Closing())

    async with engine:
        started = await engine.start("go")
        with pytest.raises((RunNotFound, RunAbandoned)):
            await started.result()
        await asyncio.wait(closing)
        assert await engine.store.runs(RunQuery()) == []


@pytest.mark.parametrize("budget", [None, Budget(tokens=400, cost=2.0, llm_calls=3)])
async def test_an_erased_child_counts_its_whole_grant_as_spent(budget: Budget | None) -> None:
    """Its spend is unknown: its whole grant counts, and none of it is granted again."""
    store = MemoryEventStore()

    agents = [AgentTool("helper", "Helps.", "helper", budget=budget)]
    async with team(boss_of(task(0, "a")), _never, store=store, agents=agents) as engine:
        started = await engine.start("go")
        child = await child_of(store, started.id)
        await until(store, child.run_id, k.LLM_REQUESTED)
    await store.setup()
    await erase_run(store, child.run_id, force=True)
    async with team(boss_of(task(0, "a")), echo, store=store, agents=agents) as engine:
        result = await engine.run(started.id).result()
        ended = await until(store, started.id, k.CHILD_COMPLETED)
        ended = ended.data

    assert (ended["outcome"], ended["reason"]) == ("FAILED", "erased")
    if budget is None:
        assert ended["spend"] == {}
        assert result.spend.tokens == 30
    else:
        assert ended["spend"] == {"tokens": 400, "cost": 2.0, "llm_calls": 3}
        assert (result.spend.tokens, result.spend.llm_calls) == (430, 5)


async def _never(_messages: Sequence[Message]) -> Reply:
    await asyncio.Event().wait()
    return say("never")


async def test_a_child_erased_with_its_root_after_an_unconfirmed_start_leaves_no_orphan() -> None:
    """The erasure of the parent listed its children before this one was stored."""

    class Losing(MemoryEventStore):
        lost = 0

        async def append(
            self, run_id: str, events: Sequence[NewEvent], *, expected: int | None
        ) -> list[Event]:
            appended = await super().append(run_id, events, expected=expected)
            if events[0].data.get("parent") and not self.lost:
                self.lost += 1
                await self.erase(events[0].data["root"])
                raise StoreError("the connection was lost", retryable=True)
            return appended

    store = Losing()
    async with team(boss_of(task(0, "a")), _never, store=store) as engine:
        started = await engine.start("go")
        with pytest.raises(RunNotFound):
            await started.result()
        async with asyncio.timeout(200):
            while await store.runs(RunQuery()):
                await SYSTEM_CLOCK.sleep(0.01)
    assert store.lost == 1
