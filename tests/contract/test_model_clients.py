"""All clients of models keep one contract, on each wire, against a strict server of that wire."""

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from traceback import format_exception
from typing import Any, cast

import pytest

from fakes.llm_server import API_KEY, Answers, Drop, Hang, ModelServer, Raw
from fakes.model_wires import WIRES, Wire
from lib.errors import InvalidReply, LLMError, UnsupportedModality
from lib.llm import (
    Audio,
    Delta,
    File,
    Image,
    Message,
    Opaque,
    Part,
    Reply,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    ToolSpec,
    Usage,
    message_from_json,
    message_to_json,
    parse_output,
    reply_from_json,
    reply_to_json,
)

SECRET = "the secret plan"
HI = [Message.user(SECRET)]
SPEC = ToolSpec(
    "search",
    "Search.",
    {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]},
)
OTHER = ToolSpec("look_up", "Look up.", {"type": "object", "properties": {}})
PNG = Image(data=b"\x89PNG", media_type="image/png")
WAV = Audio(data=b"RIFF", media_type="audio/wav")
PDF = File(data=b"%PDF", media_type="application/pdf", name="plan.pdf")
ATTACHMENTS = {"image": PNG, "audio": WAV, "file": PDF}
SCHEMA = {
    "type": "object",
    "properties": {"total": {"type": "integer", "minimum": 0}, "note": {"type": "string"}},
    "required": ["total"],
}
USAGE = Usage(
    input_tokens=100,
    output_tokens=40,
    cache_read_tokens=60,
    cache_write_tokens=10,
    reasoning_tokens=15,
)

each_wire = pytest.mark.parametrize("wire", WIRES.values(), ids=WIRES)
both_ways = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])


@asynccontextmanager
async def connected(
    wire: Wire, answers: Answers, *, slice_bytes: int | None = None, **options: Any
) -> AsyncGenerator[tuple[Any, ModelServer]]:
    async with (
        wire.serve(answers, slice_bytes=slice_bytes) as server,
        wire.connect(server.base_url, **{**wire.options, **options}) as client,
    ):
        yield client, server


async def call(
    client: Any, messages: Sequence[Message] = HI, *, stream: bool, **options: Any
) -> Reply:
    """Return the reply; what a stream shows on the way agrees with it."""
    if not stream:
        return await client.complete(messages, **options)
    *pieces, last = [piece async for piece in client.stream(messages, **options)]
    deltas = cast(list[Delta], pieces)
    assert isinstance(last, Reply)
    assert "".join(delta.text for delta in deltas) == last.text
    thinking = [part.text for part in last.parts if isinstance(part, Thinking)]
    assert "".join(delta.thinking for delta in deltas).replace("\n\n", "") == "".join(thinking)
    shown: dict[int, list[str]] = {}
    for delta in deltas:
        if delta.tool_call is not None:
            shown.setdefault(delta.tool_call.index, []).append(delta.tool_call.arguments)
    texts = [json.loads("".join(each) or "{}") for each in shown.values()]
    if all(each.invalid is None for each in last.tool_calls):
        assert texts == [each.arguments for each in last.tool_calls]
    return last


async def failure(client: Any, *, stream: bool, **options: Any) -> LLMError:
    with pytest.raises(LLMError) as caught:
        await call(client, stream=stream, **options)
    trace = "".join(format_exception(caught.value))
    assert API_KEY not in trace
    assert SECRET not in str(caught.value)
    return caught.value


def resumed(messages: Sequence[Message]) -> list[Message]:
    """Return the messages as another process reads them from the log."""
    return [message_from_json(json.loads(json.dumps(message_to_json(each)))) for each in messages]


# -- text, usage, settings ---------------------------------------------------------------------


@each_wire
@both_ways
async def test_a_text_comes_with_its_model_and_id(wire: Wire, *, stream: bool) -> None:
    async with connected(wire, ["Grüße, 世界!\n\n"]) as (client, server):
        reply = await call(client, stream=stream, model="big")
        assert reply.text == "Grüße, 世界!\n\n"
        assert reply.stop == "stop"
        assert reply.model == "big"
        assert bool(reply.id) == wire.ids
        assert reply_from_json(json.loads(json.dumps(reply_to_json(reply)))) == reply
        assert server.requests[0].body["model"] == "big"
        assert server.requests[0].headers["accept-encoding"] == "identity"


