"""A turn reads the conversation from the turns before it, and only once."""

from collections.abc import Sequence
from typing import Any

import pytest

from lib.algorithms import React
from lib.engine import Finish
from lib.engine.api.check import request_check
from lib.engine.core.conversation import Conversation, ProviderHandle, begin_conversation
from lib.engine.core.state import fold
from lib.engine.runtime.caches import ConversationCache
from lib.errors import UnknownAlgorithm
from lib.events import Event, MemoryEventStore
from lib.events import kinds as k
from lib.events.verify import verify_store
from lib.llm import Message
from lib.testing.agents import make_engine
from lib.testing.clock import ManualClock
from lib.testing.providers import StrictClient

AGENT = React()
AT = ManualClock().now()


def echo(messages: Sequence[Message]) -> str:
    return f"{len(messages)} {messages[-1].text}"


class Counting(MemoryEventStore):
    """Says what was read of which run, and stays open."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[tuple[str, int]] = []
        self.damaged: dict[str, list[dict[str, Any]]] = {}

    async def read(self, run_id: str, *, after: int = 0, limit: int | None = None) -> list[Event]:
        events = await super().read(run_id, after=after, limit=limit)
        self.reads.append((run_id, len(events)))
        if run_id in self.damaged and not after:
            del events[0].data["input"]
            events[0].data |= {"input": messages} if (messages := self.damaged[run_id]) else {}
        return events

    async def close(self) -> None:
        pass


async def conversation(store: MemoryEventStore, turns: int) -> tuple[str, list[str]]:
    async with make_engine(StrictClient(echo), store=store, agent=AGENT) as engine:
        session = await engine.start_session()
        sent = [await session.send(f"word {number}") for number in range(turns)]
        for turn in sent:
            await turn.result()
        return session.id, [turn.run_id for turn in sent]


async def test_the_next_turn_reads_the_last_one_only() -> None:
    store = Counting()
    async with make_engine(StrictClient(echo), store=store, agent=AGENT) as engine:
        session = await engine.start_session()
        turns = [await (await session.send(f"{number}")).result() for number in range(5)]
        store.reads.clear()
        await (await session.send("last")).result()

        whole = [run_id for run_id, count in store.reads if count > 1]
        assert set(whole) & {turn.run_id for turn in turns} == {turns[-1].run_id}


async def test_sessions_that_were_not_used_for_long_are_read_again() -> None:
    store = Counting()
    ids = [(await conversation(store, 2))[0] for _ in range(3)]
    conversations = ConversationCache(store, {"react": AGENT}, kept=2)
    for session_id in ids:
        past = await conversations.upto(session_id, 100)
        assert len(past.conversation) == 4
        assert not past.whole  # there are not so many events
    for session_id, expected in ((ids[2], 1), (ids[0], 3)):
        store.reads.clear()
        await conversations.upto(session_id, 100)
        assert len(store.reads) == expected


async def test_an_older_turn_is_rendered_with_the_conversation_it_continued() -> None:
    store = Counting()
    session_id, turns = await conversation(store, 3)
    conversations = ConversationCache(store, {"react": AGENT})
    starts = [(await store.read(turn, limit=1))[0] for turn in turns]
    lengths = [len((await conversations.before(start)).conversation) for start in reversed(starts)]
    assert lengths == [4, 2, 0]
    whole = (await conversations.upto(session_id, starts[-1].data["upto"])).conversation
    assert [message.text for message in whole][::2] == ["word 0", "word 1"]


async def test_an_algorithm_that_keeps_no_conversation_leaves_question_and_answer() -> None:
    class Parrot:
        name = "parrot"

        def config(self) -> dict[str, Any]:
            return {}

        def initial(self, started: Event, history: Sequence[Message] = ()) -> int:
            return len(history)

        def evolve(self, state: int, event: Event) -> int:
            return state

        def decide(self, state: int) -> Finish:
            return Finish(outcome="COMPLETED", output=f"after {state}" if state else "")

    store = Counting()
    engine = make_engine(StrictClient(echo), store=store, agent=Parrot())
    async with engine:
        session = await engine.start_session()
        outputs = [(await (await session.send(w)).result()).output for w in ("a", "b", "c")]
        assert outputs == ["", "after 1", "after 3"]
        texts = [message.text for message in await session.history()]
        assert texts == ["a", "b", "after 1", "c", "after 3"]


async def test_the_conversation_of_a_removed_algorithm_cannot_be_rendered() -> None:
    store = Counting()
    session_id, turns = await conversation(store, 2)
    with pytest.raises(UnknownAlgorithm, match="other"):
        await ConversationCache(store, {"other": AGENT}).upto(session_id, 100)
    checks = [request_check([React("other")], store), request_check([AGENT])]
    assert (await verify_store(store, checks=checks)).faults == []
    info = await store.run(turns[0])
    assert info is not None
    assert list(await request_check([AGENT], store)(info, [])) == []


async def test_a_turn_that_cannot_be_folded_leaves_its_question_and_answer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Brittle(React):
        def evolve(self, state: Any, event: Event) -> Any:
            if event.run_id == bad:
                raise ZeroDivisionError("a bug in evolve")
            return super().evolve(state, event)

    bad = ""

    async def main() -> None:
        nonlocal bad
        store, agent = Counting(), Brittle()
        session_id, (_, bad) = await conversation(store, 2)
        async with make_engine(StrictClient(echo), store=store, agent=agent) as engine:
            session = engine.session(session_id)
            result = await (await session.send("word 2")).result()
            assert result.output == "5 word 2"
            texts = [message.text for message in await session.history()]
            assert texts == [
                *("word 0", "1 word 0", "word 1", "3 word 1"),
                *("word 2", "5 word 2"),
            ]
        await store.setup()
        past = await ConversationCache(store, {"react": agent}).upto(session_id, 100)
        assert not past.whole
        faults = (await verify_store(store, checks=[request_check([React()], store)])).faults
        assert faults == []

    await main()
    (warned, *_) = [each for each in caplog.records if "cannot fold" in each.getMessage()]
    assert bad in warned.getMessage()


async def test_a_changed_conversation_is_found_by_the_deep_check() -> None:
    store = Counting()
    _, turns = await conversation(store, 2)
    store.damaged[turns[0]] = [{"role": "user", "content": "something else"}]
    faults = (await verify_store(store, checks=[request_check([AGENT], store)])).faults
    assert {(fault.run_id, fault.rule) for fault in faults} == {
        (turns[0], "request-digest"),
        (turns[1], "request-digest"),
    }
    faults = (await verify_store(store, checks=[request_check([AGENT])])).faults
    assert faults == []  # without the store, the conversation before a turn is unknown


async def test_an_unreadable_turn_is_reported_once_and_not_again_for_later_turns() -> None:
    store = Counting()
    _, turns = await conversation(store, 2)
    store.damaged[turns[0]] = []
    faults = (await verify_store(store, checks=[request_check([AGENT], store)])).faults
    assert [(fault.run_id, fault.rule) for fault in faults] == [(turns[0], "fold")]


def test_a_provider_handle_covers_exactly_its_own_messages() -> None:
    conversation = [Message.user("a"), Message.assistant("b"), Message.user("c")]
    proof = begin_conversation("sys", conversation[:2], [])[0]
    held = ProviderHandle({"id": "1"}, 3, proof.digest)

    for system, history, expected in [
        ("sys", conversation, held),
        ("sys", conversation[:2], held),
        ("sys", conversation[:1], None),
        ("", conversation, None),
        ("other", conversation, None),
        ("sys", [Message.user("x"), *conversation[1:]], None),
    ]:
        messages, found = begin_conversation(
            system, Conversation(history, held), [Message.user("new")]
        )
        assert found == expected
        plain, _ = begin_conversation(system, history, [Message.user("new")])
        assert (messages, list(messages)) == (plain, list(plain))
    assert len(begin_conversation("", Conversation([], ProviderHandle({}, 0, "")), [])[0]) == 0


@pytest.mark.parametrize("system", ["", "be kind", "be stern"])
def test_cached_hashes_are_reused_only_for_equal_messages(system: str) -> None:
    conversation = [Message.user("a"), Message.assistant("b")]
    new = [Message.user("new")]
    for before in ("", "be kind"):
        full, _ = begin_conversation(before, conversation, [])
        messages, _ = begin_conversation(system, Conversation(conversation, full=full), new)
        plain, _ = begin_conversation(system, conversation, new)
        assert (messages, list(messages)) == (plain, list(plain))


def test_a_run_that_is_cut_in_the_middle_leaves_no_call_without_its_result() -> None:
    start = {"algorithm": "react", "input": [{"role": "user", "content": "hi"}]}
    call = {"type": "tool_call", "id": "c", "name": "look"}
    events: list[tuple[str, dict[str, Any]]] = [
        (k.RUN_STARTED, start),
        (k.LLM_REQUESTED, {"key": "llm/1"}),
        (k.LLM_COMPLETED, {"key": "llm/1", "reply": {"parts": [call]}}),
    ]
    log = [Event("r", seq, kind, data, AT) for seq, (kind, data) in enumerate(events, 1)]

    assert [m.role for m in AGENT.conversation(fold(AGENT, log).loop)] == ["user"]


def test_an_empty_reply_is_not_part_of_the_conversation() -> None:
    start = {"algorithm": "react", "input": [{"role": "user", "content": "hi"}]}
    events: list[tuple[str, dict[str, Any]]] = [
        (k.RUN_STARTED, start),
        (k.LLM_REQUESTED, {"key": "llm/1"}),
        (k.LLM_COMPLETED, {"key": "llm/1", "reply": {}}),
    ]
    log = [Event("r", seq, kind, data, AT) for seq, (kind, data) in enumerate(events, 1)]

    assert [m.role for m in AGENT.conversation(fold(AGENT, log).loop)] == ["user"]
