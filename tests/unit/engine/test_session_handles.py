"""Turns are followed while they are answered, by this process or by another."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from lib.algorithms import React
from lib.engine.api.worker import Worker
from lib.errors import LLMError, RunAbandoned, UnknownAlgorithm
from lib.events import MemoryEventStore, SQLiteEventStore
from lib.events import kinds as k
from lib.llm import CutOff, Message, Reply, ToolCall
from lib.testing.agents import make_engine
from lib.testing.providers import StrictClient

from .run_kit import reached
from .session_kit import Gate, ask, echo, faults, in_session, outcome, talk, texts


def long_answer(_messages: Sequence[Message]) -> str:
    return "a rather long answer"


async def test_replies_are_streamed_from_the_first_delta_even_to_late_readers() -> None:
    async with in_session(answer=long_answer) as (_, session):
        turn, silent = await session.send("one"), await session.send("two", stream=False)
        await turn.result()
        await silent.result()
        pieces = [piece async for piece in turn.deltas()]
        assert "".join(piece.delta.text for piece in pieces) == "a rather long answer"
        assert len(pieces) > 1
        assert [piece async for piece in silent.deltas()] == []
        assert [piece async for piece in turn.deltas()] == []


async def test_deltas_arrive_while_the_reply_is_written() -> None:
    broken = LLMError("cut", retryable=False)

    steps = iter([CutOff("half", broken), "whole"])

    def answer(_messages: Sequence[Message]) -> Any:
        return next(steps)

    async with in_session(answer=answer) as (_, session):
        first, second = await session.send("one"), await session.send("two")
        assert [p.delta.text async for p in first.deltas()] == ["half"]
        assert await outcome(first) == "FAILED"
        assert [p.delta.text async for p in second.deltas()] == ["whole"]


async def test_a_discarded_handle_keeps_no_deltas() -> None:
    gate = Gate()
    async with in_session(answer=gate.answer) as (engine, session):
        turn = await session.send("one")
        await gate.called.wait()
        assert engine.hub.writer(turn.run_id) is not None
        run_id = turn.run_id
        del turn
        assert engine.hub.writer(run_id) is None
        gate.open.set()


async def test_a_turn_can_wait_for_approval() -> None:
    def think(messages: Sequence[Message]) -> Any:
        if messages[-1].role == "user":
            return Reply((ToolCall("c1", "ask"),), stop="tool_calls")
        return "thanks"

    store = MemoryEventStore()
    async with in_session(store, think, ask) as (_, session):
        turn = await session.send("go")
        await reached(turn, k.APPROVAL_REQUESTED)
        (waiting,) = await turn.run.pending()
        await turn.run.approve(waiting.key)
        pieces = [piece.delta.text async for piece in turn.deltas()]
        assert (await turn.result()).output == "thanks"
        assert pieces[-1] == "thanks"


async def test_a_session_goes_on_in_another_process_between_turns_and_inside_them() -> None:
    store, gate = MemoryEventStore(), Gate()
    async with in_session(store) as (engine, session):
        await (await session.send("one")).result()
    async with talk(store, gate.answer) as engine:
        turn = await engine.session(session.id).send("two")
        waiting = asyncio.create_task(turn.result())
        await gate.called.wait()
    with pytest.raises(RunAbandoned):
        await waiting
    async with talk(store) as engine:
        session = engine.session(session.id)
        (_, again) = await session.turns()
        assert (await again.result()).output == "4 two"
        assert (await (await session.send("three")).result()).output == "6 three"
        assert await faults(store) == []


async def test_a_process_without_drivers_sends_turns_that_a_worker_answers(tmp_path: Path) -> None:
    desk_store, work_store = (SQLiteEventStore(tmp_path / "log.db") for _ in range(2))
    async with talk(desk_store, drive=False) as desk, talk(work_store) as engine:
        worker = Worker(engine, max_runs=1, poll_s=0.02)
        working = asyncio.create_task(worker.run())
        session = await desk.start_session()
        turns = [await session.send(word) for word in ("a", "b")]
        assert [(await turn.result()).output for turn in turns] == ["2 a", "4 b"]
        pieces = [piece.delta.text async for piece in turns[0].deltas()]
        assert "2 a".startswith("".join(pieces))  # from the worker, as far as they came in time
        assert texts(await session.history()) == ["a", "2 a", "b", "4 b"]
        await session.close()
        assert (await session.run.result()).outcome == "COMPLETED"
        worker.stop()
        await working


async def test_another_engine_answers_a_turn_that_this_one_cannot() -> None:
    class Shared(MemoryEventStore):
        async def close(self) -> None:
            pass

    store = Shared()
    other = make_engine(StrictClient(echo), store=store, agent=React("other"))
    async with talk(store) as engine, other:
        session = await engine.start_session()
        await engine.wait_while_driven(session.id)
        turn = await other.session(session.id).send("hi")
        with pytest.raises(UnknownAlgorithm):
            await turn.result()
        seen = engine.session(session.id)
        (again,) = await seen.turns()
        assert (await again.result()).output == "2 hi"
        with pytest.raises(UnknownAlgorithm):
            await other.session(session.id).history()
