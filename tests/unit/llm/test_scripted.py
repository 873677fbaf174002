from collections.abc import Sequence
from typing import Any

import pytest

from lib.errors import LLMError, ScriptError, UnsupportedModality
from lib.llm import (
    Call,
    CutOff,
    Delta,
    FunctionClient,
    Image,
    Message,
    Reply,
    ScriptedClient,
    Text,
    ToolCall,
    ToolSpec,
    Usage,
)
from lib.testing.aio import run

HI = (Message.user("hi"),)


def test_steps_are_played_in_order_and_recorded():
    spec = ToolSpec("f", "does f", {"type": "object"})
    call = ToolCall("c1", "f", {"a": 1})
    usage = Usage(input_tokens=9)
    client = ScriptedClient(
        [Reply((call,)), lambda messages: messages[-1].text.upper(), Reply((), usage, "length")]
    )

    async def main() -> list[Reply]:
        with client:
            return [
                await client.complete(HI, tools=[spec], model="big", settings={"seed": 1}),
                await client.complete(HI),
                await client.complete(HI, state={"id": 1}, output={"type": "object"}),
            ]

    # 4 for the message and 1 for its two characters.
    assert run(main()) == [
        Reply((call,), Usage(input_tokens=5, output_tokens=2), "tool_calls", "big"),
        Reply((Text("HI"),), Usage(input_tokens=5, output_tokens=1), "stop", "scripted"),
        Reply((), usage, "length", "scripted"),
    ]
    assert client.calls == [
        Call(HI, "big", (spec,), settings={"seed": 1}),
        Call(HI),
        Call(HI, output={"type": "object"}, state={"id": 1}),
    ]


def test_an_answer_of_another_kind_is_refused_with_the_way_out():
    bare: Any = [ToolCall("c1", "f", {"a": 1})]

    with pytest.raises(ScriptError, match=r"not ToolCall: write calls as Reply\(\(ToolCall"):
        run(ScriptedClient(bare).complete(HI))


def test_a_stream_brings_small_pieces_and_then_the_reply():
    client = ScriptedClient(["a longer text"])

    async def main() -> list[Delta | Reply]:
        return [piece async for piece in client.stream(HI)]

    *deltas, reply = run(main())
    assert deltas == [Delta(text="a longer"), Delta(text=" text")]
    assert reply == Reply(
        (Text("a longer text"),), Usage(input_tokens=5, output_tokens=4), model="scripted"
    )


def test_an_error_is_raised_and_a_cut_comes_after_its_text():
    busy = LLMError("busy", status=503, retryable=True)
    client = ScriptedClient([busy, busy, CutOff("half", busy), CutOff("half", busy)])
    seen: list[Delta | Reply] = []

    async def watch() -> None:
        async for piece in client.stream(HI):
            seen.append(piece)  # noqa: PERF401 - what came before the error counts

    async def main() -> None:
        for _ in range(2):
            for call in (client.complete(HI), watch()):
                with pytest.raises(LLMError) as caught:
                    await call
                assert caught.value is busy

    with client:
        run(main())

    assert seen == [Delta(text="half")]


def test_a_call_too_many_and_steps_left_over_are_failures():
    async def main() -> None:
        client = ScriptedClient(["one"])
        with pytest.raises(ScriptError, match="1 steps, only 0 were asked for"):
            client.verify()
        await client.complete(HI)
        client.verify()
        with pytest.raises(ScriptError, match="call 2 of a script that has 1 steps"):
            await client.complete(HI)

    run(main())


def test_an_error_inside_the_block_is_not_hidden_by_steps_left_over():
    with pytest.raises(KeyError), ScriptedClient(["one"]):
        raise KeyError

    with pytest.raises(ScriptError), ScriptedClient(["one"]):
        pass


def test_a_modality_that_was_not_declared_uses_up_no_step():
    message = Message.user(Image(url="u"))

    async def main() -> None:
        with pytest.raises(UnsupportedModality):
            await ScriptedClient(["x"]).complete([message])
        reply = await ScriptedClient(["x"], modalities=frozenset({"text", "image"})).complete(
            [message]
        )
        assert reply.text == "x"

    run(main())


def test_a_function_plain_or_async_answers_each_call():
    async def later(messages: Sequence[Message]) -> str:
        return f"{len(messages)} messages"

    async def main() -> list[str]:
        plain = FunctionClient(lambda _: Reply((Text("plain"),), model="own"))
        asynchronous = FunctionClient(later)
        return [
            (await plain.complete(HI)).text,
            (await plain.complete(HI)).model,
            (await asynchronous.complete(HI * 3)).text,
        ]

    assert run(main()) == ["plain", "own", "3 messages"]
