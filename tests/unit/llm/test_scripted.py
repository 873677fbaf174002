from collections.abc import Iterator, Sequence
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
    ToolResult,
    ToolSpec,
    Usage,
    estimate_tokens,
)
from lib.llm.scripted import KEPT_CONVERSATIONS

HI = (Message.user("hi"),)


async def test_steps_are_played_in_order_and_recorded():
    spec = ToolSpec("f", "does f", {"type": "object"})
    call = ToolCall("c1", "f", {"a": 1})
    usage = Usage(input_tokens=9)
    client = ScriptedClient(
        [Reply((call,)), lambda messages: messages[0].text.upper(), Reply((), usage, "length")]
    )

    called = (*HI, Message.assistant(call), Message.tool(ToolResult("c1", "yes")))
    shouted = (*called, Message.assistant("HI"), Message.user("so"))

    async def main() -> list[Reply]:
        with client:
            return [
                await client.complete(HI, tools=[spec], model="big", settings={"seed": 1}),
                await client.complete(called),
                await client.complete(shouted, state={"id": 1}, output={"type": "object"}),
            ]

    # 4 for the message and 1 for its two characters.
    assert (await main()) == [
        Reply((call,), Usage(input_tokens=5, output_tokens=2), "tool_calls", "big"),
        Reply((Text("HI"),), Usage(input_tokens=16, output_tokens=1), "stop", "scripted"),
        Reply((), usage, "length", "scripted"),
    ]
    assert client.calls == [
        Call(HI, "big", (spec,), settings={"seed": 1}),
        Call(called),
        Call(shouted, output={"type": "object"}, state={"id": 1}),
    ]


async def test_an_answer_of_another_kind_is_refused_with_the_way_out():
    bare: Any = [ToolCall("c1", "f", {"a": 1})]

    with pytest.raises(ScriptError, match=r"got ToolCall: write calls as Reply\(\(ToolCall"):
        await ScriptedClient(bare).complete(HI)


async def test_a_stream_brings_small_pieces_and_then_the_reply():
    client = ScriptedClient(["a longer text"])

    *deltas, reply = [piece async for piece in client.stream(HI)]
    assert deltas == [Delta(text="a longer"), Delta(text=" text")]
    assert reply == Reply(
        (Text("a longer text"),), Usage(input_tokens=5, output_tokens=4), model="scripted"
    )


async def test_an_error_is_raised_and_a_cut_comes_after_its_text():
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
        await main()

    assert seen == [Delta(text="half")]


async def test_a_call_too_many_and_steps_left_over_are_failures():
    client = ScriptedClient(["one"])
    with pytest.raises(ScriptError, match="1 steps, got only 0 calls"):
        client.verify()
    await client.complete(HI)
    client.verify()
    with pytest.raises(ScriptError, match="call 2 of a script that has 1 steps"):
        await client.complete([*HI, Message.assistant("one"), *HI])


def call(name: str, **arguments: Any) -> Reply:
    return Reply((ToolCall("c", name, arguments),))


def say_done(_: Sequence[Message]) -> str:
    return "done"


def replied(*replies: str | Reply, result: str = "ok") -> list[Message]:
    """Return a conversation with these replies; each call is answered."""
    messages = [Message.user("hi")]
    for each in replies:
        reply = Reply((Text(each),)) if isinstance(each, str) else each
        messages.append(reply.message)
        messages.append(
            Message.tool(ToolResult("c", result)) if reply.tool_calls else Message.user("more")
        )
    return messages


async def test_the_conversation_chooses_the_step_in_a_client_that_has_seen_nothing_before() -> None:
    pay, look = call("pay", amount=1), call("look")
    examples = [Message.user("2+2"), Message.assistant("4")]
    script = [pay, look, "done", "more"]
    cases: list[tuple[str, list[Any], list[Message], str]] = [
        ("a new run", script, replied(), "pay"),
        ("after one call", script, replied(pay), "look"),
        ("after two calls", script, replied(pay, look), "done"),
        ("the next turn of a session", script, replied(pay, look, "done"), "more"),
        ("arguments that were redacted", script, replied(call("pay", amount="*")), "look"),
        ("a text that was redacted", ["by ann", pay], replied("by ***"), "pay"),
        ("examples before the run's own words", script, [*examples, *replied()], "pay"),
        ("examples, then a call", script, [*examples, *replied(pay)], "look"),
        ("the rest of a script", ["done"], replied(pay), "done"),
        ("a function as the rest", [say_done], replied(pay), "done"),
        ("a result with the words of a step", [pay, "ok", "end"], replied(pay), "ok"),
        ("a failure before the answer", [pay, LLMError("busy"), "done"], replied(pay), "busy"),
    ]

    async def answer(steps: list[Any], messages: list[Message]) -> str:
        try:
            reply = await ScriptedClient(steps).complete(messages)
        except LLMError as error:
            return str(error)
        return reply.tool_calls[0].name if reply.tool_calls else reply.text

    assert {name: await answer(steps, sent) for name, steps, sent, _ in cases} == {
        name: expected for name, _, _, expected in cases
    }