@each_wire
async def test_a_stream_may_arrive_in_pieces_of_any_size(wire: Wire) -> None:
    answer = Reply((Text("Grüße, 世界!"), ToolCall("abcdefghi", "search", {"q": "ü"})))

    for size in (1, 7, 4096):
        async with connected(wire, [answer], slice_bytes=size) as (client, _):
            reply = await call(client, stream=True, tools=[SPEC])
            assert (reply.text, len(reply.tool_calls)) == ("Grüße, 世界!", 1)


@each_wire
@both_ways
async def test_counts_of_tokens_mean_the_same(wire: Wire, *, stream: bool) -> None:
    async with connected(wire, [Reply((Text("x"),), USAGE)]) as (client, _):
        usage = (await call(client, stream=stream)).usage
        assert usage.input_tokens == USAGE.input_tokens
        assert usage.output_tokens == USAGE.output_tokens
        assert usage.cache_read_tokens == (USAGE.cache_read_tokens if wire.cache_reads else 0)
        assert usage.cache_write_tokens == (USAGE.cache_write_tokens if wire.cache_writes else 0)
        assert usage.reasoning_tokens == (USAGE.reasoning_tokens if wire.reasoning_tokens else 0)


@each_wire
async def test_the_same_conversation_is_the_same_bytes(wire: Wire) -> None:
    talk = [
        Message.system("Be brief."),
        Message.user("hi"),
        Message.assistant(ToolCall("abcdefghi", "search", {"q": "x", "a": 1})),
        Message.tool(ToolResult("abcdefghi", "found")),
    ]

    async with connected(wire, ["a", "b"]) as (client, server):
        await client.complete(talk, tools=[SPEC])
        await client.complete(resumed(talk), tools=[SPEC])
        first, second = server.requests
        assert json.dumps(first.body) == json.dumps(second.body)


@each_wire
async def test_settings_with_a_parameter_of_their_own_are_refused(wire: Wire) -> None:
    async with connected(wire, []) as (client, _):
        with pytest.raises(ValueError, match="settings cannot hold tools"):
            await call(client, stream=False, settings={"tools": []})


@each_wire
@pytest.mark.parametrize("stop", ["length", "content_filter"])
@both_ways
async def test_a_stop_of_another_kind_is_seen(wire: Wire, stop: Any, *, stream: bool) -> None:
    answer = Reply((Text("So"),), stop=stop)

    async with connected(wire, [answer]) as (client, _):
        reply = await call(client, stream=stream, settings={"max_tokens": 1})
        assert reply.stop == ("stop" if stop == "content_filter" and not wire.refusals else stop)
        assert reply.text == "So"


# -- tools -------------------------------------------------------------------------------------


@each_wire
@both_ways
async def test_calls_at_once_and_their_results(wire: Wire, *, stream: bool) -> None:
    calls = (
        ToolCall("aaaaaaaaa", "search", {"q": "ü", "deep": {"list": [1, None]}}),
        ToolCall("bbbbbbbbb", "look_up"),
    )

    async with connected(wire, [Reply((Text("Well."), *calls)), "Done."]) as (client, _):
        first = await call(client, stream=stream, tools=[SPEC, OTHER])
        assert first.stop == "tool_calls"
        assert [(each.name, each.arguments, each.invalid) for each in first.tool_calls] == [
            (each.name, each.arguments, None) for each in calls
        ]
        ids = [each.id for each in first.tool_calls]
        assert len({*ids}) == 2
        results = Message.tool(
            ToolResult(ids[0], "no luck", is_error=True), ToolResult(ids[1], "found")
        )
        talk = resumed([*HI, first.message, results, Message.user("And?")])
        last = await call(client, talk, stream=stream, tools=[SPEC, OTHER])
        assert last.text == "Done."


