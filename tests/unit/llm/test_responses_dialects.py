"""A reply is the same in every dialect, however its bytes are cut; the official SDK agrees."""

import json
from dataclasses import replace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai import APIStatusError, AsyncOpenAI
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from fakes.llm_server import API_KEY, refused
from fakes.responses_server import ResponsesServer
from fakes.responses_wire import (
    RESPONSES_DIALECTS,
    STRANGER,
    ResponsesDialect,
    event_stream,
    events_of,
    response,
)
from lib.llm import Delta, Message, Reply, Text, Thinking, ToolCall, Usage
from lib.llm.api.conversation import Origin, provider_block, unsealed
from lib.llm.api.streams import END_OF_STREAM, EventDecoder
from lib.llm.client import Stop
from lib.llm.parts import Part
from lib.llm.responses.client import take_event
from lib.llm.responses.reply import ReplyBuilder
from lib.llm.responses.request import WIRE

from .responses_kit import HI, HOST, SPEC, connected

texts = st.text(max_size=24)
written = st.text(min_size=1, max_size=24)
plain = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | texts
arguments = st.dictionaries(
    texts, plain | st.lists(plain, max_size=2) | st.dictionaries(texts, plain), max_size=3
)


@st.composite
def replies(draw: st.DrawFn) -> Reply:
    parts: list[Part] = []
    if draw(st.booleans()):
        paragraphs = draw(st.lists(st.text("abcü ", min_size=1, max_size=9), max_size=3))
        parts.append(Thinking("\n\n".join(paragraphs), "responses/127.0.0.1/rs_1/seal"))
    if text := draw(texts):
        phase = draw(st.sampled_from([{}, {"phase": "final_answer"}]))
        parts.append(Text(text, extra=cast(dict[str, Any], phase)))
    calls = draw(st.lists(st.tuples(st.sampled_from(["search", "fetch"]), arguments), max_size=3))
    parts += [
        ToolCall(f"id{i}", name, call_arguments) for i, (name, call_arguments) in enumerate(calls)
    ]
    tokens = draw(st.integers(1, 1000))
    usage = Usage(
        input_tokens=tokens, output_tokens=2 * tokens, reasoning_tokens=tokens, cache_read_tokens=1
    )
    ends: tuple[Stop, ...] = ("stop", "length", "content_filter", "other")
    stop = "tool_calls" if calls else draw(st.sampled_from(ends))
    state = {"id": "resp_7", "server": HOST} if stop in {"stop", "tool_calls"} else None
    return Reply(tuple(parts), usage, stop, "m", "resp_7", state)


def as_decoded(reply: Reply, dialect: ResponsesDialect) -> Reply:
    """Return the reply without what the dialect leaves out, and with what it adds."""
    added = provider_block(WIRE, Origin(HOST), STRANGER)
    parts: list[Part] = [
        Thinking(part.text) if isinstance(part, Thinking) and not dialect.sealed else part
        for part in reply.parts
    ]
    parts = [part for part in parts if not isinstance(part, Thinking) or part != Thinking("")]
    parts = [added, *parts] if dialect.strangers else parts
    return replace(reply, parts=tuple(parts), usage=reply.usage if dialect.usage else Usage())


def builder() -> ReplyBuilder:
    return ReplyBuilder(used_ids=(), new_id=str, server=HOST, store=True, previous="")


@pytest.mark.parametrize("dialect", RESPONSES_DIALECTS.values(), ids=RESPONSES_DIALECTS)
@given(reply=replies(), step=st.integers(1, 200))
def test_a_streamed_reply_is_the_same_in_every_dialect(
    dialect: ResponsesDialect, reply: Reply, step: int
) -> None:
    stream = b"".join(event_stream(reply, {}, dialect))
    pieces = [stream[start : start + step] for start in range(0, len(stream), step)]
    decoder, building = EventDecoder(), builder()
    deltas: list[Delta] = []
    for piece in [*pieces, END_OF_STREAM]:
        for event in decoder.feed(piece):
            deltas += take_event(event, building)

    expected = as_decoded(reply, dialect)
    assert building.reply() == expected
    assert "".join(delta.text for delta in deltas) == reply.text
    thought = "".join([part.text for part in expected.parts if isinstance(part, Thinking)])
    assert "".join(delta.thinking for delta in deltas) == thought
    assert calls_shown(deltas) == [
        (call.id, call.name, call.arguments) for call in expected.tool_calls
    ]


