"""A run whose process is gone: who takes it up, and what becomes of what was under way."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

import pytest

from lib.algorithms import React
from lib.engine import Call, Engine, LLMHandler, Result, RunAbandoned, ToolHandler
from lib.engine.core.settle import OUTCOME_UNKNOWN, PendingEvent
from lib.engine.core.state import MAX_RESUMES
from lib.errors import StoreError
from lib.events import Event, MemoryEventStore, NewEvent
from lib.events import kinds as k
from lib.llm import FunctionClient, Message, ScriptedClient
from lib.testing.agents import kinds, make_engine
from lib.testing.clock import ManualClock
from lib.testing.event_store.kit import begin
from lib.tools import Tool, tool
from lib.tools.definition import Effects

from .run_kit import NEVER_ANSWERS, NoteBefore, ask, join_results, new, reached


def hanging(effects: Effects) -> tuple[Tool, list[str]]:
    """Return a tool that never ends the first time, and a note of each call."""
    made: list[str] = []

    @tool(name="act", effects=effects)
    async def act() -> str:
        made.append("called")
        if len(made) == 1:
            await asyncio.Event().wait()
        return "acted"

    return act, made


async def interrupt(store: MemoryEventStore, act: Tool) -> str:
    """Start a run, and close the engine while the tool is under way."""
    async with make_engine(ScriptedClient([ask("act")]), act, store=store) as engine:
        started = await engine.start("go")
        await reached(started, k.TOOL_REQUESTED)
        waiting = asyncio.create_task(started.result())
        await asyncio.sleep(0)  # noqa: TID251 - lets the waiter begin to wait
    with pytest.raises(RunAbandoned) as caught:
        await waiting
    assert caught.value.run_id == started.id
    return started.id


@pytest.mark.parametrize(
    ("effects", "answer", "calls"),
    [
        ("none", "acted", 2),
        ("idempotent", "acted", 2),
        ("once", OUTCOME_UNKNOWN, 1),
    ],
)
async def test_the_effect_class_decides_if_an_interrupted_call_is_repeated_or_unknown(
    effects: Effects, answer: str, calls: int
) -> None:
    act, made = hanging(effects)
    store = MemoryEventStore()

    run_id = await interrupt(store, act)
    async with make_engine(ScriptedClient([join_results]), act, store=store) as engine:
        (taken,) = await engine.recover()
        assert taken.id == run_id
        result, log = await taken.result(), await engine.store.read(run_id)

    assert (result.outcome, result.output, len(made)) == ("COMPLETED", answer, calls)
    resumed = [event.data["epoch"] for event in log if event.kind == k.RUN_RESUMED]
    assert resumed == [2]
    keys = [event.data["idempotency_key"] for event in log if event.kind == k.TOOL_REQUESTED]
    assert len(keys) == 1


async def test_an_interrupted_model_call_is_made_again_with_the_same_request() -> None:
    store = MemoryEventStore()
    seen: list[Sequence[Message]] = []

    async def answer(messages: Sequence[Message]) -> str:
        seen.append(messages)
        if len(seen) == 1:
            await asyncio.Event().wait()
        return "answer"

    client = FunctionClient(answer)
    async with make_engine(client, store=store, agent=React(system="s")) as engine:
        started = await engine.start("go")
        await reached(started, k.LLM_REQUESTED)
        await asyncio.sleep(0)  # noqa: TID251 - lets the call begin
    async with make_engine(client, store=store, agent=React(system="another")) as engine:
        await engine.run(started.id).result()
        log = await engine.store.read(started.id)

    assert seen == [(Message.system("s"), Message.user("go"))] * 2
    assert kinds(log).count("llm.requested") == 1


async def test_a_living_owner_keeps_its_run_and_a_dead_one_loses_it() -> None:
    act, made = hanging("none")
    clock = ManualClock()
    store = MemoryEventStore(clock=clock)

    options: dict[str, Any] = {"store": store, "clock": clock, "lease_s": 0.3}
    async with make_engine(ScriptedClient([ask("act")]), act, **options) as first:
        started = await first.start("go")
        await reached(started, k.TOOL_REQUESTED)
        second = make_engine(ScriptedClient([join_results]), act, **options)
        async with second:
            assert await second.resume(started.id) is False
            assert await second.recover() == []
            clock.advance(31)
            assert await second.resume(started.id) is True
            assert (await second.run(started.id).result()).output == "acted"
            await store.setup()

            # The first one still believes in its run: it may finish its call, nothing else.
            assert await first.wait_while_driven(started.id) is None
    assert len(made) == 2


async def test_a_run_without_progress_is_poisoned(caplog: pytest.LogCaptureFixture) -> None:
    store = MemoryEventStore()

    class Deadly(ToolHandler):
        async def handle(self, call: Call) -> Sequence[PendingEvent]:
            raise ZeroDivisionError("a bug in a handler")

    act, _ = hanging("none")

    async def main() -> tuple[Result, list[Event]]:
        handlers = [LLMHandler(ScriptedClient([ask("act")])), Deadly([act])]
        async with Engine(store, handlers, algorithms=[React()], poll_s=0.01) as engine:
            started = await engine.start("go")
            for _ in range(MAX_RESUMES):
                with pytest.raises(ZeroDivisionError):
                    await started.result()
            result = await started.result()
            return result, await engine.store.read(started.id)

    with caplog.at_level(logging.ERROR):
        result, log = await main()

    assert (result.outcome, result.reason) == ("FAILED", "poison")
    assert kinds(log).count("run.resumed") == MAX_RESUMES
    assert kinds(log)[-2:] == ["tool.failed", "run.completed"]


async def test_a_store_that_breaks_stops_the_run_here_and_loses_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Breaking(MemoryEventStore):
        broken = False

        async def append(
            self, run_id: str, events: Sequence[NewEvent], *, expected: int | None
        ) -> list[Event]:
            if self.broken and events[0].kind == k.LLM_COMPLETED:
                raise StoreError("disk full")
            return await super().append(run_id, events, expected=expected)

    async def main() -> str:
        store = Breaking()
        store.broken = True
        async with make_engine(ScriptedClient(["lost"]), store=store) as engine:
            started = await engine.start("go")
            with pytest.raises(StoreError, match="disk full"):
                await started.result()
        store.broken = False
        async with make_engine(ScriptedClient(["kept"]), store=store) as engine:
            return (await engine.run(started.id).result()).output

    with caplog.at_level(logging.ERROR):
        assert (await main()) == "kept"


async def test_a_takeover_appends_after_concurrent_signals() -> None:
    act, _ = hanging("none")
    store = NoteBefore(k.RUN_RESUMED, new("acme.note"))

    async def main() -> Sequence[str]:
        run_id = await interrupt(store, act)
        async with make_engine(ScriptedClient([join_results]), act, store=store) as engine:
            await engine.run(run_id).result()
            return kinds(await store.read(run_id))

    assert (await main())[4:7] == ["acme.note", "run.resumed", "tool.completed"]


async def test_a_request_that_renders_differently_after_a_crash_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = MemoryEventStore()

    async with make_engine(NEVER_ANSWERS, store=store) as engine:
        started = await engine.start("go")
        await reached(started, k.LLM_REQUESTED)
    old = await altered(store, started.id, k.LLM_REQUESTED, digest="of another release")
    async with make_engine(ScriptedClient(["answer"]), store=old) as engine:
        await engine.run(started.id).result()
    assert "llm/1 renders differently now" in caplog.text


async def test_a_request_that_the_algorithm_no_longer_makes_is_settled_as_unknown() -> None:
    act, made = hanging("none")
    store = MemoryEventStore()

    run_id = await interrupt(store, act)
    old = await altered(store, run_id, k.TOOL_REQUESTED, key="tool/of another release")
    async with make_engine(ScriptedClient([join_results]), act, store=old) as engine:
        await engine.run(run_id).result()
        log = await old.read(run_id)

    failed = [event.data for event in log if event.kind == k.TOOL_FAILED]
    assert [(data["key"], data["reason"]) for data in failed] == [
        ("tool/of another release", "unknown")
    ]
    assert len(made) == 2  # the call that the algorithm makes now


async def altered(
    store: MemoryEventStore, run_id: str, kind: str, **data: object
) -> MemoryEventStore:
    """Return a store with the same log, but for the payload of the events of one kind."""
    await store.setup()
    other = MemoryEventStore()
    await other.setup()
    for event in await store.read(run_id):
        payload = {**event.data, **data} if event.kind == kind else event.data
        new = NewEvent(event.kind, payload, event.at)
        await other.append(run_id, [new], expected=event.seq - 1)
    return other


async def test_recovery_takes_up_to_its_limit_and_skips_unknown_algorithms() -> None:
    store = MemoryEventStore()
    await store.setup()
    messages = [{"role": "user", "content": "go"}]
    for name, algorithm in (("foreign", "swarm"), ("a", "react"), ("b", "react")):
        await begin(store, name, algorithm=algorithm, input=messages)
    async with make_engine(ScriptedClient(["1", "2"]), store=store) as engine:
        assert [taken.id for taken in await engine.recover(limit=1)] == ["a"]
        await engine.run("a").result()
        await engine.run("b").result()


async def test_time_without_a_driver_does_not_count_as_spend() -> None:
    clock = ManualClock()
    store = MemoryEventStore(clock=clock)

    async def main() -> float:
        async with make_engine(NEVER_ANSWERS, store=store, clock=clock) as engine:
            started = await engine.start("go")
            await reached(started, k.LLM_REQUESTED)
        clock.advance(86_400)
        await store.setup()
        await store.append(started.id, [NewEvent("acme.note", {}, clock.now())], expected=None)
        async with make_engine(ScriptedClient(["done"]), store=store, clock=clock) as engine:
            return (await engine.run(started.id).result()).spend.seconds

    assert (await main()) == 0.0
