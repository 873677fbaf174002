"""Sessions and turns that are closed, cancelled or erased, at any moment."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from lib.engine import Result, Turn
from lib.errors import RunAbandoned, RunNotFound, SessionClosed
from lib.events import MemoryEventStore, NewEvent
from lib.events import kinds as k
from lib.llm import Message, Reply, ToolCall
from lib.testing.agents import kinds
from lib.tools import tool

from .run_kit import reached
from .session_kit import Gate, ask, echo, faults, in_session, outcome, texts


async def test_a_closed_session_answers_its_pending_turns_and_accepts_no_more() -> None:
    store = MemoryEventStore()
    async with in_session(store) as (engine, session):
        turns = [await session.send(word) for word in ("a", "b")]
        other = engine.session(session.id)
        await session.close()
        await session.close()
        for handle in (session, other):
            with pytest.raises(SessionClosed) as caught:
                await handle.send("c")
            assert caught.value.outcome == "COMPLETED"
        assert [await outcome(turn) for turn in turns] == ["COMPLETED"] * 2
        ended = await session.run.result()
        assert (ended.outcome, ended.spend.llm_calls) == ("COMPLETED", 2)
        await session.close()
        assert kinds(await store.read(session.id)).count("close.requested") == 1
        assert await session.cancel() is False
        assert len(await session.turns()) == 2
        assert await faults(store) == []


async def test_a_turn_that_loses_the_race_against_a_close_raises() -> None:
    class Late(MemoryEventStore):
        """Closes the session just before a turn comes."""

        async def append(
            self, run_id: str, events: Sequence[NewEvent], *, expected: int | None
        ) -> list[Any]:
            if events[0].kind == k.TURN_REQUESTED:
                close = NewEvent(k.CLOSE_REQUESTED, {"signal_id": "c"}, events[0].at)
                await super().append(run_id, [close], expected=None)
            return await super().append(run_id, events, expected=expected)

    store = Late()
    async with in_session(store) as (engine, session):
        with pytest.raises(SessionClosed):
            await session.send("too late")
        late = Turn(
            engine, session.id, (await store.read(session.id))[2].data["signal_id"], after=1
        )
        with pytest.raises(SessionClosed):
            await late.result()
        with pytest.raises(SessionClosed):
            [event async for event in late.events()]
        assert [piece async for piece in late.deltas()] == []
        assert await late.cancel() is False
        assert (await session.run.result()).outcome == "COMPLETED"
        assert await session.turns() == []


async def test_a_cancelled_session_cancels_its_turn_and_fails_the_waiting_ones() -> None:
    store, gate = MemoryEventStore(), Gate()
    async with in_session(store, gate.answer) as (_, session):
        first, second = await session.send("a"), await session.send("b")
        await gate.called.wait()
        assert await session.cancel("enough") is True
        assert await outcome(first) == "CANCELLED"
        with pytest.raises(SessionClosed) as caught:
            await second.result()
        assert caught.value.outcome == "CANCELLED"
        assert (await session.run.result()).reason == "enough"
        with pytest.raises(SessionClosed):
            await session.send("c")
        assert texts(await session.history()) == ["a"]
        assert await faults(store) == []


async def test_a_cancelled_turn_leaves_a_conversation_that_goes_on() -> None:
    @tool
    async def wait_for_ever() -> str:
        await asyncio.Event().wait()
        return "never"

    def think(messages: Sequence[Message]) -> Any:
        if messages[-1].text == "work":
            return Reply((ToolCall("c1", "wait_for_ever"),), stop="tool_calls")
        return echo(messages)

    store = MemoryEventStore()
    async with in_session(store, think, wait_for_ever) as (_, session):
        turn = await session.send("work")
        await reached(turn, k.TOOL_REQUESTED)
        assert await turn.cancel("no time", user="ada") is True
        result = await turn.result()
        assert (result.outcome, result.reason) == ("CANCELLED", "no time")
        assert await turn.cancel() is False
        roles = [message.role for message in await session.history()]
        assert roles == ["user", "assistant", "tool"]
        assert (await (await session.send("go on")).result()).output == "5 go on"
        assert await faults(store) == []


async def test_a_queued_turn_can_be_cancelled() -> None:
    store, gate = MemoryEventStore(), Gate()
    async with in_session(store, gate.answer) as (engine, session):
        turns = [await session.send(word) for word in ("a", "b", "c")]
        await gate.called.wait()
        assert await turns[1].cancel("not that") is True
        result = await turns[1].result()
        assert (result.outcome, result.reason) == ("CANCELLED", "not that")
        assert [event async for event in turns[1].events()] == []
        assert await turns[1].cancel() is False
        gate.open.set()
        assert (await turns[2].result()).output == "4 c"
        assert await engine.store.run(turns[1].run_id) is None
        assert texts(await session.history()) == ["a", "2 a", "c", "4 c"]
        assert await faults(store) == []


async def test_a_turn_that_begins_during_its_cancellation_is_cancelled() -> None:
    store, gate = MemoryEventStore(), Gate()
    async with in_session(store, gate.answer) as (engine, session):
        turn = await session.send("a")
        stale = Turn(engine, session.id, turn.id, after=1)
        # The handle looks before the turn begins, and cancels when it has begun.
        await stale.refresh()
        await gate.called.wait()
        assert await stale.cancel() is True
        assert await outcome(turn) == "CANCELLED"


async def test_a_turn_that_was_intended_and_not_begun_can_be_cancelled() -> None:
    """A process may die between the two."""

    async def main(*, erased: bool) -> tuple[bool, Result]:
        store = MemoryEventStore()
        async with in_session(store) as (engine, session):
            await engine.wait_while_driven(session.id)
            turn = Turn(engine, session.id, "k", after=1)
            at = engine.clock.now()
            began = {"key": "k", "run_id": turn.run_id, "algorithm": "react", "upto": 2}
            signal = {"signal_id": "k", "input": [{"role": "user", "content": "hi"}]}
            if erased:
                start: dict[str, Any] = {"algorithm": "react", "input": []}
                await store.append(turn.run_id, [NewEvent(k.RUN_STARTED, start, at)], expected=0)
                await store.erase(turn.run_id)
            log = [NewEvent(k.TURN_REQUESTED, signal, at), NewEvent(k.TURN_STARTED, began, at)]
            await store.append(session.id, log, expected=1)
            return await turn.cancel(), await turn.result()

    cancelled, result = await main(erased=False)
    assert (cancelled, result.outcome) == (True, "CANCELLED")
    cancelled, result = await main(erased=True)
    assert (cancelled, result.outcome, result.reason) == (False, "FAILED", "erased")


async def test_cancelling_a_begun_turn_leaves_its_session_unchanged() -> None:
    gate = Gate()
    async with in_session(answer=gate.answer) as (engine, session):
        turn = await session.send("a", stream=False)
        await gate.called.wait()
        await engine.signal(session.id, k.CANCEL_REQUESTED, {"key": turn.id})
        gate.open.set()
        assert [event.kind async for event in turn.events()][-1] == k.RUN_COMPLETED
        assert await outcome(turn) == "COMPLETED"
        turn.drop_deltas()


@pytest.mark.parametrize("whole", [False, True])
async def test_a_turn_that_waits_for_a_person_can_be_cancelled(whole: bool) -> None:
    def think(messages: Sequence[Message]) -> Any:
        if messages[-1].text == "go":
            return Reply((ToolCall("c1", "ask"),), stop="tool_calls")
        return echo(messages)

    store = MemoryEventStore()
    async with in_session(store, think, ask) as (_, session):
        turn = await session.send("go")
        await reached(turn, k.APPROVAL_REQUESTED)
        assert await (session if whole else turn).cancel() is True
        assert await outcome(turn) == "CANCELLED"
        if whole:
            assert (await session.run.result()).outcome == "CANCELLED"
        else:
            assert (await (await session.send("on")).result()).output == "5 on"
        assert await faults(store) == []


async def test_waiting_on_an_erased_session_raises() -> None:
    store, gate = MemoryEventStore(), Gate()
    async with in_session(store, gate.answer) as (_, session):
        turn = await session.send("a")
        other = await session.send("b")
        await gate.called.wait()
        await store.erase(turn.run_id)
        await store.erase(session.id)
        gate.open.set()
        for waiting in (turn.result(), other.result(), other.cancel()):
            with pytest.raises((RunNotFound, RunAbandoned)):
                await waiting
