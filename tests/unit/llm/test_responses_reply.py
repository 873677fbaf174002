"""Replies from responses, item by item, odd ones included."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.errors import InvalidReply, LLMError
from lib.llm import (
    Delta,
    Message,
    Opaque,
    Reply,
    Text,
    Thinking,
    ToolCall,
    ToolCallDelta,
    Usage,
    reply_from_json,
    reply_to_json,
)
from lib.llm.responses.reply import ReplyBuilder
from lib.llm.responses.request import build_body

SERVER = "api.test"


def builder(**options: Any) -> ReplyBuilder:
    response: dict[str, Any] = {
        "used_ids": (),
        "new_id": iter("xyz").__next__,
        "server": SERVER,
        "store": True,
    }
    response |= {"previous": "", **options}
    return ReplyBuilder(**response)


def read(*output: Any, **response: Any) -> Reply:
    building = builder()
    building.add({"status": "completed", "output": [*output], **response}, whole=True)
    return building.reply()


def message(*content: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "message", "content": [*content], **more}


def text(content: str) -> dict[str, Any]:
    return {"type": "output_text", "text": content}


def call(arguments: Any, **more: Any) -> dict[str, Any]:
    return {
        "type": "function_call",
        "call_id": "c",
        "name": "look",
        "arguments": arguments,
        **more,
    }


def test_each_message_is_a_text_of_its_own() -> None:
    answer = read(
        message(text("I look. "), phase="commentary"),
        message(text("It is "), text("here."), phase="final_answer"),
    )

    assert answer.parts == (
        Text("I look. ", extra={"phase": "commentary"}),
        Text("It is here.", extra={"phase": "final_answer"}),
    )
    assert answer.text == "I look. It is here."


def test_a_refusal_is_a_text_that_stops_for_the_filter() -> None:
    answer = read(message({"type": "refusal", "refusal": "I will not."}), id="resp_1")

    assert (answer.text, answer.stop) == ("I will not.", "content_filter")


def test_reasoning_keeps_its_seal_and_what_may_be_read_of_it() -> None:
    def reasoning(**more: Any) -> dict[str, Any]:
        return {"type": "reasoning", **more}

    summary = [{"type": "summary_text", "text": "one"}, {"type": "summary_text", "text": "two"}]
    content = [{"type": "reasoning_text", "text": "all of it"}]

    assert read(
        reasoning(id="rs_1", summary=summary, encrypted_content="s/eal"),
        reasoning(id="rs_2", summary=[], encrypted_content="seal"),
        reasoning(id="rs_3", summary=[], content=content),
        reasoning(summary=summary, content=content, encrypted_content="without an id"),
        reasoning(id="rs/4", summary=summary, encrypted_content="seal"),
        reasoning(id="rs_5", summary=[]),
        reasoning(),
    ).parts == (
        Thinking("one\n\ntwo", "responses/api.test/rs_1/s/eal"),
        Thinking("", "responses/api.test/rs_2/seal"),
        Thinking("all of it"),
        Thinking("one\n\ntwo"),
        Thinking("one\n\ntwo"),
    )


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ('{"a": 1}', ToolCall("c", "look", {"a": 1})),
        ("", ToolCall("c", "look")),
        (None, ToolCall("c", "look")),
        ({"a": 1}, ToolCall("c", "look", {"a": 1})),
        ('{"a', ToolCall("c", "look", invalid='{"a')),
        ("[1]", ToolCall("c", "look", invalid="[1]")),
    ],
)
def test_arguments_are_read_in_every_form(arguments: Any, expected: ToolCall) -> None:
    answer = read(call(arguments))

    assert (answer.parts, answer.stop) == ((expected,), "tool_calls")


def test_a_call_that_is_cut_off_before_its_arguments_is_not_made_without_them() -> None:
    cut = {**call(""), "status": "incomplete"}

    assert read(cut, status="incomplete").parts == (ToolCall("c", "look", invalid=""),)
    assert read({**cut, "status": "completed"}).parts == (ToolCall("c", "look"),)


def test_unknown_items_are_kept_as_they_are() -> None:
    stranger = {"type": "web_search_call", "id": "ws_1"}
    answer = read(stranger, 7, None, message(), message(text("found")))

    own = {"wire": "responses", "server": SERVER, "block": stranger}
    assert answer.parts == (Opaque({"type": "provider_block", **own}), Text("found"))


@pytest.mark.parametrize(
    ("response", "stop"),
    [
        ({}, "stop"),
        ({"status": None}, "stop"),
        ({"status": "incomplete"}, "other"),
        ({"status": "incomplete", "incomplete_details": {"reason": "max_messages"}}, "other"),
        ({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}, "length"),
        (
            {"status": "incomplete", "incomplete_details": {"reason": "content_filter"}},
            "content_filter",
        ),
    ],
)
def test_why_the_model_stopped(response: dict[str, Any], stop: str) -> None:
    assert read(message(text("x")), **response).stop == stop


def test_usage_is_read_as_far_as_it_is_there() -> None:
    usage = {"input_tokens": 9, "output_tokens": 3, "input_tokens_details": {"cached_tokens": 4}}

    assert read(usage=usage).usage == Usage(input_tokens=9, output_tokens=3, cache_read_tokens=4)
    assert read(usage=None).usage == Usage()
    assert read(usage={"cost": 0.5}).usage == Usage(cost=0.5)
    assert read(usage={"input_tokens": "9", "output_tokens": -1}).usage == Usage()


def test_a_handle_comes_with_the_id_of_a_whole_response() -> None:
    assert read(id="resp_1").state == {"id": "resp_1", "server": SERVER}
    assert read(id="resp_1", store=True).state == {"id": "resp_1", "server": SERVER}
    assert read(id="resp_1", store=False).state is None
    assert read().state is None
    building = builder(store=False)
    building.add({"id": "resp_1", "output": [message(text("x"))]}, whole=True)
    assert building.reply().state is None


# -- events --------------------------------------------------------------------------------------


def event(kind: str, index: int = 0, **more: Any) -> dict[str, Any]:
    return {"type": f"response.{kind}", "output_index": index, **more}


def test_paragraphs_of_thinking_stay_apart() -> None:
    building = builder()
    deltas = [
        delta
        for index, part, piece in [(0, 0, "a"), (0, 0, "b"), (0, 1, "c"), (1, 0, "d")]
        for delta in building.add(
            event("reasoning_summary_text.delta", index, summary_index=part, delta=piece)
        )
    ]
    deltas += building.add(event("reasoning_text.delta", 1, content_index=1, delta="e"))

    assert [delta.thinking for delta in deltas] == ["a", "b", "\n\nc", "d", "\n\ne"]


def test_calls_are_counted_among_themselves() -> None:
    building = builder()
    deltas = [
        *building.add(event("output_item.added", 3, item=call("", call_id="c1"))),
        *building.add(event("output_item.added", 5, item=call("", call_id="c2"))),
        *building.add(event("function_call_arguments.delta", 5, delta="{}")),
        *building.add(event("function_call_arguments.delta", 3, delta="{")),
        *building.add(event("output_item.done", 3, item=call("{}", call_id="c1"))),
        *building.add(event("output_item.done", 5, item=call("{}", call_id="c2"))),
        *building.add(event("completed")),
    ]

    assert deltas == [
        Delta(tool_call=ToolCallDelta(0, "c1", "look")),
        Delta(tool_call=ToolCallDelta(1, "c2", "look")),
        Delta(tool_call=ToolCallDelta(1, arguments="{}")),
        Delta(tool_call=ToolCallDelta(0, arguments="{")),
    ]
    assert building.reply().tool_calls == (ToolCall("c1", "look"), ToolCall("c2", "look"))


def test_items_stand_in_the_order_of_their_places() -> None:
    building = builder()
    for index, content in ((1, "two"), (0, "one")):
        building.add(event("output_item.done", index, item=message(text(content))))
    building.add(event("incomplete", response={"status": "incomplete"}))

    assert building.reply() == Reply((Text("one"), Text("two")), stop="other")


def test_a_reply_that_has_not_ended_is_none() -> None:
    building = builder()
    building.add(event("output_item.done", item=message(text("x"))))

    assert not building.complete
    with pytest.raises(InvalidReply, match="ended before the reply did"):
        building.reply()


def test_a_response_that_goes_on_from_what_was_named_is_taken() -> None:
    building = builder(previous="resp_0")
    named = {"previous_response_id": "resp_0", "output": [message(text("x"))]}
    building.add(event("created", response={**named, "output": []}))
    building.add(event("in_progress", response={}))
    building.add(event("completed", response=named))

    assert building.reply().text == "x"


# -- whatever comes ------------------------------------------------------------------------------

KINDS = [
    "error",
    "response.created",
    "response.in_progress",
    "response.output_item.added",
    "response.output_item.done",
    "response.output_text.delta",
    "response.refusal.delta",
    "response.reasoning_summary_text.delta",
    "response.function_call_arguments.delta",
    "response.completed",
    "response.incomplete",
    "response.failed",
]
WORDS = ["message", "reasoning", "function_call", "completed", "incomplete", "x", "{}", ""]
NAMES = [
    *("type", "response", "item", "items", "output", "content", "summary", "text", "delta"),
    *("status", "error", "code", "param", "id", "call_id", "name", "arguments", "output_index"),
    *("summary_index", "usage", "input_tokens", "encrypted_content", "phase", "model"),
    *("incomplete_details", "reason", "previous_response_id", "store"),
]
scalars = st.none() | st.booleans() | st.integers(-9, 9) | st.floats(allow_nan=False)
values = st.recursive(
    scalars | st.sampled_from(WORDS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner),
    max_leaves=12,
)
events = st.dictionaries(st.sampled_from(NAMES), values).flatmap(
    lambda event: st.sampled_from(KINDS).map(lambda kind: {**event, "type": kind})
)


@given(
    stream_events=st.lists(events | values, max_size=5), whole=st.booleans(), previous=st.booleans()
)
def test_whatever_a_server_says_is_a_reply_or_a_typed_error(
    stream_events: list[Any], *, whole: bool, previous: bool
) -> None:
    building = builder(previous="resp_0" if previous else "", new_id=lambda: "new")
    with suppress(LLMError):
        for one in stream_events:
            building.add(one, whole=whole)
        answer = building.reply()
        assert reply_from_json(json.loads(json.dumps(reply_to_json(answer)))) == answer
        build_body([Message.user("hi"), answer.message], model="m")


def test_what_is_sealed_goes_back_and_what_is_not_is_only_kept() -> None:
    compacted = {"type": "compaction", "id": "cmp_1", "encrypted_content": "seal"}
    searched = {"type": "web_search_call", "id": "ws_1", "status": "completed"}

    reply = read(searched, compacted, message(text("Found.")))

    assert reply.text == "Found."
    assert [part.data["block"] for part in reply.parts if isinstance(part, Opaque)] == [
        searched,
        compacted,
    ]
    again = reply_from_json(json.loads(json.dumps(reply_to_json(reply))))
    for server, expected in ((SERVER, [compacted]), ("elsewhere", [])):
        items = build_body([again.message], model="m", server=server)["input"]
        assert [item for item in items if "role" not in item] == expected
