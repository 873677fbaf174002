"""Tests what a user of the engine sees of a run, from its start to its end."""

from collections.abc import Sequence

import pytest

from lib.algorithms import React
from lib.engine import Budget, IdempotencyMismatch, Result, Spend
from lib.errors import LLMError
from lib.events import INLINE_LIMIT, MemoryBlobStore
from lib.events import kinds as k
from lib.llm import (
    Image,
    Message,
    Reply,
    ScriptedClient,
    Text,
    ToolCall,
    ToolResult,
    Usage,
    message_from_json,
)
from lib.testing.agents import kinds, make_engine
from lib.tools import ToolContext, tool

from .run_kit import add, play


def ask(*calls: ToolCall, usage: Usage | None = None) -> Reply:
    return Reply(calls, usage or Usage(), stop="tool_calls")


async def test_an_agent_calls_tools_until_it_answers() -> None:
    client = ScriptedClient(
        [
            ask(
                ToolCall("c1", "add", {"a": 1, "b": 2}),
                ToolCall("c2", "add", {"a": 3, "b": 4}),
                usage=Usage(input_tokens=10, output_tokens=5, cost=0.25),
            ),
            Reply((Text("3 and 7"),), Usage(input_tokens=20, output_tokens=2, cost=0.5)),
        ]
    )

    async def main() -> tuple[Result, Sequence[str]]:
        async with make_engine(client, add, agent=React(system="Be brief.")) as engine:
            started = await engine.start("What are 1+2 and 3+4?")
            result = await started.result()
            return result, kinds([event async for event in started.events()])

    with client:
        result, happened = await main()

    assert (result.outcome, result.output, result.reason) == ("COMPLETED", "3 and 7", "")
    assert (result.spend.tokens, result.spend.cost) == (37, 0.75)
    assert (result.spend.llm_calls, result.spend.tool_calls) == (2, 2)
    assert happened == [
        "run.started",
        "llm.requested",
        "llm.completed",
        "tool.requested",
        "tool.requested",
        "tool.completed",
        "tool.completed",
        "llm.requested",
        "llm.completed",
        "run.completed",
    ]
    assert client.calls[1].messages == (
        Message.system("Be brief."),
        Message.user("What are 1+2 and 3+4?"),
        Message.assistant(
            ToolCall("c1", "add", {"a": 1, "b": 2}), ToolCall("c2", "add", {"a": 3, "b": 4})
        ),
        Message.tool(ToolResult("c1", "3")),
        Message.tool(ToolResult("c2", "7")),
    )


async def test_a_conversation_can_be_continued_by_giving_its_messages() -> None:
    conversation = [Message.user("My name is Ada."), Message.assistant("Hello Ada.")]
    client = ScriptedClient([lambda messages: messages[0].text + messages[-1].text])

    async def main() -> str:
        async with make_engine(client) as engine:
            started = await engine.start([*conversation, Message.user("Who am I?")])
            return (await started.result()).output

    assert (await main()) == "My name is Ada.Who am I?"


async def test_the_same_key_gives_the_same_run_and_another_request_under_it_is_refused() -> None:
    client = ScriptedClient(["one answer"])

    async with make_engine(client) as engine:
        first = await engine.start("hi", idempotency_key="k", tenant="acme")
        result = await first.result()
        again = await engine.start("hi", idempotency_key="k", tenant="acme")

        assert (again.id, await again.result()) == (first.id, result)
        with pytest.raises(IdempotencyMismatch) as caught:
            await engine.start("something else", idempotency_key="k", tenant="acme")
        assert (caught.value.key, caught.value.run_id) == ("k", first.id)


async def test_a_key_belongs_to_its_tenant() -> None:
    client = ScriptedClient(["a", "b"])

    async with make_engine(client) as engine:
        ours = await engine.start("hi", idempotency_key="k", tenant="acme")
        theirs = await engine.start("hi", idempotency_key="k", tenant="globex")

        assert ours.id != theirs.id
        assert (await ours.info()).tenant == "acme"
        await ours.result()
        await theirs.result()


async def test_a_failed_model_call_ends_the_run_as_failed_with_what_happened() -> None:
    client = ScriptedClient([LLMError("the server refuses: no such model", status=404)])

    result, _ = await play(client)

    assert (result.outcome, result.reason) == ("FAILED", "llm")
    assert result.error == {
        "type": "LLMError",
        "message": "the server refuses: no such model",
        "status": 404,
    }


async def test_the_model_reads_a_tool_failure_and_the_run_goes_on() -> None:
    @tool
    def fragile() -> str:
        raise ValueError("disk on fire")

    client = ScriptedClient(
        [
            ask(
                ToolCall("c1", "fragile"),
                ToolCall("c2", "ad", {}),
                ToolCall("c3", "add", {"a": "x"}),
                ToolCall("c4", "add", {}, invalid='{"a": 1'),
            ),
            lambda messages: "\n".join(
                part.content
                for message in messages
                for part in message.parts
                if isinstance(part, ToolResult) and part.is_error
            ),
        ]
    )

    result, _ = await play(client, fragile, add)

    assert result.output.splitlines() == [
        "ValueError: disk on fire",
        "no tool is named 'ad': did you mean 'add'?",
        (
            "a: Input should be a valid integer, unable to parse string as an integer; "
            "b: Field required"
        ),
        "the arguments are no JSON object",
    ]