async def test_each_conversation_gets_the_failures_before_an_answer_once() -> None:
    client = ScriptedClient([LLMError("busy", retryable=True), "fine"])

    async def outcome(text: str) -> str:
        try:
            return (await client.complete([Message.user(text)])).text
        except LLMError as error:
            return str(error)

    assert [await outcome(text) for text in ("a", "b", "a", "b", "a")] == [
        "busy",
        "busy",
        "fine",
        "fine",
        "fine",
    ]


async def test_the_steps_of_an_agent_that_is_called_follow_the_call() -> None:
    both = Reply((ToolCall("c1", "ask", {"task": "a?"}), ToolCall("c2", "ask", {"task": "b?"})))
    stock = call("stock")
    steps = [both, stock, "a!", "b!", "both"]
    results = Message.tool(ToolResult("c1", "a!"), ToolResult("c2", "b!"))
    ask = [ToolSpec("ask", "", {})]

    async def answer(messages: list[Message], tools: Sequence[ToolSpec] = ()) -> Reply:
        return await ScriptedClient(steps).complete(messages, tools=tools)

    question = [Message.user("a?")]
    boss = [Message.user("go"), both.message, results]
    replies = [
        await answer([*question, stock.message, Message.tool(ToolResult("c", "7"))]),
        await answer([Message.user("b?")]),
        await answer(boss, ask),
    ]
    assert (await answer(question)).tool_calls == stock.tool_calls
    # Who may make the call itself was not called by it.
    assert (await answer(question, ask)).tool_calls == both.tool_calls
    assert [reply.text for reply in replies] == ["a!", "b!", "both"]


async def test_what_a_conversation_shows_counts_as_played() -> None:
    with ScriptedClient([call("pay"), "done"]) as client:
        await client.complete(replied(call("pay")))


async def test_a_client_keeps_as_many_calls_as_it_is_to_keep() -> None:
    def answer(_: Sequence[Message]) -> str:
        return "x"

    async def main(**options: Any) -> int:
        client = FunctionClient(answer, **options)
        for _ in range(1_002):
            await client.complete(HI)
        return len(client.calls)

    kept = {most: (await main(keep_calls=most)) for most in (0, 2, None)}
    assert kept == {0: 0, 2: 2, None: 1_002}
    assert (await main()) == 1_000
    with pytest.raises(ValueError, match="keep_calls is 0 or more"):
        ScriptedClient([], keep_calls=-1)


def test_an_error_inside_the_block_is_not_hidden_by_steps_left_over():
    with pytest.raises(KeyError), ScriptedClient(["one"]):
        raise KeyError

    with pytest.raises(ScriptError), ScriptedClient(["one"]):
        pass


async def test_a_modality_that_was_not_declared_uses_up_no_step():
    message = Message.user(Image(url="u"))

    with pytest.raises(UnsupportedModality):
        await ScriptedClient(["x"]).complete([message])
    reply = await ScriptedClient(["x"], modalities=frozenset({"text", "image"})).complete([message])
    assert reply.text == "x"


async def test_a_function_plain_or_async_answers_each_call():
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

    assert (await main()) == ["plain", "own", "3 messages"]


async def test_the_estimate_of_a_conversation_is_the_same_whatever_was_sent_before():
    long = [Message.user(str(number) * number) for number in range(100)]
    sent = [long[:40], long, long[:60], [*long[:50], *HI], long, HI, [], [*long[:60], *HI]]

    async def main() -> list[tuple[int, int]]:
        client = FunctionClient(lambda _: "x")
        replies = [await client.complete(messages) for messages in sent]
        return [
            (reply.usage.input_tokens, estimate_tokens(messages))
            for reply, messages in zip(replies, sent, strict=True)
        ]

    for number, (estimated, expected) in enumerate(await main()):
        assert estimated == expected, number


async def test_of_a_conversation_that_grows_only_what_is_new_is_looked_at():
    class Parts(tuple[Text, ...]):
        __slots__ = ()
        looks = 0

        def __iter__(self) -> Iterator[Text]:
            Parts.looks += 1
            return super().__iter__()

    client = FunctionClient(lambda _: Reply((Text("x"),), Usage(input_tokens=1)))
    messages, looks = list[Message](), list[int]()
    for turn in range(200):
        messages += [Message("user", Parts((Text(str(turn)),))), Message.assistant("x")]
        Parts.looks = 0
        await client.complete(messages)
        looks.append(Parts.looks)
        await client.complete([Message.user("another conversation")])
    assert len(set(looks)) == 1


async def test_of_conversations_that_were_not_sent_for_long_nothing_is_kept():
    client = FunctionClient(lambda _: "x")
    for number in range(KEPT_CONVERSATIONS + 10):
        reply = await client.complete([Message.user("a" * number)])
        assert reply.usage.input_tokens == estimate_tokens([Message.user("a" * number)])
    with pytest.raises(UnsupportedModality):
        await client.complete([*HI, Message.user(Image(url="https://e.org/i.png"))])
