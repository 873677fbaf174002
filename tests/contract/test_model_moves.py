"""A conversation moves between providers with calls and thinking, and each server takes it."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest

from fakes.llm_server import ModelServer
from fakes.model_wires import WIRES
from lib.agent import Agent
from lib.context import ClipToolOutputs, KeepLast, Summarize
from lib.llm import (
    Delta,
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

SPEC = ToolSpec("search", "Search.", {"type": "object", "properties": {"q": {"type": "string"}}})


def script(name: str, turns: int) -> list[Reply]:
    """Return the answers of a server that thinks and calls before it answers."""
    answers: list[Reply] = []
    for turn in range(turns):
        seal = f"seal{name}{turn}".ljust(12, "=")
        call = ToolCall(f"{name[:6]:x<6}{turn:03}", "search", {"q": name})
        answers += [
            Reply((Thinking(f"{name} thinks.", seal), Text("Wait."), call)),
            Reply((Thinking("So.", seal + "2"), Text(f"{name} answers."))),
        ]
    return answers


async def turn(client: Any, talk: list[Message], *, stream: bool, model: str | None = None) -> None:
    """Take one turn: the user speaks, the model calls, gets the results and answers."""
    talk.append(Message.user("Go on."))
    for _ in range(2):
        if stream:
            *_, reply = [piece async for piece in client.stream(talk, model=model, tools=[SPEC])]
        else:
            reply = await client.complete(talk, model=model, tools=[SPEC])
        talk.append(reply.message)
        if reply.tool_calls:
            talk.append(Message.tool(*[ToolResult(each.id, "found") for each in reply.tool_calls]))
    talk[:] = [message_from_json(json.loads(json.dumps(message_to_json(each)))) for each in talk]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_a_conversation_moves_through_all_providers_and_back(*, stream: bool) -> None:
    talk = [Message.system("Be brief.")]

    async with AsyncExitStack() as stack:
        clients: list[tuple[str, ModelServer, Any]] = []
        for name, wire in WIRES.items():
            server = await stack.enter_async_context(wire.serve(script(name, 2)))
            client: Any = wire.connect(server.base_url, **wire.options)
            clients.append((name, server, await stack.enter_async_context(client)))
        for name, server, client in (*clients, *reversed(clients)):
            await turn(client, talk, stream=stream)
            assert talk[-1].text == f"{name} answers."
            sent = json.dumps([request.body for request in server.requests])
            others = [f"seal{other}" for other in WIRES if other != name]
            assert not [seal for seal in others if seal in sent]
        for name, server, _ in clients:
            last = json.dumps(server.requests[-1].body)
            own = f"seal{name}0".ljust(12, "=")
            assert (own in last) == WIRES[name].thinking


SEALING = [name for name, wire in WIRES.items() if wire.thinking and name != "responses"]
"""Wires whose seals are of one model; OpenAI's server leaves out what its model cannot read."""


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("name", SEALING)
async def test_a_model_gets_back_what_it_has_sealed_and_nothing_of_another_model(
    name: str, *, stream: bool
) -> None:
    wire, models = WIRES[name], ("m", "arn:aws:m/2" if name == "bedrock" else "m2")
    answers = [each for number in range(4) for each in script(f"{number}", 1)]
    talk = [Message.system("Be brief.")]

    async with wire.serve(answers) as server, wire.connect(server.base_url) as client:
        for number in range(4):
            await turn(client, talk, stream=stream, model=models[number % 2])
        first, second = [json.dumps(server.requests[place].body) for place in (5, 7)]

    assert [f"seal{number}0" in first for number in range(4)] == [True, False, True, False]
    assert [f"seal{number}0" in second for number in range(4)] == [False, True, False, True]