@each_wire
async def test_a_failed_tool_is_marked(wire: Wire) -> None:
    made = ToolCall("abcdefghi", "search", {"q": "x"})
    failed = Message.tool(ToolResult("abcdefghi", "no luck", is_error=True))

    async with connected(wire, ["ok"]) as (client, server):
        await call(client, [*HI, Message.assistant(made), failed], stream=False, tools=[SPEC])
        sent = json.dumps(server.requests[0].body)
        assert ("Error: no luck" in sent) != wire.error_flag


@each_wire
@pytest.mark.parametrize("choice", ["auto", "none", "required", "search"])
async def test_a_choice_of_tools_is_in_the_words_of_the_server(wire: Wire, choice: str) -> None:
    settings = {"tool_choice": choice, "parallel_tool_calls": False}

    async with connected(wire, ["ok", "ok"]) as (client, _):
        await call(client, stream=False, tools=[SPEC], settings=settings)
        await call(client, stream=False, settings=settings)


@each_wire
@both_ways
async def test_calls_of_a_conversation_whose_tools_are_gone(wire: Wire, *, stream: bool) -> None:
    made = ToolCall("abcdefghi", "search", {"q": "x"})
    talk = [*HI, Message.assistant(made), Message.tool(ToolResult("abcdefghi", ""))]

    async with connected(wire, ["ok"]) as (client, _):
        assert (await call(client, talk, stream=stream)).text == "ok"


@each_wire
async def test_ids_of_calls_of_other_providers_are_taken(wire: Wire) -> None:
    ids = [f"call_{'x' * 90}", "call/with:odd.signs", "abc"]
    talk = [
        *HI,
        Message.assistant(*[ToolCall(each, "search", {"q": each}) for each in ids]),
        Message.tool(*[ToolResult(each, "found") for each in ids]),
    ]

    async with connected(wire, ["ok"]) as (client, _):
        assert (await call(client, talk, stream=False, tools=[SPEC])).text == "ok"


@each_wire
async def test_arguments_that_were_no_json_do_not_break_the_conversation(wire: Wire) -> None:
    made = ToolCall("abcdefghi", "search", invalid='{"q": ')
    talk = [*HI, Message.assistant(made), Message.tool(ToolResult("abcdefghi", "not JSON"))]

    async with connected(wire, ["ok"]) as (client, _):
        assert (await call(client, talk, stream=False, tools=[SPEC])).text == "ok"


# -- thinking ----------------------------------------------------------------------------------


@each_wire
@both_ways
async def test_thinking_goes_back_with_its_seal_after_a_resume(wire: Wire, *, stream: bool) -> None:
    thought = Thinking("Let me look.", "c2VhbA==")
    made = ToolCall("abcdefghi", "search", {"q": "x"})

    async with connected(wire, [Reply((thought, made)), "Done."]) as (client, server):
        first = await call(client, stream=stream, tools=[SPEC])
        talk = resumed([*HI, first.message, Message.tool(ToolResult(first.tool_calls[0].id, "x"))])
        await call(client, talk, stream=stream, tools=[SPEC])
        assert ("c2VhbA==" in json.dumps(server.requests[1].body)) == wire.thinking
        if wire.thinking:
            assert [part.text for part in first.parts if isinstance(part, Thinking)]


@each_wire
async def test_thinking_of_another_server_is_left_out(wire: Wire) -> None:
    foreign: list[Part] = [
        Thinking("a", "raw"),
        Thinking("b", "anthropic/elsewhere/thinking/seal"),
        Thinking("c", "responses/elsewhere/rs_1/seal"),
        Thinking("d"),
        Opaque({"type": "provider_block", "wire": "x", "server": "y", "block": {"secret": 1}}),
        Text("Hello.", extra={"signature": "gemini/elsewhere/part/seal"}),
        ToolCall("abcdefghi", "search", {"q": "x"}, extra={"signature": "gemini/x/part/seal"}),
    ]
    only = Message.assistant(Thinking("e", "raw"))
    talk = [*HI, Message.assistant(*foreign), Message.tool(ToolResult("abcdefghi", "x"))]

    async with connected(wire, ["ok", "ok"]) as (client, server):
        await call(client, talk, stream=False, tools=[SPEC])
        assert (await call(client, [*HI, only, *HI], stream=False)).text == "ok"
        sent = json.dumps([request.body for request in server.requests])
        assert "seal" not in sent
        assert '"secret"' not in sent


