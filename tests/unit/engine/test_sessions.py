"""Sessions: conversations that go on, turn by turn, in this process or another."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from lib.algorithms import React, SessionLoop
from lib.engine import Budget, Engine, LLMHandler, Result, Turn, TurnHandler
from lib.engine.check import request_check
from lib.engine.worker import Worker
from lib.errors import (
    ContentTooLarge,
    IdempotencyMismatch,
    LLMError,
    RunAbandoned,
    RunNotFound,
    SessionClosed,
    UnknownAlgorithm,
)
from lib.events import (
    DirectoryBlobStore,
    EventStore,
    MemoryEventStore,
    NewEvent,
    RunQuery,
    SQLiteEventStore,
)
from lib.events import kinds as k
from lib.events.verify import verify_store
from lib.guards import GuardContent, Stage, Verdict
from lib.llm import CutOff, Image, Message, Reply, Text, ToolCall, Usage
from lib.testing.agents import kinds, make_engine
from lib.testing.aio import run
from lib.testing.providers import StrictClient
from lib.tools import tool

AGENT = React(system="be kind")


def echo(messages: Sequence[Message]) -> str:
    """Answer with how much was said so far, and what was said last."""
    return f"{len(messages)} {messages[-1].text}"


def talk(store: EventStore | None = None, answer: Any = echo, *tools: Any, **more: Any) -> Engine:
    return make_engine(StrictClient(answer), *tools, store=store, agent=AGENT, **more)


async def faults(store: EventStore) -> list[Any]:
    return (await verify_store(store, deep=True, checks=[request_check([AGENT], store)])).faults


async def status(engine: Engine, run_id: str) -> tuple[str, bool, str | None]:
    info = await engine.run(run_id).info()
    return info.status, info.ready, info.owner


async def outcome(turn: Turn) -> str:
    return (await turn.result()).outcome


def long_answer(_messages: Sequence[Message]) -> str:
    return "a rather long answer"


def texts(messages: Sequence[Message]) -> list[str]:
    return [message.text for message in messages]


class Gate:
    """A model that waits to be let go."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.open = asyncio.Event()

    async def answer(self, messages: Sequence[Message]) -> str:
        self.asked.set()
        await self.open.wait()
        return echo(messages)


def test_each_turn_goes_on_with_the_conversation_of_those_before_it() -> None:
    async def main() -> None:
        store = MemoryEventStore()
        async with talk(store) as engine:
            session = await engine.start_session(user="ada")
            first = await (await session.send("one")).result()
            second = await (await session.send("two", user="bob")).result()

            assert (first.output, second.output) == ("2 one", "4 two")
            assert texts(await session.history()) == ["one", "2 one", "two", "4 two"]
            one, two = await session.turns()
            assert [one.run_id, two.run_id] == [first.run_id, second.run_id]
            assert [await outcome(turn) for turn in (one, two)] == ["COMPLETED"] * 2
            started = (await store.read(second.run_id))[0]
            assert (started.user, started.data["upto"]) == ("bob", 5)
            assert started.data["input"] == [{"role": "user", "content": "two"}]
            assert (await store.read(first.run_id))[0].user == "ada"
            assert await faults(store) == []

    run(main())


def test_between_turns_nobody_holds_the_session() -> None:
    async def main() -> None:
        async with talk() as engine:
            session = await engine.start_session()
            await engine.hosted(session.id)
            assert await status(engine, session.id) == ("open", False, None)
            await (await session.send("one")).result()
            await engine.hosted(session.id)
            assert await status(engine, session.id) == ("open", False, None)

    run(main())


def test_two_turns_sent_at_once_are_answered_in_the_order_of_the_log() -> None:
    async def main() -> None:
        store = MemoryEventStore()
        async with talk(store) as engine:
            session = await engine.start_session()
            turns = await asyncio.gather(*(session.send(word) for word in ("a", "b", "c")))
            results = await asyncio.gather(*(turn.result() for turn in reversed(turns)))

            log = await store.read(session.id)
            said = [e.data["signal_id"] for e in log if e.kind == k.TURN_REQUESTED]
            assert [turn.id for turn in await session.turns()] == said
            assert [e.data["key"] for e in log if e.kind == k.TURN_COMPLETED] == said
            assert sorted(r.output[0] for r in results) == ["2", "4", "6"]
            open_turns = 0
            for event in log:  # one at a time
                open_turns += (event.kind == k.TURN_STARTED) - (event.kind == k.TURN_COMPLETED)
                assert open_turns in (0, 1)

    run(main())