@pytest.mark.parametrize("name", SEALING)
async def test_a_seal_of_an_older_log_names_no_model_and_goes_back(name: str) -> None:
    wire, talk = WIRES[name], [Message.system("Be brief.")]

    async with wire.serve([*script("0", 1), "Ok."]) as server:
        connected: Any = wire.connect(server.base_url)
        async with connected as client:
            await turn(client, talk, stream=False)
            written = json.dumps([message_to_json(each) for each in talk])
            assert "@m/" in written
            older = json.loads(written.replace("@m/", "/"))
            again = [*map(message_from_json, older), Message.user("Go on.")]
            await client.complete(again, tools=[SPEC])
        sent = json.dumps(server.requests[-1].body)

    assert "seal00" in sent


class Moving:
    """A client that moves to another one with each turn of the user."""

    name = "moving"
    model = "m"
    modalities = frozenset({"text"})

    def __init__(self, clients: Sequence[Any]) -> None:
        self.clients = clients

    def _client(self, messages: Sequence[Message]) -> Any:
        turns = sum(message.role == "user" for message in messages)
        return self.clients[(turns - 1) % len(self.clients)]

    async def complete(self, messages: Sequence[Message], **options: Any) -> Reply:
        return await self._client(messages).complete(messages, **options)

    async def stream(
        self, messages: Sequence[Message], **options: Any
    ) -> AsyncIterator[Delta | Reply]:
        async for piece in self._client(messages).stream(messages, **options):
            yield piece


def search(q: str) -> str:
    """Search."""
    return f"found {q}"


@pytest.mark.parametrize("names", [*permutations(["anthropic", "gemini", "bedrock"])])
async def test_a_session_moves_between_three_providers(names: Sequence[str], tmp_path: Any) -> None:
    async with AsyncExitStack() as stack:
        clients: list[Any] = []
        for name in names:
            wire = WIRES[name]
            server = await stack.enter_async_context(wire.serve(script(name, 2)))
            client: Any = wire.connect(server.base_url)
            clients.append(await stack.enter_async_context(client))
        agent = Agent(Moving(clients), tools=[search])
        answers, opened = list[str](), ""
        for half in range(2):  # the second half in another engine, which reads the log
            async with agent.engine(str(tmp_path / "runs.db")) as engine:
                session = engine.session(opened) if opened else await agent.session(engine)
                opened = session.id
                for _ in range(3):
                    result = await (await session.send(f"Go on {half}.")).result()
                    answers.append(result.output)
        assert answers == [f"{name} answers." for name in (*names, *names)]


@pytest.mark.parametrize("name", WIRES)
@pytest.mark.parametrize(
    "policies",
    [[KeepLast(4)], [ClipToolOutputs(64, keep_last=1), Summarize(400)]],
    ids=["keep-last", "summarize"],
)
async def test_each_server_takes_what_is_left_of_a_long_session(
    name: str, policies: Sequence[Any]
) -> None:
    """A cut leaves no call without its result, and begins with a message of the user."""
    wire, turns = WIRES[name], 6
    answers = [each for turn in range(turns) for each in script(name, turn + 1)[-2:]]
    summarizer = FunctionClient(lambda _: "They went on.")
    for number, policy in enumerate(policies):
        if isinstance(policy, Summarize):
            policies = [*policies[:number], replace(policy, model=summarizer)]
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(wire.serve(answers))
        client: Any = wire.connect(server.base_url, **wire.options)
        client = await stack.enter_async_context(client)
        agent = Agent(client, tools=[search], instructions="Be brief.", context=policies)
        engine = await stack.enter_async_context(agent.engine())
        session = await agent.session(engine)
        for turn in range(turns):
            result = await (await session.send(f"Go on {turn}. " + "q" * 400)).result()
            assert (result.outcome, result.output) == ("COMPLETED", f"{name} answers.")
        sent = [json.dumps(request.body) for request in server.requests]

    assert "Go on 0." not in sent[-1]
    assert "Be brief." in sent[-1]
    assert ("They went on." in sent[-1]) == bool(summarizer.calls)
