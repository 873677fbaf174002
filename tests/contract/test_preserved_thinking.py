"""Thinking goes back where it stood, and stays out where what stood before it has changed.

The servers refuse thinking behind a changed beginning, as Anthropic and AWS do for accounts since
2026-08-31. Each case is one request after two turns of thinking, calls and answers.
"""

import json
import re
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import pytest

from fakes.anthropic_server import AnthropicServer
from fakes.llm_server import ModelServer, Raw
from fakes.model_wires import WIRES
from lib.agent import Agent
from lib.context import ClipToolOutputs, KeepLast, Policy, Summarize
from lib.errors import LLMError
from lib.llm import (
    FunctionClient,
    Message,
    Reply,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    ToolSpec,
    message_from_json,
    message_to_json,
)

SEARCH = ToolSpec("search", "Search.", {"type": "object", "properties": {"q": {"type": "string"}}})
OTHER = ToolSpec("count", "Count.", {"type": "object"})
ANY_OBJECT = {"type": "object", "additionalProperties": True}  # no wire can enforce it
BINDING = ["anthropic", "bedrock"]
SEALS = ["seal0a", "seal0b", "seal1a", "seal1b"]
Talk = list[Message]


@asynccontextmanager
async def serving(name: str, answers: Any) -> AsyncGenerator[tuple[ModelServer, Any]]:
    """Yield a strict server and its client."""
    async with WIRES[name].serve(answers) as server:
        client: Any = WIRES[name].connect(server.base_url)
        async with client:
            yield server, client


def script() -> list[Reply]:
    return [
        reply
        for turn in range(2)
        for reply in (
            Reply((Thinking("Hm.", f"seal{turn}a"), ToolCall(f"call{turn}", "search", {"q": "a"}))),
            Reply((Thinking("So.", f"seal{turn}b"), Text("Found."))),
        )
    ]


async def two_turns(client: Any, **options: Any) -> Talk:
    talk = [Message.system("Be brief.")]
    for turn in range(2):
        talk.append(Message.user(f"Search {turn}."))
        talk.append((await client.complete(talk, tools=[SEARCH], **options)).message)
        talk.append(Message.tool(ToolResult(f"call{turn}", f"result {turn}")))
        talk.append((await client.complete(talk, tools=[SEARCH], **options)).message)
    return talk


def clipped(talk: Talk) -> Talk:
    """Return the talk with the result of the first turn cut."""
    return [*talk[:3], Message.tool(ToolResult("call0", "res…")), *talk[4:]]


def without_first_thought(talk: Talk) -> Talk:
    calls = tuple(part for part in talk[2].parts if isinstance(part, ToolCall))
    return [*talk[:2], replace(talk[2], parts=calls), *talk[3:]]


@dataclass(frozen=True, slots=True)
class Case:
    """A change of a talk, of tools or output, and the seals that still go back."""

    change: Callable[[Talk], Talk]
    seals: Sequence[str]
    tools: Sequence[ToolSpec] = (SEARCH,)
    output: Mapping[str, Any] | None = None


CASES = {
    "nothing": Case(lambda talk: talk, SEALS),
    "instructions": Case(lambda talk: [Message.system("Be long."), *talk[1:]], []),
    "no-instructions": Case(lambda talk: talk[1:], []),
    "another-tool": Case(lambda talk: talk, [], tools=(SEARCH, OTHER)),
    "no-tools": Case(lambda talk: talk, [], tools=()),
    "shape-as-instruction": Case(lambda talk: talk, [], output=ANY_OBJECT),
    "first-turn-cut": Case(lambda talk: [talk[0], *talk[5:]], []),
    "summary": Case(lambda talk: [talk[0], Message.user("They searched."), *talk[5:]], []),
    "first-result-clipped": Case(clipped, SEALS[:1]),
    "first-thought-lost": Case(without_first_thought, []),
    "recalled": Case(lambda talk: [*talk[:5], Message.user("A fact."), *talk[5:]], SEALS[:2]),
    "last-answer-cut": Case(lambda talk: talk[:-1], SEALS[:3]),
}


def seals_in(body: Mapping[str, Any]) -> list[str]:
    text = json.dumps(body)
    return [seal for seal in SEALS if f'"{seal}"' in text]


@pytest.mark.parametrize("name", BINDING)
@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
async def test_thinking_goes_back_as_far_as_nothing_before_it_has_changed(
    case: Case, name: str
) -> None:
    async with serving(name, [*script(), "Ok.", "Ok."]) as (server, client):
        talk = case.change(await two_turns(client))
        if talk[-1].role == "assistant":
            talk.append(Message.user("And?"))
        reply = await client.complete(talk, tools=case.tools, output=case.output)
        sent = seals_in(server.requests[-1].body)
        # What is said from here on goes on behind the changed beginning.
        talk += [reply.message, Message.user("And?")]
        await client.complete(talk, tools=case.tools, output=case.output)

    assert sent == seals_in(server.requests[-1].body) == [*case.seals]