def test_a_repeated_key_gives_the_same_turn() -> None:
    async def main() -> None:
        async with talk() as engine:
            session = await engine.start_session()
            first = await session.send("one", idempotency_key="k")
            again = await session.send("one", idempotency_key="k")
            elsewhere = await engine.session(session.id).send("one", idempotency_key="k")
            assert first.run_id == again.run_id == elsewhere.run_id
            assert await first.result() == await again.result() == await elsewhere.result()
            with pytest.raises(IdempotencyMismatch) as caught:
                await session.send("two", idempotency_key="k")
            assert (caught.value.key, caught.value.run_id) == ("k", session.id)
            assert len(await session.turns()) == 1

    run(main())


def test_two_processes_that_send_under_one_key_at_once_get_one_turn() -> None:
    async def main() -> None:
        store = MemoryEventStore()
        async with talk(store) as engine:
            session = await engine.start_session()
            await (await session.send("one", idempotency_key="k")).result()
            data = {"signal_id": "k", "input": [{"role": "user", "content": "one"}]}
            await engine.signal(session.id, k.TURN_REQUESTED, data)
            await (await session.send("two")).result()

            assert kinds(await store.read(session.id)).count("turn.started") == 2
            assert len(await session.turns()) == 2
            assert texts(await session.history()) == ["one", "2 one", "two", "4 two"]

    run(main())


def test_a_session_is_opened_once_under_a_key() -> None:
    async def main() -> None:
        async with talk() as engine:
            one = await engine.start_session(tenant="t", idempotency_key="k")
            assert (await engine.start_session(tenant="t", idempotency_key="k")).id == one.id
            assert (await engine.start_session(tenant="u", idempotency_key="k")).id != one.id
            with pytest.raises(IdempotencyMismatch):
                await engine.start_session(
                    tenant="t", turn_budget=Budget(tokens=1), idempotency_key="k"
                )

    run(main())


def test_what_cannot_be_a_session_or_a_turn_is_refused() -> None:
    async def main() -> None:
        async with talk() as engine:
            with pytest.raises(UnknownAlgorithm, match="react"):
                await engine.start_session("other")
            with pytest.raises(ValueError, match="another algorithm"):
                await engine.start_session("session")
            with pytest.raises(ValueError, match="depth"):
                await engine.start_session(budget=Budget(depth=0))
            with pytest.raises(ValueError, match="start_session"):
                await engine.start("hi", algorithm="session")
            session = await engine.start_session()
            for wrong in ([], Message.assistant("hi"), [Message.user("a"), Message.system("b")]):
                with pytest.raises(ValueError, match="of the user"):
                    await session.send(wrong)
            with pytest.raises(ValueError, match="one character"):
                await session.send("hi", idempotency_key="")
            missing = engine.session("nowhere")
            for call in (missing.send("hi"), missing.history(), missing.turns(), missing.close()):
                with pytest.raises(RunNotFound):
                    await call
            no_session = await engine.start("hi")
            with pytest.raises(ValueError, match="no session"):
                await engine.session(no_session.id).send("hi")

    run(main())


def test_two_algorithms_cannot_both_be_the_one_of_sessions() -> None:
    with pytest.raises(ValueError, match="'session'"):
        make_engine(StrictClient(echo), agent=React("session"))


def test_large_attachments_of_a_turn_go_to_the_blob_store(tmp_path: Path) -> None:
    picture = Message.user("look", Image(data=b"x" * 300_000, media_type="image/png"))
    seen: list[int] = []

    def look(messages: Sequence[Message]) -> str:
        seen.extend(len(p.data or b"") for m in messages for p in m.parts if isinstance(p, Image))
        return "seen"

    async def main() -> None:
        store, blobs = MemoryEventStore(), DirectoryBlobStore(tmp_path)
        client = StrictClient(look, modalities=frozenset({"text", "image"}))
        async with make_engine(client, store=store, agent=AGENT, blobs=blobs) as engine:
            session = await engine.start_session()
            await (await session.send(picture)).result()
            await (await session.send("and now?")).result()
            assert sum(len(str(e.data)) for e in await store.read(session.id)) < 5_000
        async with talk() as engine:
            session = await engine.start_session()
            with pytest.raises(ContentTooLarge):
                await session.send(picture)

    run(main())
    assert seen == [300_000, 300_000]


