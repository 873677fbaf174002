"""Sessions over a server that keeps conversations: what is sent, and what survives."""

import asyncio
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from fakes.llm_server import API_KEY, Hang
from fakes.responses_server import ResponsesServer
from lib.algorithms import React
from lib.engine import Result
from lib.engine.api.check import request_check
from lib.events import Event, EventStore, MemoryEventStore, SQLiteEventStore
from lib.events import kinds as k
from lib.events.store import end_lease
from lib.events.verify import verify_store
from lib.llm import Delta, OpenAIClient, Reply, Text, Thinking, ToolCall
from lib.privacy import PatternRedactor

from .responses_agent import AGENT, engine

AGENT_PROGRAM = Path(__file__).with_name("responses_agent.py")
WORDS = ["one", "look", "two"]
NUMBER = "4111111111111111"
"""Which a redactor takes for that of a card."""


def think(body: dict[str, Any]) -> Any:
    """Answer with how many items the model sees, and what the last of them says."""
    seen = body["input"]
    last = seen[-1].get("content") or seen[-1].get("output")
    if last == "look":
        return Reply((Thinking("where?"), ToolCall(f"c{len(seen)}", "look", {"place": "here"})))
    return Reply((Thinking("hm"), Text(f"{len(seen)} {last}")))


class Shared(MemoryEventStore):
    async def close(self) -> None:
        pass


async def talk(
    server: ResponsesServer,
    words: Sequence[str],
    *,
    agent: React = AGENT,
    between: Callable[[int], None] = lambda _: None,
    **options: Any,
) -> tuple[list[Result], list[list[Event]]]:
    """Say the words in one session, each to an engine of its own, and return the turns."""
    store, session_id, results = Shared(), None, list[Result]()
    async with OpenAIClient("m", base_url=server.base_url, api_key=API_KEY) as client:
        for number, word in enumerate(words):
            between(number)
            async with engine(client, store, agent, **options) as running:
                session_id = session_id or (await running.start_session()).id
                session = running.session(session_id)
                results.append(await (await session.send(word)).result())
    assert await faults(store, agent) == []
    return results, [await store.read(result.run_id) for result in results]


async def faults(store: EventStore, agent: React = AGENT) -> list[Any]:
    return (await verify_store(store, checks=[request_check([agent], store)])).faults


def previous(server: ResponsesServer) -> list[Any]:
    return [request.body.get("previous_response_id") for request in server.requests]


def flags(log: Sequence[Event]) -> list[bool]:
    return [e.data.get("provider_state", False) for e in log if e.kind == k.LLM_REQUESTED]


async def test_only_what_is_new_is_sent_in_a_turn_and_across_turns() -> None:
    async with ResponsesServer(think) as server:
        results, logs = await talk(server, WORDS)
        assert [result.output for result in results] == ["2 one", "8 seen here", "11 two"]
        assert server.sent == [2, 1, 1, 1]
        assert previous(server) == [None, "resp_1", "resp_2", "resp_3"]
        assert [flags(log) for log in logs] == [[False], [True, True], [True]]
        assert server.refused == 0


async def test_the_answers_are_the_same_without_handles() -> None:
    async with ResponsesServer(think) as server:
        results, logs = await talk(server, WORDS, agent=React(system="be kind"))
        assert [result.output for result in results] == ["2 one", "8 seen here", "11 two"]
        assert server.sent == [2, 5, 8, 11]
        assert previous(server) == [None] * 4
        assert [flags(log) for log in logs] == [[False], [False, False], [False]]


@pytest.mark.parametrize("lost_status", [400, 404])
async def test_what_the_server_has_forgotten_costs_one_more_attempt(lost_status: int) -> None:
    async with ResponsesServer(think, lost_status=lost_status) as server:

        def forget(number: int) -> None:
            if number == 2:
                server.forget()

        results, logs = await talk(server, [*WORDS, "three"], between=forget)
        assert [each.output for each in results[2:]] == ["11 two", "14 three"]
        assert server.sent == [2, 1, 1, 11, 1]
        assert previous(server)[3:] == ["resp_3", None, "resp_4"]
        assert server.refused == 1
        attempts = [e.data.get("attempts") for e in logs[2] if e.kind == k.LLM_COMPLETED]
        assert attempts == [2]


async def test_a_gateway_that_ignores_handles_gives_no_wrong_answers_and_gets_no_more_of_them() -> (
    None
):
    async with ResponsesServer(think) as server:
        server.goes_on = False
        results, logs = await talk(server, WORDS)
        assert [result.output for result in results] == ["2 one", "8 seen here", "11 two"]
        assert server.sent == [2, 1, 5, 8, 11]  # one answer is paid for twice, no more
        assert [flags(log) for log in logs] == [[False], [True, False], [False]]