@pytest.mark.parametrize("name", BINDING)
async def test_what_is_thought_behind_a_change_goes_back_behind_it(name: str) -> None:
    answers = [*script(), Reply((Thinking("Hm.", "seal2"), Text("Ok."))), "Ok."]
    async with serving(name, answers) as (server, client):
        talk = [Message.system("Be long."), *(await two_turns(client))[1:], Message.user("And?")]
        talk.append((await client.complete(talk, tools=[SEARCH])).message)
        await client.complete([*talk, Message.user("And?")], tools=[SEARCH])

    sent = json.dumps(server.requests[-1].body)
    assert seals_in(server.requests[-1].body) == []
    assert '"seal2"' in sent


@pytest.mark.parametrize("name", BINDING)
async def test_the_server_refuses_what_would_go_back_without_that_rule(name: str) -> None:
    """The rule is of the server: thinking whose seal names no place goes back and is refused."""
    async with serving(name, script()) as (_, client):
        talk = await two_turns(client)
        older = [Message.system("Be long."), *(unbound(message) for message in talk[1:])]
        with pytest.raises(LLMError) as caught:
            await client.complete([*older, Message.user("And?")], tools=[SEARCH])

    assert caught.value.status == 400


def unbound(message: Message) -> Message:
    """Return a message as an older log has it."""
    return message_from_json(
        json.loads(re.sub("~[0-9a-f]+@", "@", json.dumps(message_to_json(message))))
    )


@pytest.mark.parametrize("name", BINDING)
async def test_models_with_a_budget_for_thinking_get_what_led_to_their_calls(
    name: str,
) -> None:
    thinking = {"thinking": {"type": "enabled", "budget_tokens": 1024}}
    settings = {"additionalModelRequestFields": thinking} if name == "bedrock" else thinking
    async with serving(name, [*script(), "Ok."]) as (server, client):
        talk = await two_turns(client, settings=settings)
        cut = [talk[0], *talk[5:-1]]  # in the middle of the second turn
        await client.complete(cut, tools=[SEARCH], settings=settings)

    assert seals_in(server.requests[-1].body) == ["seal1a"]


async def test_thinking_that_the_server_does_not_show_goes_back_as_it_came() -> None:
    """Newer models leave the text of thinking empty, and sign it all the same."""
    blocks = [
        {"type": "thinking", "thinking": "", "signature": "c2VhbA=="},
        {"type": "text", "text": "Ok."},
    ]
    message: dict[str, Any] = {
        "type": "message",
        "content": blocks,
        "stop_reason": "end_turn",
        "usage": {},
    }
    raw = Raw(body=json.dumps(message).encode(), headers={"content-type": "application/json"})
    async with serving("anthropic", [raw]) as (server, client):
        talk = [Message.user("Hi.")]
        talk.append((await client.complete(talk)).message)
        with pytest.raises(LLMError):  # the server has not signed what the test has
            await client.complete([*talk, Message.user("And?")])

    assert server.requests[-1].body["messages"][1]["content"] == blocks


def search(q: str) -> str:
    """Search."""
    return f"found {q} " * 100


SUMMARIZER = FunctionClient(lambda _: "They went on.")
POLICIES: Mapping[str, Sequence[Policy]] = {
    "keep-last": [KeepLast(6)],
    "clip": [ClipToolOutputs(64, keep_last=1)],
    "summarize": [Summarize(400, keep_tokens=300, model=SUMMARIZER)],
}


@pytest.mark.parametrize("name", BINDING)
@pytest.mark.parametrize("policies", POLICIES.values(), ids=list(POLICIES))
async def test_a_session_goes_on_behind_each_cut_and_thinks_on(
    policies: Sequence[Policy], name: str
) -> None:
    turns = 6
    answers = [
        reply
        for turn in range(turns)
        for reply in (
            Reply((Thinking("Hm.", f"a{turn}"), ToolCall(f"call{turn}", "search", {"q": "a"}))),
            Reply((Thinking("So.", f"b{turn}"), Text("Found."))),
        )
    ]
    async with serving(name, answers) as (server, client):
        agent = Agent(client, tools=[search], instructions="Be brief.", context=policies)
        async with agent.engine() as engine:
            session = await agent.session(engine)
            for turn in range(turns):
                result = await (await session.send(f"Search {turn}. " + "q" * 200)).result()
                assert (result.outcome, result.output) == ("COMPLETED", "Found.")
        sent = [unmarked(request.body) for request in server.requests]

    grows = [now[: len(before)] == before for before, now in pairwise(sent)]
    answering = [f'"a{turn}"' in json.dumps(sent[2 * turn + 1]) for turn in range(turns)]
    assert answering == grows[::2]
    assert any(answering)
    assert not all(grows)


def unmarked(body: Any) -> list[Any]:
    """Return the messages of a request without marks of the cache."""
    text = json.dumps(body["messages"])
    return json.loads(re.sub(r', "cache_control": {.*?}|, {"cachePoint": {.*?}}', "", text))


def test_the_server_takes_a_text_in_place_of_blocks() -> None:
    body = {"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": "hi"}]}

    assert AnthropicServer([]).refuse(body) is None
