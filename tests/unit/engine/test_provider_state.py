"""State that providers keep is used where it is exactly ours, and never relied on."""

from collections.abc import Sequence
from typing import Any

from lib.algorithms import React
from lib.engine import Result
from lib.engine.api.check import request_check
from lib.events import Event, MemoryEventStore
from lib.events import kinds as k
from lib.events.verify import verify_store
from lib.llm import Message, Reply, ToolCall
from lib.privacy import PatternRedactor
from lib.testing.agents import make_engine
from lib.testing.providers import KeepingClient, StrictClient
from lib.tools import tool

AGENT = React(system="be kind", provider_state=True)


@tool(effects="none")
async def look(place: str) -> str:
    return f"seen {place}"


def think(messages: Sequence[Message]) -> Any:
    if messages[-1].text == "look":
        return Reply((ToolCall("c1", "look", {"place": "here"}),))
    return f"{len(messages)} {messages[-1].text}"


async def talk(
    client: Any, words: Sequence[str], *, agents: Sequence[React] = (AGENT,), **options: Any
) -> tuple[list[Result], list[list[Event]]]:
    """Say the words in one session, with each agent in turn; return results and turns' logs."""

    class Shared(MemoryEventStore):
        async def close(self) -> None:
            pass

    store, session_id, results = Shared(), None, list[Result]()
    for number, word in enumerate(words):
        agent = agents[number % len(agents)]
        async with make_engine(client, look, store=store, agent=agent, **options) as engine:
            session = engine.session(session_id) if session_id else await engine.start_session()
            session_id = session.id
            if word == "FORGET":
                client.forget()
            results.append(await (await session.send(word)).result())
        faults = (await verify_store(store, checks=[request_check([agent], store)])).faults
        assert faults == []
    return results, [await store.read(result.run_id) for result in results]


def flags(log: Sequence[Event]) -> list[bool]:
    return [e.data.get("provider_state", False) for e in log if e.kind == k.LLM_REQUESTED]


async def test_only_new_messages_are_sent_within_and_across_turns() -> None:
    client = KeepingClient(think)

    results, logs = await talk(client, ["one", "look", "two"])

    assert [result.output for result in results] == ["2 one", "6 ", "8 two"]
    assert client.sent == [2, 1, 1, 1]
    assert [flags(log) for log in logs] == [[False], [True, True], [True]]
    assert client.refused == 0
    assert not any("resp" in str(e.data) for log in logs for e in log if e.kind == k.LLM_REQUESTED)


async def test_a_handle_that_has_expired_costs_one_more_attempt_and_nothing_else() -> None:
    client, reference = KeepingClient(think), StrictClient(think)

    results, logs = await talk(client, ["one", "FORGET", "two"])
    expected, _ = await talk(reference, ["one", "FORGET_", "two"][:1])

    assert client.refused == 1
    assert client.sent == [2, 4, 1]
    assert results[0].output == expected[0].output
    attempts = [e.data.get("attempts") for e in logs[1] if e.kind == k.LLM_COMPLETED]
    assert attempts == [2]


async def test_a_run_makes_the_same_requests_with_and_without_the_handle() -> None:
    words = ["one", "look", "two", "look"]

    with_it, logs = await talk(KeepingClient(think), words)
    without, plain = await talk(StrictClient(think), words, agents=[React(system="be kind")])

    def digests(turns: Sequence[Sequence[Event]]) -> list[str]:
        return [e.data["digest"] for log in turns for e in log if e.kind == k.LLM_REQUESTED]

    assert [result.output for result in with_it] == [result.output for result in without]
    assert digests(logs) == digests(plain)


async def test_a_handle_is_used_only_for_its_own_conversation() -> None:
    client = KeepingClient(think)
    changed = React(system="be stern", provider_state=True)

    _, logs = await talk(client, ["one", "two", "three"], agents=[AGENT, changed])

    assert client.sent == [2, 4, 6]
    assert [flags(log) for log in logs] == [[False], [False], [False]]


async def test_a_reply_that_the_log_holds_differently_leaves_no_handle() -> None:
    def twice(messages: Sequence[Message]) -> Any:
        if len(messages) == 2:
            return Reply((ToolCall("c", "look", {"place": "a"}), ToolCall("c", "look", {})))
        return "done"

    client = KeepingClient(twice)
    _, logs = await talk(client, ["one"])
    assert flags(logs[0]) == [False, False]

    def filtered(messages: Sequence[Message]) -> Any:
        return Reply((ToolCall("c", "look", {}),), stop="content_filter")

    client = KeepingClient(filtered)
    _, logs = await talk(client, ["one", "two"])
    assert [flags(log) for log in logs] == [[False], [False]]

    def leak(messages: Sequence[Message]) -> Any:
        return "write to ada@example.org"

    client = KeepingClient(leak)
    _, logs = await talk(client, ["one", "two"], redactor=PatternRedactor())
    assert [flags(log) for log in logs] == [[False], [False]]


async def test_a_redactor_that_finds_nothing_leaves_the_handle() -> None:
    client = KeepingClient(think)

    await talk(client, ["one", "two"], redactor=PatternRedactor())

    assert client.sent == [2, 1]


async def test_provider_state_is_off_by_default() -> None:
    client = KeepingClient(think)

    await talk(client, ["one", "two"], agents=[React(system="be kind")])

    assert client.sent == [2, 4]


async def test_pieces_of_a_refused_attempt_are_not_mixed_with_those_of_the_next() -> None:
    client = KeepingClient(think)

    async def main() -> list[tuple[int, str]]:
        async with make_engine(client, look, agent=AGENT) as engine:
            session = await engine.start_session()
            await (await session.send("one")).result()
            client.forget()
            turn = await session.send("two")
            return [(piece.attempt, piece.delta.text) async for piece in turn.deltas()]

    assert (await main()) == [(2, "4 two")]
