"""Handles of one tenant: a foreign run is answered for as a missing one is."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from lib.engine import Engine, Run
from lib.engine.api.session import Session
from lib.engine.runtime.services import TenantEngine
from lib.errors import RunNotFound
from lib.events import kinds as k
from lib.llm import FunctionClient, Message, Reply, Text, ToolCall, ToolResult
from lib.testing.agents import make_engine
from lib.tools import tool


@tool(approval=True)
def refund() -> str:
    return "refunded"


def think(messages: Sequence[Message]) -> Reply:
    if any(isinstance(part, ToolResult) for part in messages[-1].parts):
        return Reply((Text("done"),))
    if messages[-1].text == "refund":
        return Reply((ToolCall("c1", "refund", {}),), stop="tool_calls")
    return Reply((Text("hello"),))


def engine() -> Engine:
    return make_engine(FunctionClient(think), refund)


async def _pending_key(handle: Run) -> str:
    """Return the key of the call that waits for a person, once there is one."""
    async for event in handle.events():
        if event.kind == k.APPROVAL_REQUESTED:
            return event.data["key"]
    raise AssertionError("it has ended without a question")


async def _all(handle: Run) -> Any:
    return [event async for event in handle.events()]


RUN_CALLS: dict[str, Callable[[Run], Awaitable[Any]]] = {
    "info": lambda handle: handle.info(),
    "result": lambda handle: handle.result(),
    "state": lambda handle: handle.state(),
    "events": _all,
    "pending": lambda handle: handle.pending(),
    "approve": lambda handle: handle.approve("tool/c1"),
    "deny": lambda handle: handle.deny("tool/c1"),
    "cancel": lambda handle: handle.cancel(),
}
SESSION_CALLS: dict[str, Callable[[Session], Awaitable[Any]]] = {
    "send": lambda handle: handle.send("hello"),
    "turns": lambda handle: handle.turns(),
    "close": lambda handle: handle.close(),
    "cancel": lambda handle: handle.cancel(),
}


@pytest.mark.parametrize("call", RUN_CALLS.values(), ids=RUN_CALLS)
async def test_a_run_of_another_tenant_is_missing(call: Callable[[Run], Awaitable[Any]]) -> None:
    async with engine() as made:
        foreign = await made.start("refund", tenant="globex")
        await _pending_key(foreign)
        before = await foreign.info()
        messages: list[str] = []
        for run_id in (foreign.id, "missing"):
            with pytest.raises(RunNotFound) as caught:
                await call(made.run(run_id, tenant="acme"))
            messages.append(str(caught.value).replace(run_id, "…"))

        assert messages[0] == messages[1]
        assert (await foreign.info()).head == before.head
        assert [p async for p in made.run(foreign.id, tenant="acme").deltas()] == []


@pytest.mark.parametrize("call", SESSION_CALLS.values(), ids=SESSION_CALLS)
async def test_a_session_of_another_tenant_is_missing(
    call: Callable[[Session], Awaitable[Any]],
) -> None:
    async with engine() as made:
        foreign = await made.start_session(tenant="globex")
        messages: list[str] = []
        for session_id in (foreign.id, "missing"):
            with pytest.raises(RunNotFound) as caught:
                await call(made.session(session_id, tenant="acme"))
            messages.append(str(caught.value).replace(session_id, "…"))

        assert messages[0] == messages[1]
        assert len(await made.store.read(foreign.id)) == 1


async def test_a_tenant_finds_its_own_runs_and_sessions() -> None:
    async with engine() as made:
        started = await made.start("refund", tenant="acme")
        handle = made.run(started.id, tenant="acme")
        pieces = asyncio.create_task(_pieces(handle))
        await handle.approve(await _pending_key(handle), user="ada")
        assert (await handle.result()).output == "done"
        assert (await handle.state()).tenant == "acme"
        assert await handle.cancel() is False
        await pieces

        session = made.session((await made.start_session(tenant="acme")).id, tenant="acme")
        turn = await session.send("hello", idempotency_key="k")
        assert (await session.send("hello", idempotency_key="k")).id == turn.id
        assert (await turn.result()).output == "hello"
        assert len(await session.turns()) == 1
        await session.close()


async def test_a_tenant_streams_its_own_replies() -> None:
    async with engine() as made:
        started = await made.start("hello", tenant="acme")
        pieces = await _pieces(made.run(started.id, tenant="acme"))
        assert "".join(str(piece.delta) for piece in pieces).count("hello") == 1


async def _pieces(handle: Run) -> list[Any]:
    return [piece async for piece in handle.deltas()]


async def test_a_run_of_another_tenant_cannot_be_signalled_or_resumed() -> None:
    async with engine() as made:
        foreign = await made.start_session(tenant="globex")
        mine = TenantEngine(made, "acme")
        for run_id in (foreign.id, "missing"):
            with pytest.raises(RunNotFound):
                await mine.signal(run_id, "user.note", {})
            with pytest.raises(RunNotFound):
                await mine.resume(run_id)
            assert await mine.wait_while_driven(run_id) is None


def test_an_empty_tenant_of_a_handle_is_refused() -> None:
    with pytest.raises(ValueError, match="expected the id of a tenant, got an empty text"):
        engine().run("run", tenant="")