# -- outputs and attachments -------------------------------------------------------------------


@each_wire
@both_ways
async def test_an_output_has_its_shape(wire: Wire, *, stream: bool) -> None:
    async with connected(wire, ['{"total": 3, "note": ""}']) as (client, server):
        reply = await call(client, stream=stream, output=SCHEMA)
        assert parse_output(reply, SCHEMA) == {"total": 3, "note": ""}
        assert "total" in json.dumps(server.requests[0].body)


@each_wire
async def test_an_output_without_a_strict_form_is_requested_all_the_same(wire: Wire) -> None:
    schema = {"type": "object", "additionalProperties": {"type": "integer"}}

    async with connected(wire, ['{"a": 3}']) as (client, server):
        reply = await call(client, stream=False, output=schema)
        assert parse_output(reply, schema) == {"a": 3}
        assert "additionalProperties" in json.dumps(server.requests[0].body)


@each_wire
@pytest.mark.parametrize("modality", ATTACHMENTS)
async def test_an_attachment_is_carried_or_refused_before_the_call(
    wire: Wire, modality: str
) -> None:
    message = Message.user("Look.", ATTACHMENTS[modality])
    carried = modality in wire.modalities

    async with connected(wire, ["ok"] if carried else [], modalities=wire.modalities) as (c, s):
        if carried:
            assert (await call(c, [message], stream=False)).text == "ok"
            assert "Look." in json.dumps(s.requests[0].body)
        else:
            with pytest.raises(UnsupportedModality) as caught:
                await call(c, [message], stream=False)
            assert (caught.value.modality, s.requests) == (modality, [])
            with pytest.raises(ValueError, match=modality):
                wire.connect(s.base_url, modalities=frozenset({"text", modality}))
    async with connected(wire, [], modalities=frozenset({"text"})) as (client, _):
        with pytest.raises(UnsupportedModality):
            await call(client, [message], stream=False)


@each_wire
async def test_what_has_nothing_to_read_is_left_out(wire: Wire) -> None:
    talk = [
        Message.user("hi"),
        Message.assistant(Thinking("hm")),
        Message.user("", PNG) if "image" in wire.modalities else Message.user("x"),
        Message.assistant("ok"),
        Message.user("more"),
        Message.user("and more"),
    ]

    async with connected(wire, ["ok"], modalities=wire.modalities) as (client, _):
        assert (await call(client, talk, stream=False)).text == "ok"


# -- failures ----------------------------------------------------------------------------------


@each_wire
@both_ways
async def test_a_refusal_says_what_to_do(wire: Wire, *, stream: bool) -> None:
    cases: list[tuple[Raw, int, bool, float | None]] = [
        (wire.wait[0], 429, True, wire.wait[1]),
        (wire.broken, 500, True, None),
        (wire.overloaded, wire.overloaded.status, True, None),
        (wire.wrong, 400, False, None),
    ]

    for answer, status, retryable, wait_s in cases:
        async with connected(wire, [answer]) as (client, _):
            error = await failure(client, stream=stream)
            facts = (error.status, error.retryable, error.retry_after_s, error.request_id)
            assert facts == (status, retryable, wait_s, wire.request_id)


@each_wire
async def test_a_wrong_key_is_not_tried_again(wire: Wire) -> None:
    async with connected(wire, [], api_key="sk-wrong") as (client, _):
        error = await failure(client, stream=False)
        assert error.status in {401, 403}
        assert not error.retryable
        assert "sk-wrong" not in str(error)


@each_wire
async def test_an_error_in_a_stream_is_an_error(wire: Wire) -> None:
    async with connected(wire, [wire.failing]) as (client, _):
        error = await failure(client, stream=True)
        assert (type(error), error.retryable) == (LLMError, True)


