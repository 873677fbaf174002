"""A reply is the same in every dialect, however its bytes are cut; the official SDK agrees."""

import itertools
from dataclasses import replace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai import APIStatusError, AsyncOpenAI
from openai.types.chat import ChatCompletion

from fakes.llm_dialects import DIALECTS, ServerDialect, completion, event_stream
from fakes.llm_server import API_KEY, ChatServer, refused
from lib.llm import ChatClient, Message, Reply, Text, Thinking, ToolCall, ToolSpec, Usage
from lib.llm.api.streams import END_OF_STREAM, EventDecoder
from lib.llm.chat.client import take_event
from lib.llm.chat.reply import ReplyBuilder
from lib.llm.client import Delta, Stop
from lib.llm.parts import Part

texts = st.text(max_size=24)
plain = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | texts
arguments = st.dictionaries(
    texts, plain | st.lists(plain, max_size=2) | st.dictionaries(texts, plain), max_size=3
)
names = st.sampled_from(["search", "fetch"])


@st.composite
def replies(draw: st.DrawFn) -> Reply:
    parts: list[Part] = []
    if thinking := draw(texts):
        parts.append(Thinking(thinking))
    if text := draw(texts):
        parts.append(Text(text))
    calls = draw(st.lists(st.tuples(names, arguments), max_size=3))
    parts += [
        ToolCall(f"id{i}", name, call_arguments) for i, (name, call_arguments) in enumerate(calls)
    ]
    tokens = draw(st.integers(1, 1000))
    usage = Usage(input_tokens=tokens, output_tokens=2 * tokens, reasoning_tokens=tokens)
    ends: tuple[Stop, ...] = ("stop", "length", "content_filter")
    stop = "tool_calls" if calls else draw(st.sampled_from(ends))
    return Reply(tuple(parts), usage, stop, "m", "chatcmpl-7")


def as_decoded(reply: Reply, dialect: ServerDialect) -> Reply:
    """Return the reply without what the dialect leaves out."""
    new = map("new{}".format, itertools.count(1))
    parts: list[Part] = []
    for part in reply.parts:
        if isinstance(part, ToolCall):
            first = not any(isinstance(before, ToolCall) for before in parts)
            call_id = {"own": part.id, "absent": "", "same": "call_0" if first else ""}[dialect.ids]
            parts.append(replace(part, id=call_id or next(new)))
        elif dialect.thinking or not isinstance(part, Thinking):
            parts.append(part)
    usage = Usage() if dialect.usage == "absent" else reply.usage
    return replace(reply, parts=tuple(parts), usage=usage)


def builder() -> ReplyBuilder:
    return ReplyBuilder(used_ids=(), new_id=map("new{}".format, itertools.count(1)).__next__)


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)
@given(reply=replies(), step=st.integers(1, 200))
def test_a_streamed_reply_is_the_same_in_every_dialect(
    dialect: ServerDialect, reply: Reply, step: int
):
    stream = b"".join(event_stream(reply, dialect))
    pieces = [stream[start : start + step] for start in range(0, len(stream), step)]
    decoder, building = EventDecoder(), builder()
    deltas: list[Delta] = []
    for piece in [*pieces, END_OF_STREAM]:
        for event in decoder.feed(piece):
            deltas += take_event(event, building)

    assert building.reply() == as_decoded(reply, dialect)
    assert "".join(delta.text for delta in deltas) == reply.text


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)
@given(reply=replies())
def test_a_whole_reply_is_the_same_in_every_dialect(dialect: ServerDialect, reply: Reply):
    building = builder()
    building.add(completion(reply, dialect), whole=True)

    assert building.reply() == as_decoded(reply, dialect)


HI = [Message.user("hi")]
SPEC = ToolSpec("search", "Search", {"type": "object", "properties": {}})
REPLY = Reply(
    (Text("I search for ümläuts"), ToolCall("a", "search", {"q": "ü"}), ToolCall("b", "fetch")),
    Usage(input_tokens=9, output_tokens=7, cache_read_tokens=4, reasoning_tokens=2),
    "tool_calls",
    "m",
    "chatcmpl-7",
)


