"""A run that slow workers take from one another again and again is no poison: they all live."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack

from lib.engine import Engine
from lib.engine.core.state import MAX_RESUMES
from lib.events import kinds as k
from lib.llm import FunctionClient, Message, Reply
from lib.testing.agents import make_engine
from lib.testing.clock import ManualClock
from lib.tools import tool

from .run_kit import Kept, ask


async def test_a_run_that_slow_workers_lose_more_often_than_poison_allows_is_completed() -> None:
    clock = ManualClock()
    gates: list[asyncio.Event] = []
    slow = MAX_RESUMES + 2

    @tool(effects="idempotent")
    async def work() -> str:
        gates.append(asyncio.Event())
        if len(gates) <= slow:
            await gates[-1].wait()
        return "worked"

    def answer(messages: Sequence[Message]) -> Reply | str:
        return ask("work") if len(messages) == 1 else "done"

    store = Kept(clock=clock)
    opened = AsyncExitStack()
    engines: list[Engine] = []
    for _ in range(slow + 1):
        engine = make_engine(FunctionClient(answer), work, store=store, clock=clock)
        engines.append(await opened.enter_async_context(engine))
    started = await engines[0].start("go")
    for number in range(slow):
        await until(lambda so_far=number: len(gates) > so_far)
        before = engines[number].wait_while_driven(started.id)
        clock.advance(3600)  # its lease ends, while it goes on
        assert await engines[number + 1].resume(started.id)
        await until(
            lambda so_far=number + 1: len(gates) > so_far
        )  # the other one has taken it over
        gates[number].set()  # it finds that it is too late, and says that it lives
        assert await before is None
    result = await engines[slow].run(started.id).result()
    await opened.aclose()
    output, log = result.output, await store.read(started.id)
    assert output == "done"
    assert [event.kind for event in log].count(k.RUN_RESUMED) == slow
    assert [event.kind for event in log].count(k.LEASE_LOST) == slow


async def until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110 - nothing tells
        await asyncio.sleep(0)  # noqa: TID251 - lets the others go on
