"""Guards on calls of agents: run before a child run starts, and never for one that exists."""

import asyncio
from collections.abc import Sequence

import pytest

from fakes.team import child_of, until
from lib.algorithms import React
from lib.engine import AgentTool, ChildHandler, Engine, LLMHandler
from lib.errors import StoreError
from lib.events import Event, MemoryEventStore, NewEvent
from lib.events import kinds as k
from lib.events.verify import verify_store
from lib.guards import GuardContent, Stage, Verdict
from lib.llm import FunctionClient, Message, Reply, ToolCall
from lib.privacy import erase_run


class Fickle:
    """A guard that allows the first calls, and blocks what comes later."""

    name = "fickle"
    stages: frozenset[Stage] = frozenset({"tool_call"})

    def __init__(self, allows: int) -> None:
        self.left, self.calls = allows, 0

    async def check(self, content: GuardContent) -> Verdict:
        self.calls += 1
        return Verdict(allowed=self.calls <= self.left, reason="not now")


class Shared(MemoryEventStore):
    """Outlives engines, and loses the answer to the start of a child if `loses`."""

    loses = False

    async def append(
        self, run_id: str, events: Sequence[NewEvent], *, expected: int | None
    ) -> list[Event]:
        stored = await super().append(run_id, events, expected=expected)
        if self.loses and events[0].data.get("parent"):
            self.loses = False
            raise StoreError("the connection was lost", retryable=True)
        return stored

    async def close(self) -> None:
        pass


def engine_of(store: MemoryEventStore, guard: Fickle, *, hangs: bool = False) -> Engine:
    async def think(messages: Sequence[Message]) -> Reply | str:
        if messages[-1].text == "go":
            return Reply((ToolCall("c1", "helper", {"task": "help"}),))
        if hangs:
            await asyncio.Event().wait()
        return "done"

    handlers = [
        LLMHandler(FunctionClient(think)),
        ChildHandler([AgentTool("helper", "helps", "below")], guards=[guard]),
    ]
    algorithms = [React(tools=["helper"]), React("below", tools=[])]
    return Engine(store, handlers, algorithms=algorithms, poll_s=0.01)


@pytest.mark.parametrize("erased", [False, True])
async def test_a_guard_is_not_run_again_for_a_child_that_it_allowed(
    erased: bool,
) -> None:
    store, guard = Shared(), Fickle(1)
    async with engine_of(store, guard, hangs=True) as engine:
        started = await engine.start("go")
        child = await child_of(store, started.id)
        await until(store, child.run_id, k.LLM_REQUESTED)
    if erased:
        await erase_run(store, child.run_id, force=True)
    async with engine_of(store, guard) as engine:
        await engine.run(started.id).result()
        ended = (await until(store, started.id, k.CHILD_COMPLETED)).data
        rest = await store.run(child.run_id)
    assert guard.calls == 1
    assert ended.get("unstarted") is None
    if erased:
        assert (ended["outcome"], ended["reason"]) == ("FAILED", "erased")
    else:
        assert (ended["outcome"], ended["output"]) == ("COMPLETED", "done")
        assert rest is not None
        assert rest.status == "closed"
        assert (await verify_store(store, deep=True)).faults == []


async def test_a_call_whose_run_was_not_begun_yet_is_checked_again_after_a_crash() -> None:
    store, guard = Shared(), Fickle(0)
    async with engine_of(store, guard) as engine:
        started = await engine.start("go")
        await started.result()
        log = await store.read(started.id)
    (requested_seq,) = [event.seq for event in log if event.kind == k.CHILD_REQUESTED]
    cut = Shared()
    async with engine_of(cut, guard) as engine:
        begun = [NewEvent(e.kind, e.data, e.at, e.tenant, e.user) for e in log[:requested_seq]]
        await cut.append("again", begun, expected=0)
        await engine.run("again").result()
        ended = (await until(cut, "again", k.CHILD_COMPLETED)).data
    assert guard.calls == 2
    assert (ended["outcome"], ended["unstarted"]) == ("BLOCKED", True)


async def test_a_lost_answer_to_the_start_of_a_child_loses_neither_verdict_nor_result() -> None:
    store, guard = Shared(), Fickle(1)
    store.loses = True
    async with engine_of(store, guard) as engine:
        result = await (started := await engine.start("go")).result()
        log = await store.read(started.id)
        runs = await store.runs()
    assert not store.loses
    assert (result.outcome, guard.calls) == ("COMPLETED", 1)
    assert [event.data["verdict"] for event in log if event.kind == k.GUARD_VERDICT] == ["allowed"]
    (done,) = [event.data for event in log if event.kind == k.CHILD_COMPLETED]
    assert (done["outcome"], done["output"]) == ("COMPLETED", "done")
    assert [each.run_id for each in runs] == [started.id, done["run_id"]]
    assert {each.status for each in runs} == {"closed"}
