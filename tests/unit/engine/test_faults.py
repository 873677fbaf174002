"""Algorithms, handlers and redactors that always fail: their runs end, and harm no other run."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from lib.algorithms import React
from lib.engine import ChildHandler, Engine, LLMHandler, Result, ToolHandler, Worker
from lib.engine.core.algorithm import Wait
from lib.engine.core.blind import BLIND
from lib.engine.core.state import MAX_RESUMES
from lib.engine.handlers.child import Agent
from lib.errors import MissingHandler, RedactionFailed, StoreError, UnknownAlgorithm
from lib.events import Event, Lease, MemoryEventStore, NewEvent
from lib.events import kinds as k
from lib.events.verify import verify_store
from lib.llm import FunctionClient, Message, Reply, ScriptedClient, ToolCall
from lib.testing.agents import kinds, make_engine
from lib.testing.aio import run
from lib.tools import tool


class Undecided(React):
    """Fails to decide, always."""

    def decide(self, state: Any) -> Any:
        raise ZeroDivisionError("a bug in decide")


class Unfolded(React):
    """Fails at every reply of a model."""

    def evolve(self, state: Any, event: Event) -> Any:
        if event.kind == k.LLM_COMPLETED:
            raise ZeroDivisionError("a bug in evolve")
        return super().evolve(state, event)


class Kept(MemoryEventStore):
    async def close(self) -> None:
        """Stay open: the next engine goes on with it."""


FAULTY = [Undecided(), Unfolded()]


@pytest.mark.parametrize("agent", FAULTY, ids=["decide", "evolve"])
def test_a_run_whose_algorithm_always_fails_ends_as_failed(agent: React) -> None:
    async def main() -> None:
        store = Kept()
        async with make_engine(ScriptedClient(["hi"]), store=store, agent=agent) as engine:
            started = await engine.start("go")
            result = await until_done(started.result)
            assert (result.outcome, result.reason) == ("FAILED", "poison")
        async with make_engine(ScriptedClient([]), store=store, agent=agent) as engine:
            again = await engine.run(started.id).result()  # from the log, which nobody can fold
            assert again == result
            log = await store.read(started.id)
            assert kinds(log).count("run.resumed") == MAX_RESUMES
            assert {"type": "ZeroDivisionError"} in [event.data.get("error") for event in log]
            assert (await verify_store(store)).faults == []

    run(main())


@pytest.mark.parametrize("agent", FAULTY, ids=["decide", "evolve"])
def test_a_run_whose_algorithm_fails_can_be_cancelled(agent: React) -> None:
    async def main() -> Result:
        async with make_engine(ScriptedClient(["hi"]), agent=agent) as engine:
            started = await engine.start("go")
            with pytest.raises(ZeroDivisionError):
                await started.result()
            await started.cancel("enough")
            return await started.result()

    result = run(main())
    assert (result.outcome, result.reason) == ("CANCELLED", "enough")


def asks_helper(messages: Sequence[Message]) -> Reply | str:
    if len(messages) == 1:
        return Reply((ToolCall("c1", "helper", {"task": "x"}),))
    return "done without"


async def until_done(result: Callable[[], Any]) -> Result:
    for _ in range(3 * MAX_RESUMES):
        try:
            return await result()
        except ZeroDivisionError:
            pass
    raise AssertionError("it does not end")


def test_the_faults_of_a_child_are_its_own_and_its_parent_is_told_how_it_ended() -> None:
    async def main() -> tuple[Result, Sequence[Event]]:
        handlers = [
            LLMHandler(FunctionClient(asks_helper)),
            ChildHandler([Agent("helper", "d", "child")]),
        ]
        agents = [React(tools=["helper"]), Undecided("child", tools=[])]
        async with Engine(MemoryEventStore(), handlers, algorithms=agents, poll_s=0.01) as engine:
            started = await engine.start("go")
            result = await until_done(started.result)
            return result, await engine.store.read(started.id)

    result, log = run(main())
    assert (result.outcome, result.output) == ("COMPLETED", "done without")
    [ended] = [event.data for event in log if event.kind == k.CHILD_COMPLETED]
    assert (ended["outcome"], ended["reason"]) == ("FAILED", "poison")


def test_a_turn_that_always_fails_leaves_its_session_for_the_next() -> None:
    class Moody(React):
        def decide(self, state: Any) -> Any:
            if self.moody:
                raise ZeroDivisionError("a bug in decide")
            return super().decide(state)

        moody = True

    async def main() -> None:
        agent = Moody()
        async with make_engine(ScriptedClient(["hi"]), agent=agent) as engine:
            session = await engine.start_session()
            first = await session.send("one")
            result = await until_done(first.result)
            assert (result.outcome, result.reason) == ("FAILED", "poison")
            agent.moody = False
            assert (await (await session.send("two")).result()).output == "hi"

    run(main())


def test_a_fault_of_a_parent_beside_its_child_counts() -> None:
    """What breaks is the handler of children itself, before there is a child."""

    class Unconfigured(React):
        def config(self) -> dict[str, Any]:
            if self.broken:
                raise ZeroDivisionError("a bug in config")
            return super().config()

        broken = False

    async def main() -> Result:
        child = Unconfigured("child")
        handlers = [
            LLMHandler(FunctionClient(asks_helper)),
            ChildHandler([Agent("helper", "d", "child")]),
        ]
        agents = [React(tools=["helper"]), child]
        async with Engine(MemoryEventStore(), handlers, algorithms=agents, poll_s=0.01) as engine:
            child.broken = True
            started = await engine.start("go")
            with pytest.raises(AssertionError, match="does not end"):
                await until_done(started.result)
            log = await engine.store.read(started.id)
            counted = [event for event in log if "error" in event.data]
            assert len(counted) == MAX_RESUMES
            child.broken = False
            return await started.result()

    result = run(main())
    assert (result.outcome, result.reason) == ("FAILED", "poison")


class Unredacted:
    """Fails at every text."""

    def __init__(self) -> None:
        self.failing = False

    def redact(self, text: str) -> str:
        if self.failing:
            raise ZeroDivisionError("a bug in a redactor")
        return text


@pytest.mark.parametrize("cancel", [False, True])
def test_a_redactor_that_fails_at_every_text_ends_the_run_without_any(*, cancel: bool) -> None:
    redactor = Unredacted()

    @tool
    async def act() -> str:
        redactor.failing = True
        return "acted"

    async def main() -> tuple[Result, Sequence[Event]]:
        client = ScriptedClient([Reply((ToolCall("c1", "act"),))])
        async with make_engine(client, act, redactor=redactor) as engine:
            started = await engine.start("go")
            for _ in range(MAX_RESUMES):
                with pytest.raises(RedactionFailed):
                    await started.result()
                if cancel:
                    redactor.failing = False
                    await started.cancel("stop")
                    redactor.failing = True
            result = await started.result()
            return result, await engine.store.read(started.id)

    result, log = run(main())
    assert result.outcome == "FAILED"
    assert result.error == {"type": "poison", "message": ""}
    assert kinds(log).count("run.resumed") == MAX_RESUMES
    assert kinds(log)[-2:] == ["tool.failed", "run.completed"]


def test_a_poisoned_run_with_a_child_ends_though_nothing_can_be_redacted() -> None:
    redactor = Unredacted()

    @tool(approval=True)
    async def act() -> str:
        return "acted"

    def think(messages: Sequence[Message]) -> Reply | str:
        if messages[0].text == "x":
            return Reply((ToolCall("c2", "act"),))
        return asks_helper(messages)

    async def main() -> Result:
        handlers = [
            LLMHandler(FunctionClient(think)),
            ToolHandler([act]),
            ChildHandler([Agent("helper", "d", "child")]),
        ]
        agents = [React(tools=["helper"]), React("child", tools=["act"])]
        store = MemoryEventStore()
        async with Engine(
            store, handlers, algorithms=agents, poll_s=0.01, redactor=redactor
        ) as engine:
            started = await engine.start("go")
            while not [info for info in await store.runs() if info.parent_id and not info.ready]:  # noqa: ASYNC110 - nothing tells
                await asyncio.sleep(0.001)  # noqa: TID251 - lets it go on
            await started.cancel("stop")
            redactor.failing = True
            for _ in range(3 * MAX_RESUMES):
                try:
                    return await started.result()
                except RedactionFailed:
                    pass
            raise AssertionError("it does not end")

    assert run(main()).outcome == "FAILED"


def test_a_child_that_cannot_be_started_for_want_of_redaction_fails_its_parent() -> None:
    redactor = Unredacted()

    class Noticing(MemoryEventStore):
        async def append(
            self, run_id: str, events: Sequence[NewEvent], *, expected: int | None
        ) -> list[Event]:
            stored = await super().append(run_id, events, expected=expected)
            redactor.failing = any(event.kind == k.CHILD_REQUESTED for event in events)
            return stored

    async def main() -> Sequence[Event]:
        handlers = [
            LLMHandler(FunctionClient(asks_helper)),
            ChildHandler([Agent("helper", "d", "child")]),
        ]
        agents = [React(tools=["helper"]), React("child", tools=[])]
        async with Engine(Noticing(), handlers, algorithms=agents, redactor=redactor) as engine:
            started = await engine.start("go")
            with pytest.raises(RedactionFailed):
                await started.result()
            return await engine.store.read(started.id)

    log = run(main())
    assert log[-1].data["error"] == {"type": "RedactionFailed"}


def test_a_failure_is_counted_though_a_signal_comes_first() -> None:
    class Signalled(MemoryEventStore):
        signalled = False

        async def append(
            self, run_id: str, events: Sequence[NewEvent], *, expected: int | None
        ) -> list[Event]:
            if events[0].kind == k.RUN_RESUMED and not self.signalled:
                self.signalled = True
                note = NewEvent("acme.note", {}, events[0].at)
                await super().append(run_id, [note], expected=None)
            return await super().append(run_id, events, expected=expected)

    async def main() -> Sequence[str]:
        store = Signalled()
        async with make_engine(ScriptedClient([]), store=store, agent=Undecided()) as engine:
            started = await engine.start("go")
            with pytest.raises(ZeroDivisionError):
                await started.result()
            return kinds(await store.read(started.id))

    assert run(main())[:3] == ["run.started", "acme.note", "run.resumed"]


def test_a_fold_without_an_algorithm_asks_for_nothing() -> None:
    assert (BLIND.config(), BLIND.decide(None)) == ({}, Wait())


# -- engines that lack something -----------------------------------------------------------


def test_an_engine_without_a_handler_does_not_count_against_a_healthy_run() -> None:
    async def main() -> None:
        store, asked = Kept(), asyncio.Event()

        async def hang(_: Sequence[Message]) -> str:
            asked.set()
            await asyncio.Event().wait()
            return "never"

        async with make_engine(FunctionClient(hang), store=store) as engine:
            started = await engine.start("go")
            await asked.wait()
        before = await store.read(started.id)
        async with Engine(store, [], algorithms=[React()]) as lacking:
            for _ in range(MAX_RESUMES + 1):
                with pytest.raises(MissingHandler):
                    await lacking.run(started.id).result()
        assert await store.read(started.id) == before
        async with make_engine(ScriptedClient(["done"]), store=store) as engine:
            assert (await engine.run(started.id).result()).output == "done"

    run(main())


@pytest.mark.parametrize("begun", [False, True], ids=["asked", "begun"])
def test_a_session_whose_turns_go_on_by_what_is_not_here_is_left_as_it_is(*, begun: bool) -> None:
    async def main() -> None:
        store, asked = Kept(), asyncio.Event()

        async def hang(_: Sequence[Message]) -> str:
            asked.set()
            await asyncio.Event().wait()
            return "never"

        starting = make_engine(FunctionClient(hang), store=store, agent=React("shop"), drive=begun)
        async with starting as engine:
            session = await engine.start_session()
            turn = await session.send("hi")
            if begun:
                await asked.wait()
        before = await store.read(session.id)
        async with make_engine(ScriptedClient([]), store=store) as other:
            worker = Worker(other, poll_s=0.02)
            working = asyncio.create_task(worker.run())
            for _ in range(3):
                with pytest.raises(UnknownAlgorithm):
                    await other.session(session.id).run.result()
            worker.stop()
            await working
        assert await store.read(session.id) == before
        async with make_engine(
            ScriptedClient(["done"]), store=store, agent=React("shop")
        ) as engine:
            again = await engine.session(session.id).send("hi", idempotency_key=turn.id)
            assert (await again.result()).output == "done"

    run(main())


def test_a_lease_is_kept_while_the_calls_of_an_engine_that_closes_come_to_an_end() -> None:
    class Noted(Kept):
        renewals = 0

        async def renew(self, lease: Lease, *, ttl_s: float) -> Lease | None:
            self.renewals += 1
            return await super().renew(lease, ttl_s=ttl_s)

    store, begun = Noted(), asyncio.Event()
    held: list[bool] = []

    @tool(effects="once", timeout_s=None)
    async def pay() -> str:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0.3)  # noqa: TID251 - longer than the lease
            [info] = await store.runs()
            held.append(info.lease_until is not None and info.lease_until > engine.clock.now())
        return "paid"

    engine = make_engine(
        ScriptedClient([Reply((ToolCall("c1", "pay"),))]), pay, store=store, lease_s=0.1, grace_s=5
    )

    async def main() -> Sequence[str]:
        async with engine:
            started = await engine.start("go")
            await begun.wait()
        return kinds(await store.read(started.id))

    assert run(main())[-1] == "tool.completed"
    assert held == [True]


def test_what_an_engine_lacks_is_logged_in_a_line_and_what_others_raise_with_its_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fails(_: object) -> str:
        raise KeyError("a fault of the client")

    async def main(handlers: list[Any], error: type[Exception]) -> None:
        async with Engine(MemoryEventStore(), handlers, algorithms=[React()]) as engine:
            with pytest.raises(error):
                await (await engine.start("hi")).result()

    run(main([], MissingHandler))
    (told,) = caplog.records
    assert "stopped here: MissingHandler: run " in told.getMessage()
    assert told.exc_info is None
    caplog.clear()
    run(main([LLMHandler(FunctionClient(fails))], KeyError))
    (told,) = caplog.records
    assert told.exc_info is not None


def test_the_engine_says_what_stopped_a_run(caplog: pytest.LogCaptureFixture) -> None:
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
        run(main())
    assert "stopped here" in caplog.text
