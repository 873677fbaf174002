"""An engine that lacks the algorithm or a handler of a run leaves it to others."""

import pytest

from lib.algorithms import React
from lib.engine import Engine, MissingHandler
from lib.events import MemoryEventStore
from lib.events import kinds as k
from lib.llm import ScriptedClient
from lib.testing.agents import make_engine
from lib.testing.aio import run
from lib.testing.event_store.kit import begin
from lib.tools import tool

from .run_kit import NEVER_ANSWERS, ask


def test_a_run_can_be_decided_on_where_its_algorithm_is_unknown() -> None:
    @tool(approval=True)
    def act() -> str:
        return "acted"

    store = MemoryEventStore()

    async def main() -> str:
        client = ScriptedClient([ask("act")])
        async with make_engine(client, act, store=store, agent=React("shop")) as engine:
            started = await engine.start("go")
            await engine.hosted(started.id)
        async with make_engine(ScriptedClient([]), store=store) as desk:
            await desk.run(started.id).approve("tool/1/c1")
        client = ScriptedClient(["done"])
        async with make_engine(client, act, store=store, agent=React("shop")) as engine:
            return (await engine.run(started.id).result()).output

    assert run(main()) == "done"


def test_a_run_whose_algorithm_this_engine_lacks_is_left_to_others() -> None:
    store = MemoryEventStore()

    async def main() -> None:
        await store.setup()
        await begin(store, "r", algorithm="swarm", input=[])
        async with make_engine(ScriptedClient([]), store=store) as engine:
            assert await engine.recover() == []
            assert (await engine.run("r").info()).owner is None

    run(main())


def test_an_engine_without_the_handler_leaves_the_run_and_says_so() -> None:
    store = MemoryEventStore()

    async def main() -> None:
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

    run(main())
