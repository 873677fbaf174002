"""Replies from the server's JSON: what no dialect of the test server already covers."""

from typing import Any

import pytest

from lib._util.json import parse
from lib.errors import InvalidReply, LLMError
from lib.llm import Delta, Reply, Text, Thinking, ToolCall, Usage
from lib.llm.chat.reply import ReplyBuilder

Chunk = dict[str, Any]


def builder() -> ReplyBuilder:
    return ReplyBuilder(used_ids=(), new_id=lambda: "new")


def choice(delta: Any = None, finish: str | None = None, **more: Any) -> Chunk:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish, **more}]}


def built(*chunks: Chunk) -> Reply:
    building = builder()
    for chunk in chunks:
        building.add(chunk)
    return building.reply()


def test_parts_are_joined_where_they_touch_and_stay_in_order():
    reply = built(
        {**choice({"role": "assistant", "content": None}), "id": "x", "model": "m-1"},
        choice({"reasoning": "a"}),
        {**choice({"reasoning": "b", "reasoning_content": None}), "id": "y", "model": "m-2"},
        choice({"content": "c"}),
        choice({"content": "d", "reasoning": ""}),
        choice({"reasoning_content": "e", "reasoning": "e"}),
        choice({"content": [{"type": "text", "text": "f"}, {"type": "thinking"}, "g", 1]}),
        choice({}, "stop"),
    )

    assert reply == Reply(
        (Thinking("ab"), Text("cd"), Thinking("e"), Text("f")), model="m-1", id="x"
    )


@pytest.mark.parametrize(
    ("finish", "stop"),
    [
        ("stop", "stop"),
        ("eos", "stop"),
        ("length", "length"),
        ("content_filter", "content_filter"),
        ("tool_calls", "tool_calls"),
        ("function_call", "tool_calls"),
        ("insufficient_system_resource", "other"),
    ],
)
def test_why_the_model_stopped_has_few_names(finish: str, stop: str):
    assert built(choice({"content": "x"}, finish)).stop == stop


def test_tool_calls_are_why_the_model_stopped_unless_it_was_cut_off():
    call = {"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f", "arguments": '{"a'}}]}

    assert built(choice(call, "stop")).stop == "tool_calls"
    assert built(choice(call, "length")) == Reply(
        (ToolCall("c", "f", invalid='{"a'),), stop="length"
    )


def test_a_call_that_is_cut_off_before_its_arguments_is_not_made_without_them():
    calls = [{"index": n, "id": str(n), "function": {"name": "f"}} for n in (0, 1)]

    cut = built(choice({"tool_calls": calls}, "length"))
    whole = built(choice({"tool_calls": calls}, "tool_calls"))

    assert cut.parts == (ToolCall("0", "f"), ToolCall("1", "f", invalid=""))
    assert whole.parts == (ToolCall("0", "f"), ToolCall("1", "f"))


@pytest.mark.parametrize("cost", ["-1", "1e999", "-1e999", "9" * 400, "true", '"1"'])
def test_a_cost_that_none_can_be_is_not_known(cost: str):
    usage = parse(f'{{"cost": {cost}}}')

    assert built({"choices": [], "usage": usage}, choice(None, "stop")).usage.cost is None


def test_a_refusal_behind_litellm_stands_beside_the_content():
    beside = {"content": None, "provider_specific_fields": {"refusal": "I cannot"}}

    reply = built(choice(beside), choice({}, "stop"))

    assert (reply.text, reply.stop) == ("I cannot", "content_filter")


def test_a_spoken_answer_is_its_transcript():
    sound = {"id": "audio_1", "data": "UklGRg==", "expires_at": 1}
    whole = built(choice({"content": None, "audio": {**sound, "transcript": "Hello."}}, "stop"))
    pieces = built(
        choice({"audio": {"id": "audio_1", "transcript": "Hel"}}),
        choice({"audio": {"data": "UklGRg=="}}),
        choice({"audio": {"transcript": "lo."}}),
        choice({}, "stop"),
    )

    assert whole.text == pieces.text == "Hello."


def test_a_refusal_is_text_of_a_reply_that_was_filtered():
    reply = built(choice({"refusal": "I can"}), choice({"refusal": "not"}), choice({}, "stop"))

    assert reply == Reply((Text("I cannot"),), stop="content_filter")


def test_what_the_server_counts_is_read_wherever_it_stands():
    openai = {
        "prompt_tokens": 10,
        "completion_tokens": 7,
        "prompt_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 2},
        "completion_tokens_details": {"reasoning_tokens": 3},
        "cost": 0.25,
    }
    expected = Usage(
        input_tokens=10,
        output_tokens=7,
        cache_read_tokens=4,
        cache_write_tokens=2,
        reasoning_tokens=3,
        cost=0.25,
    )
    end = choice({}, "stop")

    assert built(end, {"choices": [], "usage": openai}).usage == expected
    assert built({**end, "usage": None}, {"x_groq": {"usage": openai}}).usage == expected
    assert built(choice({}, "stop", usage=openai)).usage == expected
    assert built({**end, "usage": {"prompt_cache_hit_tokens": 5}}).usage == Usage(
        cache_read_tokens=5
    )


def test_counts_that_are_none_are_zero():
    odd = {
        "prompt_tokens": "many",
        "completion_tokens": -1,
        "prompt_tokens_details": None,
        "completion_tokens_details": [1],
        "cost": True,
    }

    assert built({**choice({}, "stop"), "usage": odd}).usage == Usage()


NO_NEWS: list[Chunk] = [
    {},
    {"choices": None},
    {"choices": [None, 3]},
    {"choices": [{"index": 1, "delta": {"content": "the other choice"}}]},
    {"choices": [{"delta": None}]},
    {"choices": [{"delta": "x"}]},
    {"choices": [{"delta": {"content": 7, "tool_calls": [None], "reasoning": {}}}]},
    {"error": None, "choices": []},
    {"error": "", "choices": []},
]


@pytest.mark.parametrize("chunk", NO_NEWS)
def test_a_chunk_without_news_changes_nothing(chunk: Chunk):
    building = builder()

    assert building.add(chunk) == []
    assert not building.complete
    building.end()
    assert building.reply() == Reply(())


def test_deltas_tell_what_a_chunk_adds():
    building = builder()

    assert building.add(choice({"reasoning": "a", "content": "b"})) == [
        Delta(thinking="a"),
        Delta(text="b"),
    ]


def test_a_reply_whose_end_never_came_is_no_reply():
    building = builder()
    building.add(choice({"content": "half of"}))

    with pytest.raises(InvalidReply) as caught:
        building.reply()

    assert caught.value.retryable


ERRORS: list[Any] = [
    {"error": {"code": 502, "message": "SECRET"}},
    {"object": "error", "code": 502},
    [{"error": {"code": 502}}],
    {"error": {"code": "502"}, "choices": []},
    choice({}, "error", error={"code": 502, "message": "SECRET"}),
    choice({}, "error", code=502),
    choice({}, "stop", error={"code": 502}),
]


@pytest.mark.parametrize("chunk", ERRORS)
def test_an_error_in_place_of_a_chunk_is_raised(chunk: Any):
    with pytest.raises(LLMError) as caught:
        builder().add(chunk)

    assert (caught.value.status, caught.value.retryable) == (502, True)
    assert "SECRET" not in str(caught.value)


@pytest.mark.parametrize("body", ["text", None, 3, {}, {"choices": []}, {"detail": "SECRET"}])
def test_a_whole_answer_that_is_no_completion_is_invalid(body: Any):
    with pytest.raises(InvalidReply) as caught:
        builder().add(body, whole=True)

    assert caught.value.retryable