@pytest.mark.parametrize("slice_bytes", [None, 3])
@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)
async def test_the_client_reads_every_dialect_over_one_connection(
    dialect: ServerDialect, slice_bytes: int | None
):
    ids = itertools.cycle(["new1", "new2"])  # what each of the four calls makes anew
    new_id = ids.__next__ if dialect.ids == "absent" else lambda: "new1"

    answers = [REPLY] * 4
    async with ChatServer(answers, dialect=dialect, slice_bytes=slice_bytes) as server:
        client = ChatClient("m", base_url=server.base_url, api_key=API_KEY, new_id=new_id)
        for _ in range(2):
            whole = await client.complete(HI, tools=[SPEC])
            *deltas, streamed = [piece async for piece in client.stream(HI, tools=[SPEC])]
            assert whole == as_decoded(REPLY, dialect)
            assert streamed == as_decoded(REPLY, dialect)
            assert "".join(d.text for d in deltas if isinstance(d, Delta)) == REPLY.text
        await client.aclose()
        assert server.connections == 1


def official_client() -> AsyncOpenAI:
    """Return the SDK's client, made outside of an event loop since it reads files."""
    return AsyncOpenAI(base_url="http://127.0.0.1:1/v1", api_key=API_KEY, max_retries=0)


def from_the_sdk(answer: ChatCompletion) -> dict[str, Any]:
    """Return what the official SDK has read, in the form of `from_ours`."""
    message, usage = answer.choices[0].message, answer.usage
    assert usage is not None
    assert usage.prompt_tokens_details is not None
    assert usage.completion_tokens_details is not None
    return {
        "id": answer.id,
        "model": answer.model,
        "text": message.content,
        "calls": [
            (call.id, call.function.name)
            for call in message.tool_calls or ()
            if call.type == "function"
        ],
        "finish": answer.choices[0].finish_reason,
        "usage": (
            usage.prompt_tokens,
            usage.completion_tokens,
            usage.prompt_tokens_details.cached_tokens,
            usage.completion_tokens_details.reasoning_tokens,
        ),
    }


def from_ours(reply: Reply) -> dict[str, Any]:
    usage = reply.usage
    return {
        "id": reply.id,
        "model": reply.model,
        "text": reply.text,
        "calls": [(call.id, call.name) for call in reply.tool_calls],
        "finish": reply.stop,
        "usage": (
            usage.input_tokens,
            usage.output_tokens,
            usage.cache_read_tokens,
            usage.reasoning_tokens,
        ),
    }


async def test_the_official_sdk_reads_the_test_server_as_we_do():
    request: dict[str, Any] = {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "tools": [{"type": "function", "function": {"name": "search", "parameters": {}}}],
    }

    official = official_client()

    async with ChatServer([REPLY, REPLY]) as server, official:
        sdk = official.with_options(base_url=server.base_url)
        whole = cast(Any, await sdk.chat.completions.create(**request))
        async with sdk.chat.completions.stream(**request) as stream:
            streamed = await stream.get_final_completion()

    assert from_the_sdk(whole) == from_ours(REPLY)
    # The SDK's helper asks for no usage, and the server tells it anyway.
    assert from_the_sdk(streamed) == from_ours(REPLY)
    assert streamed.choices[0].message.tool_calls is not None
    assert [call.function.arguments for call in streamed.choices[0].message.tool_calls] == [
        '{"q": "\\u00fc"}',
        "{}",
    ]


async def test_the_official_sdk_reads_the_test_servers_refusals():
    official = official_client()
    slow_down = refused(429, "slow down", code="rate_limit_exceeded")

    async with ChatServer([slow_down]) as server, official:
        sdk = official.with_options(base_url=server.base_url)
        stranger = sdk.with_options(api_key="wrong")
        for client, messages, status, code in (
            (stranger, [{"role": "user", "content": "hi"}], 401, "invalid_api_key"),
            (sdk, [], 400, None),
            (sdk, [{"role": "user", "content": "hi"}], 429, "rate_limit_exceeded"),
        ):
            untyped: Any = messages
            with pytest.raises(APIStatusError) as caught:
                await client.chat.completions.create(model="m", messages=untyped)
            assert (caught.value.status_code, caught.value.code) == (status, code)
