"""Algorithms and handlers that always fail: their runs end, and harm no other run."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from lib.algorithms import React
from lib.engine.core.algorithm import NULL_ALGORITHM, Wait
from lib.engine.core.state import MAX_RESUMES
from lib.errors import StoreError
from lib.events import Event, MemoryEventStore, NewEvent
from lib.events import kinds as k
from lib.events.verify import verify_store
from lib.llm import ScriptedClient
from lib.testing.agents import kinds, make_engine

from .fault_kit import Undecided, until_done, with_helper
from .run_kit import NEVER_ANSWERS, Kept, reached


class Unfolded(React):
    """Fails at every reply of a model."""

    def evolve(self, state: Any, event: Event) -> Any:
        if event.kind == k.LLM_COMPLETED:
            raise ZeroDivisionError("a bug in evolve")
        return super().evolve(state, event)


FAULTY = [Undecided(), Unfolded()]


@pytest.mark.parametrize("agent", FAULTY, ids=["decide", "evolve"])
async def test_a_run_whose_algorithm_always_fails_ends_as_failed(agent: React) -> None:
    store = Kept()
    async with make_engine(ScriptedClient(["hi"]), store=store, agent=agent) as engine:
        started = await engine.start("go")
        result = await until_done(started.result)
        assert (result.outcome, result.reason) == ("FAILED", "poison")
    async with make_engine(ScriptedClient([]), store=store, agent=agent) as engine:
        again = await engine.run(started.id).result()  # from the log, which no algorithm can fold
        assert again == result
        log = await store.read(started.id)
        assert kinds(log).count("run.resumed") == MAX_RESUMES
        assert {"type": "ZeroDivisionError"} in [event.data.get("error") for event in log]
        assert (await verify_store(store)).faults == []


class Unhashed(React):
    """Asks a model for what cannot be hashed."""

    def decide(self, state: Any) -> Any:
        decision: Any = super().decide(state)
        if isinstance(decision, Wait):
            return decision
        return [replace(request, settings={"odd": object()}) for request in decision]


async def test_a_run_whose_open_call_cannot_be_made_again_ends_as_failed() -> None:
    store = Kept()
    async with make_engine(NEVER_ANSWERS, store=store) as engine:
        started = await engine.start("go")
        await reached(started, k.LLM_REQUESTED)
    async with make_engine(ScriptedClient([]), store=store, agent=Unhashed()) as engine:
        result = await until_done(engine.run(started.id).result, fault=TypeError)
    assert (result.outcome, result.reason) == ("FAILED", "poison")


@pytest.mark.parametrize("agent", FAULTY, ids=["decide", "evolve"])
async def test_a_run_whose_algorithm_fails_can_be_cancelled(agent: React) -> None:
    async with make_engine(ScriptedClient(["hi"]), agent=agent) as engine:
        started = await engine.start("go")
        with pytest.raises(ZeroDivisionError):
            await started.result()
        await started.cancel("enough")
        result = await started.result()
    assert (result.outcome, result.reason) == ("CANCELLED", "enough")


async def test_the_faults_of_a_child_do_not_count_for_its_parent_which_reads_how_it_ended() -> None:
    async with with_helper(Undecided("child", tools=[])) as engine:
        started = await engine.start("go")
        result = await until_done(started.result)
        log = await engine.store.read(started.id)
    assert (result.outcome, result.output) == ("COMPLETED", "done without")
    [ended] = [event.data for event in log if event.kind == k.CHILD_COMPLETED]
    assert (ended["outcome"], ended["reason"]) == ("FAILED", "poison")


async def test_a_turn_that_always_fails_leaves_its_session_for_the_next() -> None:
    class Moody(React):
        def decide(self, state: Any) -> Any:
            if self.moody:
                raise ZeroDivisionError("a bug in decide")
            return super().decide(state)

        moody = True

    agent = Moody()
    async with make_engine(ScriptedClient(["hi"]), agent=agent) as engine:
        session = await engine.start_session()
        first = await session.send("one")
        result = await until_done(first.result)
        assert (result.outcome, result.reason) == ("FAILED", "poison")
        agent.moody = False
        assert (await (await session.send("two")).result()).output == "hi"


async def test_a_fault_of_a_parent_beside_its_child_counts() -> None:
    """The handler of children itself breaks, before there is a child."""

    class Unconfigured(React):
        def config(self) -> dict[str, Any]:
            if self.broken:
                raise ZeroDivisionError("a bug in config")
            return super().config()

        broken = False

    child = Unconfigured("child")
    async with with_helper(child) as engine:
        child.broken = True
        started = await engine.start("go")
        with pytest.raises(AssertionError, match="does not end"):
            await until_done(started.result)
        log = await engine.store.read(started.id)
        counted = [event for event in log if "error" in event.data]
        assert len(counted) == MAX_RESUMES
        child.broken = False
        result = await started.result()
    assert (result.outcome, result.reason) == ("FAILED", "poison")


def test_a_fold_without_an_algorithm_requests_nothing() -> None:
    assert (NULL_ALGORITHM.config(), NULL_ALGORITHM.decide(None)) == ({}, Wait())


async def test_the_engine_reports_what_stopped_a_run(caplog: pytest.LogCaptureFixture) -> None:
    class Breaking(MemoryEventStore):
        async def append(
            self, run_id: str, events: Sequence[NewEvent], *, expected: int | None
        ) -> list[Event]:
            if events[0].kind != k.RUN_STARTED:
                raise StoreError("disk full")
            return await super().append(run_id, events, expected=expected)

    async def main() -> None:
        async with make_engine(ScriptedClient([]), store=Breaking()) as engine:
            await engine.start("go")

    with caplog.at_level(logging.ERROR):
        await main()
    assert "stopped here" in caplog.text