def test_a_closed_session_answers_what_was_sent_and_takes_nothing_more() -> None:
    async def main() -> None:
        store = MemoryEventStore()
        async with talk(store) as engine:
            session = await engine.start_session()
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

    run(main())


def test_a_turn_that_loses_the_race_against_a_close_is_told() -> None:
    class Late(MemoryEventStore):
        """Lets somebody close the session just before a turn comes."""

        async def append(
            self, run_id: str, events: Sequence[NewEvent], *, expected: int | None
        ) -> list[Any]:
            if events[0].kind == k.TURN_REQUESTED:
                close = NewEvent(k.CLOSE_REQUESTED, {"signal_id": "c"}, events[0].at)
                await super().append(run_id, [close], expected=None)
            return await super().append(run_id, events, expected=expected)

    async def main() -> None:
        store = Late()
        async with talk(store) as engine:
            session = await engine.start_session()
            with pytest.raises(SessionClosed):
                await session.send("too late")
            late = Turn(
                engine, session.id, (await store.read(session.id))[2].data["signal_id"], after=1
            )
            with pytest.raises(SessionClosed):
                await late.result()
            with pytest.raises(SessionClosed):
                [event async for event in late.events()]
            assert [piece async for piece in late.live()] == []
            assert await late.cancel() is False
            assert (await session.run.result()).outcome == "COMPLETED"
            assert await session.turns() == []

    run(main())


def test_a_cancelled_session_cancels_its_turn_and_tells_those_that_wait() -> None:
    async def main() -> None:
        store, gate = MemoryEventStore(), Gate()
        async with talk(store, gate.answer) as engine:
            session = await engine.start_session()
            first, second = await session.send("a"), await session.send("b")
            await gate.asked.wait()
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

    run(main())


def test_a_cancelled_turn_leaves_a_conversation_that_goes_on() -> None:
    @tool
    async def wait_for_ever() -> str:
        await asyncio.Event().wait()
        return "never"

    def think(messages: Sequence[Message]) -> Any:
        if messages[-1].text == "work":
            return Reply((ToolCall("c1", "wait_for_ever"),), stop="tool_calls")
        return echo(messages)

    async def main() -> None:
        store = MemoryEventStore()
        async with talk(store, think, wait_for_ever) as engine:
            session = await engine.start_session()
            turn = await session.send("work")
            async for event in turn.events():
                if event.kind == k.TOOL_REQUESTED:
                    break
            assert await turn.cancel("no time", user="ada") is True
            result = await turn.result()
            assert (result.outcome, result.reason) == ("CANCELLED", "no time")
            assert await turn.cancel() is False
            roles = [message.role for message in await session.history()]
            assert roles == ["user", "assistant", "tool"]
            assert (await (await session.send("go on")).result()).output == "5 go on"
            assert await faults(store) == []

    run(main())


def test_a_turn_that_waits_for_its_turn_can_be_cancelled() -> None:
    async def main() -> None:
        store, gate = MemoryEventStore(), Gate()
        async with talk(store, gate.answer) as engine:
            session = await engine.start_session()
            turns = [await session.send(word) for word in ("a", "b", "c")]
            await gate.asked.wait()
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

    run(main())


def test_a_turn_that_begins_while_it_is_being_cancelled_is_cancelled_all_the_same() -> None:
    async def main() -> None:
        store, gate = MemoryEventStore(), Gate()
        async with talk(store, gate.answer) as engine:
            session = await engine.start_session()
            turn = await session.send("a")
            stale = Turn(engine, session.id, turn.id, after=1)
            # The handle looks before the turn begins, and cancels when it has begun.
            await stale.refresh()
            await gate.asked.wait()
            assert await stale.cancel() is True
            assert await outcome(turn) == "CANCELLED"

    run(main())


