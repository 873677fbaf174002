"""An engine that lacks the algorithm or a handler of a run leaves it to others."""

import asyncio
from typing import Any

import pytest

from lib.algorithms import React
from lib.engine import Engine, LLMHandler, Worker
from lib.engine.core.state import MAX_RESUMES
from lib.errors import MissingHandler, UnknownAlgorithm
from lib.events import MemoryEventStore
from lib.events import kinds as k
from lib.llm import FunctionClient, ScriptedClient
from lib.testing.agents import make_engine
from lib.testing.event_store.kit import begin
from lib.tools import tool

from .run_kit import NEVER_ANSWERS, Kept, add, ask
from .session_kit import Gate


async def test_a_run_can_be_decided_on_where_its_algorithm_is_unknown() -> None:
    @tool(approval=True)
    def act() -> str:
        return "acted"

    store = MemoryEventStore()

    async def main() -> str:
        client = ScriptedClient([ask("act")])
        async with make_engine(client, act, store=store, agent=React("shop")) as engine:
            started = await engine.start("go")
            await engine.wait_while_driven(started.id)
        async with make_engine(ScriptedClient([]), store=store) as desk:
            await desk.run(started.id).approve("tool/1/c1")
        client = ScriptedClient(["done"])
        async with make_engine(client, act, store=store, agent=React("shop")) as engine:
            return (await engine.run(started.id).result()).output

    assert (await main()) == "done"


async def test_a_run_whose_algorithm_this_engine_lacks_is_left_to_others() -> None:
    store = MemoryEventStore()

    await store.setup()
    await begin(store, "r", algorithm="swarm", input=[])
    async with make_engine(ScriptedClient([]), store=store) as engine:
        assert await engine.recover() == []
        assert (await engine.run("r").info()).owner is None


async def test_an_engine_without_the_handler_leaves_the_run_and_logs_why() -> None:
    store = MemoryEventStore()

    async with Engine(store, [], algorithms=[React()]) as engine:
        started = await engine.start("go")
        with pytest.raises(MissingHandler) as undecided:
            await started.result()
    async with make_engine(NEVER_ANSWERS, store=store) as engine:
        async for event in engine.run(started.id).events():
            if event.kind == k.LLM_REQUESTED:
                break
            await engine.resume(started.id)
    async with Engine(store, [], algorithms=[React()]) as engine:
        with pytest.raises(MissingHandler) as unfinished:
            await engine.run(started.id).result()
    assert (undecided.value.what, unfinished.value.what) == ("LLMRequest", k.LLM_REQUESTED)


async def test_an_engine_without_a_handler_does_not_count_against_a_healthy_run() -> None:
    store, gate = Kept(), Gate()
    async with make_engine(FunctionClient(gate.answer), store=store) as engine:
        started = await engine.start("go")
        await gate.called.wait()
    before = await store.read(started.id)
    async with Engine(store, [], algorithms=[React()]) as lacking:
        for _ in range(MAX_RESUMES + 1):
            with pytest.raises(MissingHandler):
                await lacking.run(started.id).result()
    assert await store.read(started.id) == before
    async with make_engine(ScriptedClient(["done"]), store=store) as engine:
        assert (await engine.run(started.id).result()).output == "done"


@pytest.mark.parametrize("begun", [False, True], ids=["requested", "begun"])
async def test_a_session_whose_turns_cannot_run_here_is_left_unchanged(*, begun: bool) -> None:
    store, gate = Kept(), Gate()
    starting = make_engine(
        FunctionClient(gate.answer), store=store, agent=React("shop"), drive=begun
    )
    async with starting as engine:
        session = await engine.start_session()
        turn = await session.send("hi")
        if begun:
            await gate.called.wait()
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
    async with make_engine(ScriptedClient(["done"]), store=store, agent=React("shop")) as engine:
        again = await engine.session(session.id).send("hi", idempotency_key=turn.id)
        assert (await again.result()).output == "done"


async def test_a_missing_part_is_logged_in_one_line_and_other_errors_with_a_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fails(_: object) -> str:
        raise KeyError("a fault of the client")

    async def main(handlers: list[Any], error: type[Exception]) -> None:
        async with Engine(MemoryEventStore(), handlers, algorithms=[React()]) as engine:
            with pytest.raises(error):
                await (await engine.start("hi")).result()

    await main([], MissingHandler)
    (record,) = caplog.records
    assert "stopped here: MissingHandler: run " in record.getMessage()
    assert record.exc_info is None
    caplog.clear()
    await main([LLMHandler(FunctionClient(fails))], KeyError)
    (record,) = caplog.records
    assert record.exc_info is not None


async def test_an_engine_that_drives_nothing_needs_no_tools_and_a_log_may_name_a_removed_one() -> (
    None
):
    store, client = MemoryEventStore(), ScriptedClient(["hello"])

    async def main() -> str:
        async with Engine(store, [], algorithms=[React(tools=["gone"])], drive=False) as desk:
            started = await desk.start("hi")
            async with make_engine(client, add, store=store, agent=React(tools=["add"])) as engine:
                await engine.resume(started.id)
                return (await engine.run(started.id).result()).output

    assert (await main()) == "hello"
    assert client.calls[0].tools == ()