def calls_shown(deltas: list[Delta]) -> list[tuple[str, str, Any]]:
    shown: dict[int, list[str]] = {}
    for call in [delta.tool_call for delta in deltas if delta.tool_call]:
        have = shown.setdefault(call.index, ["", "", ""])
        shown[call.index] = [have[0] + call.id, have[1] + call.name, have[2] + call.arguments]
    return [
        (call_id, name, json.loads(call_arguments))
        for call_id, name, call_arguments in shown.values()
    ]


@pytest.mark.parametrize("dialect", RESPONSES_DIALECTS.values(), ids=RESPONSES_DIALECTS)
@given(reply=replies())
def test_a_whole_reply_is_the_same_in_every_dialect(
    dialect: ResponsesDialect, reply: Reply
) -> None:
    building = builder()
    building.add(response(reply, {}, dialect), whole=True)

    assert building.reply() == as_decoded(reply, dialect)


REPLY = Reply(
    (
        Thinking("I plan\n\nto search", "responses/127.0.0.1/rs_1/seal"),
        Text("I search for ümläuts", extra={"phase": "commentary"}),
        ToolCall("a", "search", {"q": "ü"}),
        ToolCall("b", "fetch"),
    ),
    Usage(
        input_tokens=9,
        output_tokens=7,
        cache_read_tokens=4,
        cache_write_tokens=3,
        reasoning_tokens=2,
    ),
    "tool_calls",
    "m",
    "resp_7",
    {"id": "resp_7", "server": HOST},
)


@pytest.mark.parametrize("slice_bytes", [None, 3])
@pytest.mark.parametrize("dialect", RESPONSES_DIALECTS.values(), ids=RESPONSES_DIALECTS)
async def test_the_client_reads_every_dialect_over_one_connection(
    dialect: ResponsesDialect, slice_bytes: int | None
) -> None:
    options = {"dialect": dialect, "slice_bytes": slice_bytes}

    async with connected([REPLY] * 4, options) as (client, server):
        for _ in range(2):
            whole = await client.complete(HI, tools=[SPEC])
            *deltas, streamed = [piece async for piece in client.stream(HI, tools=[SPEC])]
            assert whole == as_decoded(REPLY, dialect)
            assert streamed == as_decoded(REPLY, dialect)
            assert "".join(d.text for d in deltas if isinstance(d, Delta)) == REPLY.text
        assert server.connections == 1


# -- the official SDK ----------------------------------------------------------------------------

EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
SDK_DIALECTS = {name: RESPONSES_DIALECTS[name] for name in ("openai", "no-deltas", "empty-end")}


@pytest.mark.parametrize("dialect", SDK_DIALECTS.values(), ids=SDK_DIALECTS)
@settings(max_examples=20)
@given(reply=replies())
def test_what_the_test_server_writes_is_of_the_official_types(
    dialect: ResponsesDialect, reply: Reply
) -> None:
    Response.model_validate(response(reply, {}, dialect))
    for number, event in enumerate(events_of(reply, {}, dialect)):
        expected = EVENT.validate_python({**event, "sequence_number": number})
        assert expected.type == event["type"]


def official_client() -> AsyncOpenAI:
    """Return the SDK's client, made outside of an event loop since it reads files."""
    return AsyncOpenAI(base_url="http://127.0.0.1:1/v1", api_key=API_KEY, max_retries=0)