def test_a_turn_that_was_intended_and_not_begun_can_be_cancelled() -> None:
    """A process may die between the two."""

    async def main(*, erased: bool) -> tuple[bool, Result]:
        store = MemoryEventStore()
        async with talk(store) as engine:
            session = await engine.start_session()
            await engine.hosted(session.id)
            turn = Turn(engine, session.id, "k", after=1)
            at = engine.clock.now()
            began = {"key": "k", "run_id": turn.run_id, "algorithm": "react", "upto": 2}
            said = {"signal_id": "k", "input": [{"role": "user", "content": "hi"}]}
            if erased:
                start: dict[str, Any] = {"algorithm": "react", "input": []}
                await store.append(turn.run_id, [NewEvent(k.RUN_STARTED, start, at)], expected=0)
                await store.erase(turn.run_id)
            log = [NewEvent(k.TURN_REQUESTED, said, at), NewEvent(k.TURN_STARTED, began, at)]
            await store.append(session.id, log, expected=1)
            return await turn.cancel(), await turn.result()

    cancelled, result = run(main(erased=False))
    assert (cancelled, result.outcome) == (True, "CANCELLED")
    cancelled, result = run(main(erased=True))
    assert (cancelled, result.outcome, result.reason) == (False, "FAILED", "erased")


def test_calling_a_turn_off_that_has_begun_changes_nothing_in_its_session() -> None:
    async def main() -> None:
        gate = Gate()
        async with talk(answer=gate.answer) as engine:
            session = await engine.start_session()
            turn = await session.send("a", live=False)
            await gate.asked.wait()
            await engine.signal(session.id, k.CANCEL_REQUESTED, {"key": turn.id})
            gate.open.set()
            assert [event.kind async for event in turn.events()][-1] == k.RUN_COMPLETED
            assert await outcome(turn) == "COMPLETED"
            turn.drop_pieces()

    run(main())


def test_an_engine_may_be_given_what_it_has_of_its_own() -> None:
    async def main() -> None:
        handlers = [LLMHandler(StrictClient(echo)), TurnHandler()]
        algorithms = [AGENT, SessionLoop()]
        async with Engine(MemoryEventStore(), handlers, algorithms=algorithms) as engine:
            session = await engine.start_session()
            assert (await (await session.send("hi")).result()).output == "2 hi"

    run(main())


def test_replies_are_streamed_from_the_first_piece_however_late_they_are_read() -> None:
    async def main() -> None:
        async with talk(answer=long_answer) as engine:
            session = await engine.start_session()
            turn, silent = await session.send("one"), await session.send("two", live=False)
            await turn.result()
            await silent.result()
            pieces = [piece async for piece in turn.live()]
            assert "".join(piece.delta.text for piece in pieces) == "a rather long answer"
            assert len(pieces) > 1
            assert [piece async for piece in silent.live()] == []
            assert [piece async for piece in turn.live()] == []

    run(main())


def test_pieces_come_while_the_reply_is_written() -> None:
    broken = LLMError("cut", retryable=False)

    async def main() -> None:
        steps = iter([CutOff("half", broken), "whole"])

        def answer(_messages: Sequence[Message]) -> Any:
            return next(steps)

        async with talk(answer=answer) as engine:
            session = await engine.start_session()
            first, second = await session.send("one"), await session.send("two")
            assert [p.delta.text async for p in first.live()] == ["half"]
            assert await outcome(first) == "FAILED"
            assert [p.delta.text async for p in second.live()] == ["whole"]

    run(main())


def test_a_handle_that_is_gone_keeps_no_pieces() -> None:
    async def main() -> None:
        gate = Gate()
        async with talk(answer=gate.answer) as engine:
            session = await engine.start_session()
            turn = await session.send("one")
            await gate.asked.wait()
            assert engine.hub.publisher(turn.run_id) is not None
            run_id = turn.run_id
            del turn
            assert engine.hub.publisher(run_id) is None
            gate.open.set()

    run(main())


def test_a_turn_may_wait_for_a_person() -> None:
    @tool(approval=True)
    async def ask() -> str:
        return "done"

    def think(messages: Sequence[Message]) -> Any:
        if messages[-1].role == "user":
            return Reply((ToolCall("c1", "ask"),), stop="tool_calls")
        return "thanks"

    async def main() -> None:
        store = MemoryEventStore()
        async with talk(store, think, ask) as engine:
            session = await engine.start_session()
            turn = await session.send("go")
            async for event in turn.events():
                if event.kind == k.APPROVAL_REQUESTED:
                    break
            (waiting,) = await turn.run.pending()
            await turn.run.approve(waiting.key)
            pieces = [piece.delta.text async for piece in turn.live()]
            assert (await turn.result()).output == "thanks"
            assert pieces[-1] == "thanks"

    run(main())


