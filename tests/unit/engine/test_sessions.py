"""Sessions: conversations that go on, turn by turn, and what they may be given."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from lib.algorithms import React, SessionLoop
from lib.engine import Budget, Engine, LLMHandler, TurnHandler
from lib.errors import (
    ContentTooLarge,
    IdempotencyMismatch,
    LLMError,
    RunNotFound,
    SessionClosed,
    UnknownAlgorithm,
)
from lib.events import DirectoryBlobStore, MemoryEventStore, RunQuery
from lib.events import kinds as k
from lib.guards import GuardContent, Stage, Verdict
from lib.llm import Image, Message, Reply, Text, Usage
from lib.testing.agents import kinds, make_engine
from lib.testing.providers import StrictClient

from .session_kit import AGENT, echo, faults, in_session, outcome, talk, texts


async def status(engine: Engine, run_id: str) -> tuple[str, bool, str | None]:
    info = await engine.run(run_id).info()
    return info.status, info.ready, info.owner


async def test_each_turn_goes_on_with_the_conversation_of_those_before_it() -> None:
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


async def test_no_worker_holds_the_lease_of_a_session_between_turns() -> None:
    async with in_session() as (engine, session):
        await engine.wait_while_driven(session.id)
        assert await status(engine, session.id) == ("open", False, None)
        await (await session.send("one")).result()
        await engine.wait_while_driven(session.id)
        assert await status(engine, session.id) == ("open", False, None)


async def test_two_turns_sent_at_once_are_answered_in_the_order_of_the_log() -> None:
    store = MemoryEventStore()
    async with in_session(store) as (_, session):
        turns = await asyncio.gather(*(session.send(word) for word in ("a", "b", "c")))
        results = await asyncio.gather(*(turn.result() for turn in reversed(turns)))

        log = await store.read(session.id)
        signal_ids = [e.data["signal_id"] for e in log if e.kind == k.TURN_REQUESTED]
        assert [turn.id for turn in await session.turns()] == signal_ids
        assert [e.data["key"] for e in log if e.kind == k.TURN_COMPLETED] == signal_ids
        assert sorted(r.output[0] for r in results) == ["2", "4", "6"]
        open_turns = 0
        for event in log:  # one at a time
            open_turns += (event.kind == k.TURN_STARTED) - (event.kind == k.TURN_COMPLETED)
            assert open_turns in (0, 1)


async def test_a_repeated_key_gives_the_same_turn() -> None:
    async with in_session() as (engine, session):
        first = await session.send("one", idempotency_key="k")
        again = await session.send("one", idempotency_key="k")
        elsewhere = await engine.session(session.id).send("one", idempotency_key="k")
        assert first.run_id == again.run_id == elsewhere.run_id
        assert await first.result() == await again.result() == await elsewhere.result()
        with pytest.raises(IdempotencyMismatch) as caught:
            await session.send("two", idempotency_key="k")
        assert (caught.value.key, caught.value.run_id) == ("k", session.id)
        assert len(await session.turns()) == 1


async def test_two_processes_that_send_under_one_key_at_once_get_one_turn() -> None:
    store = MemoryEventStore()
    async with in_session(store) as (engine, session):
        await (await session.send("one", idempotency_key="k")).result()
        data = {"signal_id": "k", "input": [{"role": "user", "content": "one"}]}
        await engine.signal(session.id, k.TURN_REQUESTED, data)
        await (await session.send("two")).result()

        assert kinds(await store.read(session.id)).count("turn.started") == 2
        assert len(await session.turns()) == 2
        assert texts(await session.history()) == ["one", "2 one", "two", "4 two"]


async def test_a_session_is_opened_once_under_a_key() -> None:
    async with talk() as engine:
        one = await engine.start_session(tenant="t", idempotency_key="k")
        assert (await engine.start_session(tenant="t", idempotency_key="k")).id == one.id
        assert (await engine.start_session(tenant="u", idempotency_key="k")).id != one.id
        with pytest.raises(IdempotencyMismatch):
            await engine.start_session(
                tenant="t", turn_budget=Budget(tokens=1), idempotency_key="k"
            )


async def test_invalid_arguments_of_sessions_and_turns_are_refused() -> None:
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
        with pytest.raises(ValueError, match="got an empty text"):
            await session.send("hi", idempotency_key="")
        missing = engine.session("nowhere")
        for call in (missing.send("hi"), missing.history(), missing.turns(), missing.close()):
            with pytest.raises(RunNotFound):
                await call
        no_session = await engine.start("hi")
        with pytest.raises(ValueError, match="no session"):
            await engine.session(no_session.id).send("hi")


def test_two_algorithms_cannot_both_be_the_one_of_sessions() -> None:
    with pytest.raises(ValueError, match="'session'"):
        make_engine(StrictClient(echo), agent=React("session"))


async def test_large_attachments_of_a_turn_go_to_the_blob_store(tmp_path: Path) -> None:
    picture = Message.user("look", Image(data=b"x" * 300_000, media_type="image/png"))
    seen: list[int] = []

    def look(messages: Sequence[Message]) -> str:
        seen.extend(len(p.data or b"") for m in messages for p in m.parts if isinstance(p, Image))
        return "seen"

    store, blobs = MemoryEventStore(), DirectoryBlobStore(tmp_path)
    client = StrictClient(look, modalities=frozenset({"text", "image"}))
    async with make_engine(client, store=store, agent=AGENT, blobs=blobs) as engine:
        session = await engine.start_session()
        await (await session.send(picture)).result()
        await (await session.send("and now?")).result()
        assert sum(len(str(e.data)) for e in await store.read(session.id)) < 5_000
    async with in_session() as (engine, session):
        with pytest.raises(ContentTooLarge):
            await session.send(picture)
    assert seen == [300_000, 300_000]


async def test_an_engine_accepts_its_built_in_parts_as_arguments() -> None:
    handlers = [LLMHandler(StrictClient(echo)), TurnHandler()]
    algorithms = [AGENT, SessionLoop()]
    async with Engine(MemoryEventStore(), handlers, algorithms=algorithms) as engine:
        session = await engine.start_session()
        assert (await (await session.send("hi")).result()).output == "2 hi"


async def test_a_failed_turn_leaves_its_question_and_an_erased_one_nothing() -> None:
    def think(messages: Sequence[Message]) -> str:
        if messages[-1].text == "fail":
            raise LLMError("no", status=400)
        return echo(messages)

    store = MemoryEventStore()
    async with in_session(store, think) as (engine, session):
        for word in ("a", "fail", "b"):
            await (await session.send(word)).result()
        assert texts(await session.history()) == ["a", "2 a", "fail", "b", "5 b"]
        turns = await session.turns()
        await store.erase(turns[0].run_id)
    async with talk(store, think) as engine:
        session = engine.session(session.id)
        assert texts(await session.history()) == ["fail", "b", "5 b"]
        assert (await (await session.send("c")).result()).output == "5 c"
        assert [fault.rule for fault in await faults(store)] == []


class NoAttack:
    """A guard against one word."""

    name = "no attack"

    def __init__(self, stage: Stage) -> None:
        self.stages: frozenset[Stage] = frozenset({stage})

    async def check(self, content: GuardContent) -> Verdict:
        return Verdict(allowed="attack" not in content.text, reason="an attack")


@pytest.mark.parametrize(("stage", "left"), [("input", []), ("output", ["attack"])])
async def test_content_that_a_guard_blocked_does_not_reach_the_model_in_the_next_turn(
    stage: Stage, left: list[str]
) -> None:
    """Nor does it keep the session from going on: a guard is shown what is new to the model."""

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


async def test_the_spend_of_turns_counts_for_the_session_and_can_end_it() -> None:
    def think(_: Sequence[Message]) -> Reply:
        return Reply((Text("ok"),), Usage(input_tokens=10, output_tokens=5, cost=0.5))

    store = MemoryEventStore()
    async with talk(store, think) as engine:
        budget = Budget(llm_calls=2, tokens=100)
        session = await engine.start_session(budget=budget, turn_budget=Budget(tokens=20, depth=1))
        turns = [await session.send(word) for word in ("a", "b", "c")]
        assert [await outcome(turn) for turn in turns[:2]] == ["COMPLETED"] * 2
        with pytest.raises(SessionClosed) as caught:
            await turns[2].result()
        assert caught.value.outcome == "LIMITED"
        budgets = [e.data.get("budget") for e in await store.read(session.id)]
        assert await faults(store) == []
        ended, budgets = await session.run.result(), [each for each in budgets if each]
    assert (ended.outcome, ended.reason) == ("LIMITED", "llm_calls")
    assert (ended.spend.tokens, ended.spend.cost, ended.spend.llm_calls) == (30, 1.0, 2)
    assert budgets[1:] == [
        {"tokens": 20, "llm_calls": 2, "depth": 1},
        {"tokens": 20, "llm_calls": 1, "depth": 1},
    ]


async def test_a_tenants_session_has_turns_of_the_tenant_below_it() -> None:
    store = MemoryEventStore()
    async with talk(store) as engine:
        session = await engine.start_session(tenant="t")
        turn = await session.send("hi")
        await turn.result()
        (info,) = await store.runs(RunQuery(parent_id=session.id))
        assert (info.run_id, info.tenant, info.root_id) == (turn.run_id, "t", session.id)