def from_the_sdk(answer: Response) -> dict[str, Any]:
    """Return what the official SDK has read, in the form of `from_ours`."""
    assert answer.usage is not None
    read, written = answer.usage.input_tokens_details, answer.usage.output_tokens_details
    return {
        "id": answer.id,
        "model": answer.model,
        "text": answer.output_text,
        "calls": [
            (item.call_id, item.name, json.loads(item.arguments))
            for item in answer.output
            if item.type == "function_call"
        ],
        "sealed": [
            (item.id, item.encrypted_content) for item in answer.output if item.type == "reasoning"
        ],
        "phases": [item.phase for item in answer.output if item.type == "message"],
        "usage": (
            answer.usage.input_tokens,
            answer.usage.output_tokens,
            read.cached_tokens,
            read.cache_write_tokens,
            written.reasoning_tokens,
        ),
    }


def from_ours(reply: Reply) -> dict[str, Any]:
    usage = reply.usage
    thinking = [part for part in reply.parts if isinstance(part, Thinking)]
    return {
        "id": reply.id,
        "model": reply.model,
        "text": reply.text,
        "calls": [(call.id, call.name, call.arguments) for call in reply.tool_calls],
        "sealed": [unsealed("responses", Origin(HOST), part.signature) for part in thinking],
        "phases": [part.extra["phase"] for part in reply.parts if isinstance(part, Text)],
        "usage": (
            usage.input_tokens,
            usage.output_tokens,
            usage.cache_read_tokens,
            usage.cache_write_tokens,
            usage.reasoning_tokens,
        ),
    }


async def test_the_official_sdk_reads_the_test_server_as_we_do() -> None:
    function: dict[str, Any] = {
        "type": "function",
        "name": "search",
        "parameters": {},
        "strict": False,
    }
    request: dict[str, Any] = {"model": "m", "tools": [function]}
    request["input"] = [{"role": "user", "content": "hi"}]
    official = official_client()

    async with ResponsesServer([REPLY, REPLY]) as server, official:
        sdk = official.with_options(base_url=server.base_url)
        whole = cast(Any, await sdk.responses.create(**request))
        async with sdk.responses.stream(**request) as stream:
            streamed = await stream.get_final_response()

    assert from_the_sdk(whole) == from_ours(REPLY)
    assert from_the_sdk(streamed) == from_ours(REPLY)


async def test_the_official_sdk_and_we_go_on_from_each_others_responses() -> None:
    official = official_client()

    async with connected(["one", "two", "three"]) as (client, server), official:
        sdk = official.with_options(base_url=server.base_url)
        first = await client.complete(HI)
        second = await sdk.responses.create(
            model="m",
            input=[{"role": "user", "content": "more"}],
            previous_response_id=first.id,
        )
        more = [*HI, Message.assistant("one"), Message.user("more")]
        more = [*more, Message.assistant("two"), Message.user("and?")]
        state = {"id": second.id, "server": HOST, "covers": 4}
        third = await client.complete(more, state=state)

        assert (second.output_text, third.text) == ("two", "three")
        assert server.sent == [1, 1, 1]


async def test_the_official_sdk_reads_the_test_servers_refusals() -> None:
    official = official_client()
    slow_down = refused(429, "slow down", code="rate_limit_exceeded")
    hi: Any = [{"role": "user", "content": "hi"}]

    async with ResponsesServer([slow_down]) as server, official:
        sdk = official.with_options(base_url=server.base_url)
        stranger = sdk.with_options(api_key="wrong")
        unknown: Any = {"input": hi, "previous_response_id": "resp_0"}
        expected: list[tuple[AsyncOpenAI, Any, int, str | None]] = [
            (stranger, {"input": hi}, 401, "invalid_api_key"),
            (sdk, {"input": []}, 400, None),
            (sdk, unknown, 400, "previous_response_not_found"),
            (sdk, {"input": hi}, 429, "rate_limit_exceeded"),
        ]
        for client, request, status, code in expected:
            with pytest.raises(APIStatusError) as caught:
                await client.responses.create(model="m", **request)
            assert (caught.value.status_code, caught.value.code) == (status, code)