@pytest.mark.parametrize("whole", [False, True])
def test_a_turn_that_waits_for_a_person_can_be_cancelled(whole: bool) -> None:
    @tool(approval=True)
    async def ask() -> str:
        return "done"

    def think(messages: Sequence[Message]) -> Any:
        if messages[-1].text == "go":
            return Reply((ToolCall("c1", "ask"),), stop="tool_calls")
        return echo(messages)

    async def main() -> None:
        store = MemoryEventStore()
        async with talk(store, think, ask) as engine:
            session = await engine.start_session()
            turn = await session.send("go")
            async for event in turn.events():
                if event.kind == k.APPROVAL_REQUESTED:
                    break
            assert await (session if whole else turn).cancel() is True
            assert await outcome(turn) == "CANCELLED"
            if whole:
                assert (await session.run.result()).outcome == "CANCELLED"
            else:
                assert (await (await session.send("on")).result()).output == "5 on"
            assert await faults(store) == []

    run(main())


def test_a_failed_turn_leaves_its_question_and_an_erased_one_nothing() -> None:
    def think(messages: Sequence[Message]) -> str:
        if messages[-1].text == "fail":
            raise LLMError("no", status=400)
        return echo(messages)

    async def main() -> None:
        store = MemoryEventStore()
        async with talk(store, think) as engine:
            session = await engine.start_session()
            for word in ("a", "fail", "b"):
                await (await session.send(word)).result()
            assert texts(await session.history()) == ["a", "2 a", "fail", "b", "5 b"]
            turns = await session.turns()
            await store.erase(turns[0].run_id)
        store = await copy_of(store)
        async with talk(store, think) as engine:
            session = engine.session(session.id)
            assert texts(await session.history()) == ["fail", "b", "5 b"]
            assert (await (await session.send("c")).result()).output == "5 c"
            assert [fault.rule for fault in await faults(store)] == []

    async def copy_of(store: MemoryEventStore) -> MemoryEventStore:
        return store

    run(main())


class NoAttack:
    """A guard against one word."""

    name = "no attack"

    def __init__(self, stage: Stage) -> None:
        self.stages: frozenset[Stage] = frozenset({stage})

    async def check(self, content: GuardContent) -> Verdict:
        return Verdict(allowed="attack" not in content.text, reason="an attack")


@pytest.mark.parametrize(("stage", "left"), [("input", []), ("output", ["attack"])])
def test_what_a_guard_kept_from_the_model_does_not_reach_it_with_the_next_turn(
    stage: Stage, left: list[str]
) -> None:
    """Nor does it keep the session from going on: a guard is shown what is new to the model."""

    async def main() -> None:
        store, client = MemoryEventStore(), StrictClient(echo)
        handler = LLMHandler(client, guards=[NoAttack(stage)])
        async with Engine(store, [handler], algorithms=[AGENT], poll_s=0.01) as engine:
            session = await engine.start_session()
            outcomes = [await outcome(await session.send(word)) for word in ("fine", "attack")]
            assert outcomes == ["COMPLETED", "BLOCKED"]
            assert texts(await session.history()) == ["fine", "2 fine", *left]
            again = await (await session.send("fine")).result()
            assert (again.outcome, again.output) == ("COMPLETED", f"{4 + len(left)} fine")
            assert await faults(store) == []

    run(main())


def test_a_session_goes_on_in_another_process_between_turns_and_inside_them() -> None:
    class Shared(MemoryEventStore):
        """Stays open when an engine is closed."""

        async def close(self) -> None:
            pass

    async def main() -> None:
        store, gate = Shared(), Gate()
        async with talk(store) as engine:
            session = await engine.start_session()
            await (await session.send("one")).result()
        async with talk(store, gate.answer) as engine:
            turn = await engine.session(session.id).send("two")
            waiting = asyncio.create_task(turn.result())
            await gate.asked.wait()
        with pytest.raises(RunAbandoned):
            await waiting
        async with talk(store) as engine:
            session = engine.session(session.id)
            (_, again) = await session.turns()
            assert (await again.result()).output == "4 two"
            assert (await (await session.send("three")).result()).output == "6 three"
            assert await faults(store) == []

    run(main())


