"""An engine that lacks the algorithm or a handler of a run leaves it to others."""

from lib.algorithms import React
from lib.events import MemoryEventStore
from lib.llm import ScriptedClient
from lib.testing.agents import make_engine
from lib.testing.aio import run
from lib.tools import tool

from .run_kit import ask


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
