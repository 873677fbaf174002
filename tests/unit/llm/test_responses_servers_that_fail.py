"""Servers that answer badly, or not at all, and what the responses client makes of it."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from fakes.llm_server import Answer, Drop, Raw, refused
from fakes.responses_wire import RESPONSES_DIALECTS, event_stream, response
from lib.errors import InvalidReply, LLMError
from lib.llm import Delta, Message, Reply, Text, Thinking
from lib.llm.api.conversation import Origin, provider_block
from lib.testing.clock import ManualClock

from .responses_kit import HI, HOST, JSON, SSE, connected, facts, failure, reply, streamed

Facts = tuple[type[LLMError], int | None, bool, bool]

PAGE = b"<!doctype html><title>502 Bad Gateway</title>"
EVENTS = [*event_stream(reply("hello wörld"), {}, RESPONSES_DIALECTS["openai"])]
GOOD = b"".join(EVENTS)
HALF = b"".join(EVENTS[:6])


def event(value: dict[str, Any]) -> bytes:
    return f"event: {value['type']}\ndata: {json.dumps(value)}\n\n".encode()


def failed(**error: Any) -> bytes:
    body = {**response(reply(""), {}, RESPONSES_DIALECTS["openai"]), "status": "failed"}
    return event({"type": "response.failed", "response": {**body, "error": error or None}})


BAD_ANSWERS: dict[str, tuple[Answer, Facts]] = {
    "an error page": (Raw(body=PAGE, status=502), (LLMError, 502, True, False)),
    "a page in place of the API": (
        Raw(body=PAGE, headers={"content-type": "text/html; charset=utf-8"}),
        (InvalidReply, None, False, False),
    ),
    "a rate limit": (
        Raw(status=429, body=b'{"error": {"type": "requests", "code": "rate_limit_exceeded"}}'),
        (LLMError, 429, True, False),
    ),
    "no quota": (refused(429, "pay", code="insufficient_quota"), (LLMError, 429, False, False)),
    "a missing model": (refused(404, "?", code="model_not_found"), (LLMError, 404, False, False)),
    "an error in a good answer": (
        Raw(body=b'{"error": {"code": 429, "message": "slow"}}', headers=JSON),
        (LLMError, 429, True, False),
    ),
    "no JSON": (Raw(body=b"Hello!", headers=JSON), (InvalidReply, None, True, False)),
    "no object": (Raw(body=b"[]", headers=JSON), (InvalidReply, None, True, False)),
    "a chat completion": (
        Raw(body=b'{"choices": []}', headers=JSON),
        (InvalidReply, None, True, False),
    ),
    "an unfinished response": (
        Raw(body=b'{"id": "resp_1", "status": "queued", "output": []}', headers=JSON),
        (InvalidReply, None, True, False),
    ),
    "half of a JSON": (
        Raw(body=b'{"output": [', headers=JSON, cut=True),
        (LLMError, None, True, False),
    ),
    "too much": (
        Raw(body=b'"' + b"x" * 70_000, headers=JSON),
        (InvalidReply, None, False, False),
    ),
    "a closed connection": (Drop(), (LLMError, None, True, False)),
}
BAD_STREAMS: dict[str, tuple[bytes, Facts]] = {
    "no end": (HALF, (InvalidReply, None, True, False)),
    "no end but [DONE]": (HALF + b"data: [DONE]\n\n", (InvalidReply, None, True, False)),
    "half an event at the end": (GOOD[:-80], (InvalidReply, None, True, False)),
    "an error event": (
        HALF + event({"type": "error", "code": "server_error", "message": "x", "param": None}),
        (LLMError, None, True, False),
    ),
    "an error event of another form": (
        HALF + b'event: error\ndata: {"type": "overloaded_error", "code": 529}\n\n',
        (LLMError, 529, True, False),
    ),
    "an error inside of an error event": (
        event({"type": "error", "status": 400, "error": {"code": "invalid_prompt"}}),
        (LLMError, 400, False, False),
    ),
    "an error in place of an event": (
        HALF + b'data: {"error": {"type": "server_error"}}\n\n',
        (LLMError, None, True, False),
    ),
    "a failed response": (HALF + failed(code="server_error"), (LLMError, None, True, False)),
    "a prompt that is not taken": (
        failed(code="invalid_prompt", message="x"),
        (LLMError, None, False, False),
    ),
    "a failure without a reason": (failed(), (LLMError, None, True, False)),
    "a failure with a strange reason": (failed(code=["x"]), (LLMError, None, True, False)),
    "a cancelled response": (
        event({"type": "response.cancelled", "response": {}})
        + event({"type": "response.cancelled", "response": {"status": "cancelled"}}),
        (InvalidReply, None, True, False),
    ),
    "an end without a response": (
        event({"type": "response.completed"}),
        (InvalidReply, None, True, False),
    ),
    "no JSON in an event": (b"data: hello\n\n", (InvalidReply, None, True, False)),
    "no object in an event": (b"data: 7\n\n", (InvalidReply, None, True, False)),
    "a line without end": (b"data: " + b"x" * 70_000, (InvalidReply, None, False, False)),
    "a call without a name": (
        event({"type": "response.output_item.done", "item": {"type": "function_call"}})
        + event({"type": "response.completed", "response": {"id": "resp_1"}}),
        (InvalidReply, None, True, False),
    ),
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", BAD_ANSWERS)
async def test_a_bad_answer_is_a_typed_error(name: str, *, stream: bool) -> None:
    answer, expected = BAD_ANSWERS[name]

    async with connected([answer], max_reply_bytes=65_536) as (client, _):
        assert facts(await failure(client, stream=stream)) == expected


@pytest.mark.parametrize("name", BAD_STREAMS)
async def test_a_bad_stream_is_a_typed_error(name: str) -> None:
    body, expected = BAD_STREAMS[name]

    answer = Raw(body=body, headers=SSE)
    async with connected([answer], max_reply_bytes=65_536) as (client, _):
        assert facts(await failure(client, stream=True)) == expected


async def test_a_stream_that_is_cut_anywhere_is_retryable() -> None:
    for cut in range(0, len(GOOD) - 80, 97):
        answer = Raw(body=GOOD[:cut], headers=SSE, cut=True)
        async with connected([answer]) as (client, _):
            error = await failure(client, stream=True)
            assert facts(error) == (LLMError, None, True, False)


TEXT = event({"type": "response.output_text.delta", "delta": "hello", "output_index": 0})
ITEM: dict[str, Any] = {"type": "message", "content": [{"type": "output_text", "text": "hello"}]}
DONE = event({"type": "response.output_item.done", "output_index": 0, "item": ITEM})
END = event({"type": "response.completed", "response": {"output": [ITEM]}})
GOOD_STREAMS: dict[str, Raw] = {
    "nothing but what is needed": Raw(body=TEXT + END, headers=SSE),
    "without a media type": Raw(body=TEXT + END),
    "an end that repeats nothing": Raw(
        body=TEXT + DONE + event({"type": "response.completed"}), headers=SSE
    ),
    "nothing but the end": Raw(body=END, headers=SSE),
    "nothing but an item": Raw(body=DONE + event({"type": "response.completed"}), headers=SSE),
    "cut after the end": Raw(body=TEXT + END + b"data: {", headers=SSE, cut=True),
    "talk after the end": Raw(body=TEXT + END + TEXT + b": bye\n\n" * 50_000, headers=SSE),
    "empty pieces": Raw(
        body=event({"type": "response.output_text.delta", "delta": ""}) + b"data:\n\n" + TEXT + END,
        headers=SSE,
    ),
    "an item of no type": Raw(
        body=TEXT
        + event({"type": "response.output_item.added", "output_index": 1, "item": None})
        + event({"type": "response.output_item.done", "output_index": 1, "item": 7})
        + END,
        headers=SSE,
    ),
    "no stream": Raw(body=json.dumps({"output": [ITEM]}).encode(), headers=JSON),
}


@pytest.mark.parametrize("name", GOOD_STREAMS)
async def test_a_stream_that_says_enough_is_a_reply(name: str) -> None:
    async with connected([GOOD_STREAMS[name]]) as (client, _):
        assert await streamed(client) == [Delta(text="hello"), Reply((Text("hello"),))]


@pytest.mark.parametrize("stream", [False, True])
async def test_the_wait_that_a_server_requests_is_on_the_error(*, stream: bool) -> None:
    clock = ManualClock(datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC))
    answers = [
        refused(429, "slow", headers={"retry-after": "7"}),
        refused(429, "slow", headers={"retry-after-ms": "1500"}),
        refused(503, "slow", headers={"retry-after": "Sat, 21 Nov 2026 12:01:30 GMT"}),
    ]

    async with connected(answers, clock=clock) as (client, _):
        waits = [(await failure(client, stream=stream)).retry_after_s for _ in answers]
        assert waits == [7.0, 1.5, 90.0]


async def test_a_server_that_echoes_the_key_is_not_quoted() -> None:
    async with connected([], api_key="sk-wrong-key") as (client, server):
        error = await failure(client, stream=True)
        assert facts(error) == (LLMError, 401, False, False)
        assert "sk-" not in str(error)
        assert len(server.requests) == 1


# -- handles that are lost -----------------------------------------------------------------------

STATE: dict[str, Any] = {"id": "resp_0", "server": "127.0.0.1", "covers": 2}
TALK = [*HI, Message.assistant("yes"), Message.user("more")]


def status(code: int, error: Any) -> Raw:
    return Raw(status=code, body=json.dumps(error).encode(), headers=JSON)


LOST: dict[str, Raw] = {
    "OpenAI's code": status(400, {"error": {"code": "previous_response_not_found"}}),
    "an organization without retention": status(
        400, {"error": {"code": "unsupported_parameter", "param": "previous_response_id"}}
    ),
    "nothing found": status(404, {"error": {"type": "not_found_error"}}),
    "nothing found, as a page": Raw(status=404, body=PAGE),
    "gone": status(410, {}),
    "an error without a wrapper": status(400, {"code": "previous_response_not_found"}),
    "an error event": Raw(
        body=event({"type": "error", "code": "previous_response_not_found"}), headers=SSE
    ),
    "an error event with a status": Raw(
        body=event({"type": "error", "status": 404, "error": {}}), headers=SSE
    ),
    "a failed response": Raw(body=failed(code="previous_response_not_found"), headers=SSE),
    "a server that begins without it": Raw(body=GOOD, headers=SSE),
    "a server that names another one": Raw(
        body=GOOD.replace(b'_response_id": null', b'_response_id": "resp_9"'), headers=SSE
    ),
    "a server that never speaks of it": Raw(body=TEXT + END, headers=SSE),
    "a server that does not stream": Raw(
        body=json.dumps({"output": [ITEM]}).encode(), headers=JSON
    ),
}


@pytest.mark.parametrize("name", LOST)
async def test_an_unknown_handle_has_an_error_of_its_own(name: str) -> None:
    async with connected(lambda _: LOST[name]) as (client, server):
        server.goes_on = False  # so that the script may answer
        error = await failure(client, stream=True, messages=TALK, state=STATE)
        assert error.state_lost
        assert "resp_" not in str(error)
        assert [item.body.get("previous_response_id") for item in server.requests] == ["resp_0"]


async def test_nothing_is_shown_of_an_answer_that_goes_on_from_nothing() -> None:
    seen: list[Delta | Reply] = []

    async def main() -> None:
        async with connected([Raw(body=GOOD, headers=SSE)]) as (client, server):
            server.goes_on = False
            async for piece in client.stream(TALK, state=STATE):
                seen.append(piece)  # noqa: PERF401 - up to the failure

    with pytest.raises(LLMError, match="does not go on from the response"):
        await main()
    assert seen == []


@pytest.mark.parametrize("name", ["OpenAI's code", "nothing found", "gone", "an error event"])
async def test_without_a_handle_none_is_lost(name: str) -> None:
    async with connected([LOST[name]]) as (client, _):
        assert not (await failure(client, stream=True)).state_lost


async def test_reasoning_that_cannot_be_opened_is_dropped_from_the_next_attempt_once() -> None:
    def thought(name: str) -> Message:
        return Message.assistant(Thinking("", f"responses/{HOST}/{name}/gAAA"), Text("yes"))

    talk = [*HI, thought("rs_1"), *HI, thought("rs_2"), *HI]
    answers = [refused(400, "?", code="invalid_encrypted_content")] * 2 + ["done"]

    async with connected(answers) as (client, server):
        for stream, retryable in ((True, True), (False, False)):
            error = await failure(client, stream=stream, messages=talk)
            assert (error.status, error.retryable) == (400, retryable)
        await client.complete([*talk, thought("rs_3"), *HI])
        sent = [
            [item["id"] for item in request.body["input"] if "id" in item]
            for request in server.requests
        ]
        assert sent == [["rs_1", "rs_2"], [], ["rs_3"]]


async def test_a_compaction_that_cannot_be_opened_is_dropped_though_it_has_no_name() -> None:
    block = {"type": "compaction", "encrypted_content": "gAAA"}
    compacted = provider_block("responses", Origin(HOST), block)
    talk = [*HI, Message.assistant(compacted, Text("yes")), *HI]

    async with connected([refused(400, "?", code="invalid_encrypted_content"), "done"]) as (c, s):
        assert (await failure(c, stream=False, messages=talk)).retryable
        await c.complete(talk)
        assert [block in request.body["input"] for request in s.requests] == [True, False]


async def test_other_errors_of_a_call_with_a_handle_do_not_blame_it() -> None:
    answers = [refused(429, "slow"), refused(400, "bad", code="context_length_exceeded")]

    async with connected(answers) as (client, server):
        server.goes_on = False
        for _ in answers:
            error = await failure(client, stream=True, messages=TALK, state=STATE)
            assert not error.state_lost