@each_wire
@both_ways
async def test_the_name_of_a_request_is_on_its_reply_and_on_its_error(
    wire: Wire, *, stream: bool
) -> None:
    def named(answer: Raw, **changes: Any) -> Raw:
        return replace(answer, headers={**answer.headers, "x-request-id": "req_7"}, **changes)

    if stream:
        async with connected(wire, [named(wire.unknown)]) as (client, _):
            reply = await call(client, stream=True)
            assert reply.request_id == "req_7"
            assert reply_from_json(reply_to_json(reply)) == reply
    half = named(wire.unknown, body=wire.unknown.body[: len(wire.unknown.body) // 3])
    for answer in (named(wire.failing), named(wire.malformed), half, replace(half, cut=True)):
        async with connected(wire, [answer]) as (client, _):
            assert (await failure(client, stream=stream)).request_id == "req_7"


@each_wire
async def test_a_piece_that_cannot_be_read_is_an_error(wire: Wire) -> None:
    async with connected(wire, [wire.malformed]) as (client, _):
        error = await failure(client, stream=True)
        assert (type(error), error.retryable) == (InvalidReply, True)


@each_wire
async def test_a_stream_that_is_cut_is_an_error(wire: Wire) -> None:
    body = wire.unknown.body
    for answer in (
        Raw(body=body[: len(body) // 2], headers=wire.unknown.headers, cut=True),
        Raw(body=body[: len(body) // 3], headers=wire.unknown.headers),
        Drop(),
    ):
        async with connected(wire, [answer]) as (client, _):
            assert (await failure(client, stream=True)).retryable


@each_wire
@both_ways
async def test_garbage_is_an_error(wire: Wire, *, stream: bool) -> None:
    bodies: list[Any] = [b"Hello!", b"[]", b"null", b"{}", b'{"choices": 3}', b"\xff\xfe"]
    for body in bodies:
        answer = Raw(body=body, headers={"content-type": "application/json"})
        async with connected(wire, [answer]) as (client, _):
            assert isinstance(await failure(client, stream=stream), LLMError)


@each_wire
async def test_what_no_release_knows_is_no_error(wire: Wire) -> None:
    async with connected(wire, [wire.unknown]) as (client, _):
        reply = await call(client, stream=True)
        assert (reply.text, reply.stop) == ("hi", "stop")
        resumed([reply.message])
        kept = [part for part in reply.parts if isinstance(part, Opaque)]
        assert bool(kept) == wire.keeps_unknown


def _head(wire: Wire) -> bytes:
    kind = wire.unknown.headers["content-type"]
    return f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\n\r\n".encode()


@each_wire
async def test_a_stream_that_falls_silent_is_given_up(wire: Wire) -> None:
    answer = Hang(_head(wire))

    async with connected(wire, [answer], idle_timeout_s=0.01, timeout_s=600) as (client, _):
        error = await failure(client, stream=True)
        assert error.retryable
        assert str(error) == "nothing came for 0.01 s in an answer"


@each_wire
async def test_a_call_that_is_cancelled_closes_its_connection(wire: Wire) -> None:
    came = asyncio.Event()

    def answer(_: Any) -> Hang | str:
        if came.is_set():
            return "ok"
        came.set()
        return Hang(_head(wire))

    async with connected(wire, answer) as (client, _):
        calling = asyncio.create_task(call(client, stream=True))
        await came.wait()
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        assert (await call(client, stream=False)).text == "ok"


@each_wire
async def test_a_stream_that_is_left_closes_its_connection(wire: Wire) -> None:
    answers = [Reply((Text("x" * 100),)), "ok"]

    async with connected(wire, answers) as (client, _):
        stream = client.stream(HI)
        assert isinstance(await anext(stream), Delta)
        await stream.aclose()
        assert (await call(client, stream=True)).text == "ok"


def test_a_wire_has_a_name_and_a_provider() -> None:
    for name, wire in WIRES.items():
        client = wire.connect("http://127.0.0.1:1/v1", provider="x")
        assert (client.model, client.provider) == ("m", "x")
        assert client.name == {"claude-vertex": "anthropic", "vertex": "gemini"}.get(name, name)
        assert client.server == {"address": "127.0.0.1", "port": 1}
