"""Plays agents with teams and holds their logs against the deep check."""

from typing import Any, TypeVar

from lib import Agent
from lib.algorithms import by_config
from lib.engine import Result
from lib.engine.api.check import StoreCheck
from lib.events import Event, MemoryEventStore
from lib.events.verify import verify_store
from lib.llm import FunctionClient, Reply

T = TypeVar("T")


def in_order(*replies: Reply | str) -> FunctionClient:
    """Return a model that replies so, one after the other."""
    left = iter(replies)
    return FunctionClient(lambda _messages: next(left))


async def play(
    agent: Agent[T], text: str = "Write a verse.", **options: Any
) -> tuple[Result[T], list[Event]]:
    """Run the agent; return how it ended, and its log, which has to verify."""
    store = MemoryEventStore()
    async with agent.engine(store) as engine:
        run = await agent.start(engine, text, **options)
        result, log = await run.result(), await store.read(run.id)
        check = StoreCheck([], store, by_config=by_config)
        assert (await verify_store(store, deep=True, checks=[check])).faults == []
        assert check.decided == 1
        return result, log