def test_a_process_that_drives_nothing_sends_and_a_worker_answers(tmp_path: Path) -> None:
    async def main() -> None:
        desk_store, work_store = (SQLiteEventStore(tmp_path / "log.db") for _ in range(2))
        async with talk(desk_store, drive=False) as desk, talk(work_store) as engine:
            worker = Worker(engine, max_runs=1, poll_s=0.02)
            working = asyncio.create_task(worker.run())
            session = await desk.start_session()
            turns = [await session.send(word) for word in ("a", "b")]
            assert [(await turn.result()).output for turn in turns] == ["2 a", "4 b"]
            assert [piece async for piece in turns[0].live()] == []
            assert texts(await session.history()) == ["a", "2 a", "b", "4 b"]
            await session.close()
            assert (await session.run.result()).outcome == "COMPLETED"
            worker.stop()
            await working

    run(main())


def test_another_engine_answers_a_turn_that_this_one_cannot() -> None:
    class Shared(MemoryEventStore):
        async def close(self) -> None:
            pass

    async def main() -> None:
        store = Shared()
        other = make_engine(StrictClient(echo), store=store, agent=React("other"))
        async with talk(store) as engine, other:
            session = await engine.start_session()
            await engine.hosted(session.id)
            turn = await other.session(session.id).send("hi")
            with pytest.raises(UnknownAlgorithm):
                await turn.result()
            seen = engine.session(session.id)
            (again,) = await seen.turns()
            assert (await again.result()).output == "2 hi"
            with pytest.raises(UnknownAlgorithm):
                await other.session(session.id).history()

    run(main())


def test_what_turns_spend_counts_for_the_session_and_ends_it() -> None:
    def think(_: Sequence[Message]) -> Reply:
        return Reply((Text("ok"),), Usage(input_tokens=10, output_tokens=5, cost=0.5))

    async def main() -> tuple[Result, list[Any]]:
        store = MemoryEventStore()
        async with talk(store, think) as engine:
            budget = Budget(llm_calls=2, tokens=100)
            session = await engine.start_session(
                budget=budget, turn_budget=Budget(tokens=20, depth=1)
            )
            turns = [await session.send(word) for word in ("a", "b", "c")]
            assert [await outcome(turn) for turn in turns[:2]] == ["COMPLETED"] * 2
            with pytest.raises(SessionClosed) as caught:
                await turns[2].result()
            assert caught.value.outcome == "LIMITED"
            budgets = [e.data.get("budget") for e in await store.read(session.id)]
            assert await faults(store) == []
            return await session.run.result(), [each for each in budgets if each]

    ended, budgets = run(main())
    assert (ended.outcome, ended.reason) == ("LIMITED", "llm_calls")
    assert (ended.spend.tokens, ended.spend.cost, ended.spend.llm_calls) == (30, 1.0, 2)
    assert budgets[1:] == [
        {"tokens": 20, "llm_calls": 2, "depth": 1},
        {"tokens": 20, "llm_calls": 1, "depth": 1},
    ]


def test_a_tenants_session_has_turns_of_the_tenant_below_it() -> None:
    async def main() -> None:
        store = MemoryEventStore()
        async with talk(store) as engine:
            session = await engine.start_session(tenant="t")
            turn = await session.send("hi")
            await turn.result()
            (info,) = await store.runs(RunQuery(parent_id=session.id))
            assert (info.run_id, info.tenant, info.root_id) == (turn.run_id, "t", session.id)

    run(main())


def test_an_erased_session_is_not_there_for_those_who_wait() -> None:
    async def main() -> None:
        store, gate = MemoryEventStore(), Gate()
        async with talk(store, gate.answer) as engine:
            session = await engine.start_session()
            turn = await session.send("a")
            other = await session.send("b")
            await gate.asked.wait()
            await store.erase(turn.run_id)
            await store.erase(session.id)
            gate.open.set()
            for waiting in (turn.result(), other.result(), other.cancel()):
                with pytest.raises((RunNotFound, RunAbandoned)):
                    await waiting

    run(main())
