"""Shared by tests of sessions: an engine that talks, a session in it, and a model that waits."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from lib.algorithms import React
from lib.engine import Engine, Session, Turn
from lib.engine.api.check import request_check
from lib.events import EventStore
from lib.events.verify import verify_store
from lib.llm import Message
from lib.testing.agents import make_engine
from lib.testing.providers import StrictClient
from lib.tools import tool

AGENT = React(system="be kind")


def echo(messages: Sequence[Message]) -> str:
    """Answer with how much was said so far, and what was said last."""
    return f"{len(messages)} {messages[-1].text}"


def talk(store: EventStore | None = None, answer: Any = echo, *tools: Any, **more: Any) -> Engine:
    return make_engine(StrictClient(answer), *tools, store=store, agent=AGENT, **more)


@asynccontextmanager
async def in_session(
    store: EventStore | None = None, answer: Any = echo, *tools: Any, **more: Any
) -> AsyncGenerator[tuple[Engine, Session]]:
    """Open an engine and a session in it."""
    async with talk(store, answer, *tools, **more) as engine:
        yield engine, await engine.start_session()


async def faults(store: EventStore) -> list[Any]:
    return (await verify_store(store, deep=True, checks=[request_check([AGENT], store)])).faults


async def outcome(turn: Turn) -> str | None:
    return (await turn.result()).outcome


def texts(messages: Sequence[Message]) -> list[str]:
    return [message.text for message in messages]


class Gate:
    """A model that answers once it is opened."""

    def __init__(self) -> None:
        self.called = asyncio.Event()
        self.open = asyncio.Event()

    async def answer(self, messages: Sequence[Message]) -> str:
        self.called.set()
        await self.open.wait()
        return echo(messages)


@tool(approval=True)
async def ask() -> str:
    return "done"