async def test_a_server_that_keeps_nothing_is_sent_everything() -> None:
    async with ResponsesServer(think) as server:
        server.keeps = False
        results, logs = await talk(server, WORDS)
        assert [result.output for result in results] == ["2 one", "8 seen here", "11 two"]
        assert server.sent == [2, 5, 8, 11]
        assert [flags(log) for log in logs] == [[False], [False, False], [False]]


async def test_sealed_reasoning_comes_back_in_a_conversation_that_is_sent_whole() -> None:
    """A redactor leaves the seal alone, or takes it away with what it has found in the summary."""

    def answer(body: dict[str, Any]) -> Reply:
        last = body["input"][-1]["content"]
        thought = "ask bob@example.org" if last == "two" else f"hm, {last}"
        return Reply((Thinking(thought, f"responses/127.0.0.1/rs_{NUMBER}/{NUMBER}"), Text("yes")))

    async with ResponsesServer(answer) as server:
        server.keeps = False
        await talk(server, ["one", "two", "look", "end"], redactor=PatternRedactor())
        last = server.requests[-1].body["input"]
        sealed = [item for item in last if item.get("type") == "reasoning"]
        assert [item["summary"][0]["text"] for item in sealed] == ["hm, one", "hm, look"]
        assert [item["id"] for item in sealed] == [f"rs_{NUMBER}"] * 2


async def test_reasoning_that_the_server_cannot_open_any_more_ends_no_session() -> None:
    async with ResponsesServer(think) as server:
        server.keeps = False

        def rekey(number: int) -> None:
            server.opens = number == 0

        results, logs = await talk(server, ["one", "two", "three"], between=rekey, attempts=2)
        assert [result.outcome for result in results] == ["COMPLETED"] * 3
        attempts = [e.data.get("attempts") for log in logs for e in log if "reply" in e.data]
        assert attempts == [None, 2, 2]


async def test_pieces_of_a_refused_attempt_are_not_mixed_with_those_of_the_next() -> None:
    async def main() -> list[tuple[int, str]]:
        async with (
            ResponsesServer(think) as server,
            OpenAIClient("m", base_url=server.base_url, api_key=API_KEY) as client,
            engine(client, MemoryEventStore()) as running,
        ):
            session = await running.start_session()
            await (await session.send("one")).result()
            server.forget()
            turn = await session.send("two")
            pieces = [(piece.attempt, piece.delta) async for piece in turn.deltas()]
            return [(attempt, delta.text) for attempt, delta in pieces if delta != Delta()]

    shown = [(attempt, text) for attempt, text in (await main()) if text]
    assert {attempt for attempt, _ in shown} == {2}
    assert "".join(text for _, text in shown) == "5 two"


# -- processes that die --------------------------------------------------------------------------


class Deadly(ResponsesServer):
    """Falls silent at the first request whose last item says `word`, so that one can be killed."""

    def __init__(self, word: str) -> None:
        super().__init__(self.answer)
        self.silent = asyncio.Event()
        self._word = word

    def answer(self, body: dict[str, Any]) -> Any:
        last = body["input"][-1]
        if not self.silent.is_set() and self._word in {last.get("content"), last.get("output")}:
            self.silent.set()
            return Hang()
        return think(body)


@pytest.mark.parametrize("forgets", [False, True])
@pytest.mark.parametrize("word", ["look", "seen here"])
async def test_a_killed_process_leaves_a_turn_that_another_one_finishes(
    tmp_path: Path, unmeasured: dict[str, str], word: str, *, forgets: bool
) -> None:
    path = str(tmp_path / "runs.db")

    before: list[Any] = [None, "resp_1"] if word == "look" else [None, "resp_1", "resp_2"]
    last = before[-1]
    after: list[Any] = [last, None] if forgets else [last]
    expected = [*before, *after, *(["resp_2"] if word == "look" else [])]
    async with Deadly(word) as server:
        client = OpenAIClient("m", base_url=server.base_url, api_key=API_KEY)
        async with client, engine(client, SQLiteEventStore(path)) as running:
            session = await running.start_session()
            assert (await (await session.send("one")).result()).output == "2 one"
        arguments = {"base_url": server.base_url, "store": path, "session": session.id}
        child = await asyncio.create_subprocess_exec(
            sys.executable, AGENT_PROGRAM, json.dumps({**arguments, "text": "look"}), env=unmeasured
        )
        await server.silent.wait()
        child.kill()
        await child.wait()
        if forgets:
            server.forget()
        store = SQLiteEventStore(path)
        async with client, engine(client, store) as running:
            for info in await store.runs():
                await end_lease(store, info)
            turn = await running.session(session.id).send("look", idempotency_key="look")
            assert (await turn.result()).output == "8 seen here"
            assert await faults(store) == []
        assert previous(server) == expected