async def test_repeated_call_ids_of_a_model_are_made_unique() -> None:
    client = ScriptedClient(
        [
            ask(ToolCall("c", "add", {"a": 1, "b": 1}), ToolCall("c", "add", {"a": 2, "b": 2})),
            ask(ToolCall("c", "add", {"a": 3, "b": 3}), ToolCall("", "add", {"a": 4, "b": 4})),
            "done",
        ]
    )

    _, log = await play(client, add)
    keys = [event.data["key"] for event in log if event.kind == k.TOOL_COMPLETED]

    assert sorted(keys) == ["tool/1/c", "tool/1/c-2", "tool/2/c", "tool/2/call"]


async def test_a_tool_receives_its_caller_and_key() -> None:
    seen: list[ToolContext] = []

    @tool
    def remember(context: ToolContext) -> None:
        seen.append(context)

    client = ScriptedClient([ask(ToolCall("c1", "remember")), "done"])

    async def main() -> str:
        async with make_engine(client, remember, new_id=iter(["w", "r1"]).__next__) as engine:
            started = await engine.start("go", tenant="acme", user="ada")
            await started.result()
            return started.id

    assert (await main()) == "r1"
    assert seen == [
        ToolContext(run_id="r1", call_id="c1", idempotency_key="r1:1/c1", tenant="acme", user="ada")
    ]


async def test_an_agent_that_never_answers_is_stopped_at_its_last_step() -> None:
    client = ScriptedClient([ask(ToolCall("c", "add", {"a": 1, "b": 1}))] * 3)

    result, _ = await play(client, add, agent=React(max_steps=3))

    assert (result.outcome, result.reason, len(client.calls)) == ("LIMITED", "max_steps", 3)


@pytest.mark.parametrize(
    ("stop", "outcome", "reason"),
    [("length", "LIMITED", "length"), ("content_filter", "BLOCKED", "content_filter")],
)
async def test_a_truncated_reply_is_not_an_answer(stop: str, outcome: str, reason: str) -> None:
    client = ScriptedClient([Reply((Text("once upon"),), stop=stop)])  # pyright: ignore[reportArgumentType] - parametrised

    result, _ = await play(client)

    assert (result.outcome, result.reason, result.output) == (outcome, reason, "once upon")


async def test_large_attachments_go_to_the_blob_store_and_come_back_for_the_model() -> None:
    picture = b"p" * (INLINE_LIMIT + 1)
    question = Message.user("What is this?", Image(data=picture, media_type="image/png"))
    client = ScriptedClient(["a picture"], modalities=frozenset({"text", "image"}))

    async with make_engine(client, blobs=MemoryBlobStore()) as engine:
        started = await engine.start(question)
        await started.result()
        first = await engine.store.read(started.id, limit=1)
        kept = message_from_json(first[0].data["input"][0]).parts[1]
        assert isinstance(kept, Image)
        assert (kept.data, kept.blob and kept.blob.size) == (None, INLINE_LIMIT + 1)
    assert client.calls[0].messages == (question,)


async def test_events_can_be_followed_from_any_point_while_the_run_goes_on() -> None:
    client = ScriptedClient([ask(ToolCall("c", "add", {"a": 1, "b": 1})), "2"])

    async with make_engine(client, add) as engine:
        started = await engine.start("go")
        followed = [event async for event in started.events(after=2)]
        log = await engine.store.read(started.id)

        assert followed == log[2:]
        assert followed[-1].kind == "lib.run.completed"
        assert [event async for event in started.events(after=len(log))] == []


async def test_the_spend_of_a_run_is_what_it_used_and_nothing_before_it_began() -> None:
    async def main() -> Spend:
        async with make_engine(ScriptedClient([])) as engine:
            started = await engine.start("go", budget=Budget(llm_calls=0))
            result = await started.result()
            assert (result.outcome, result.reason) == ("LIMITED", "llm_calls")
            return result.spend

    assert (await main()) == Spend()


async def test_a_long_log_is_followed_page_by_page() -> None:
    async with make_engine(ScriptedClient(["done"])) as engine:
        started = await engine.start("go")
        for number in range(300):
            await engine.signal(started.id, "acme.note", {"number": number})
        await started.result()

        assert len([event async for event in started.events()]) == 304


async def test_watching_a_run_that_is_not_driven_here_ends_at_once() -> None:
    async with make_engine(ScriptedClient(["done"])) as engine:
        started = await engine.start("go")
        await started.result()
        assert [piece async for piece in started.deltas()] == []
