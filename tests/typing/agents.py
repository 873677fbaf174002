"""The public names as pyright and mypy see them from outside.

`assert_type` holds what must be known. A comment that ignores an error holds that a wrong use is
one: a comment without an error is an error, too.
"""

from __future__ import annotations

from typing import assert_type

from pydantic import BaseModel

from lib import Agent, Engine, Result, Run, Session, tool
from lib.engine import RunEnded, ToolEnded
from lib.tools import ToolContext


class Ticket(BaseModel):
    title: str


class Pool:
    size: int = 3


@tool(effects="none")
def look(order: int) -> str:
    """Look an order up."""
    return str(order)


@tool
async def pay(order: int, context: ToolContext) -> None:
    """Pay."""
    assert_type(context.deps[Pool], Pool)
    assert_type(order, int)


plain = Agent("openai:gpt-5-mini", tools=[look, pay])
typed = Agent("openai:gpt-5-mini", output=Ticket)

assert_type(plain, Agent[str])
assert_type(typed, Agent[Ticket])
assert_type(look(7), str)
look("7")  # type: ignore[arg-type]  # - a wrong use


def results() -> None:
    assert_type(plain.run_sync("Hi."), Result[str])
    assert_type(plain.run_sync("Hi.").output, str)
    assert_type(typed.run_sync("Hi.").output, Ticket)
    assert_type(typed.run_sync("Hi.").text, str)
    _ = typed.run_sync("Hi.").output.name  # type: ignore[attr-defined]  # - a wrong use
    typed.run_sync("Hi.", stor="runs.db")  # type: ignore[call-arg]  # - a wrong use


async def runs(engine: Engine) -> None:
    assert_type(await typed.start(engine, "Hi.", tenant="acme"), Run[Ticket])
    assert_type(await engine.start("Hi.", agent=typed), Run[Ticket])
    assert_type(await engine.start("Hi.", agent="typed"), Run[str])
    assert_type(engine.run("id", agent=typed), Run[Ticket])
    assert_type(engine.run("id"), Run[str])
    assert_type(await (await engine.start("Hi.", agent=typed)).result(), Result[Ticket])
    await typed.start(engine, "Hi.", tenant=7)  # type: ignore[arg-type]  # - a wrong use


async def sessions(engine: Engine) -> None:
    session = await typed.session(engine)
    assert_type(session, Session[Ticket])
    assert_type((await (await session.send("Hi.")).result()).output, Ticket)
    assert_type(engine.session("id", agent=typed), Session[Ticket])


async def streams() -> None:
    async for item in typed.stream("Hi."):
        assert_type(item.seq, int)
        if isinstance(item, ToolEnded):
            assert_type(item.output, str)
        if isinstance(item, RunEnded):
            assert_type(item.result.output, Ticket)
