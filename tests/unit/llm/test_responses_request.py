"""Bodies of responses requests, judged by the types of the official SDK."""

import json
from typing import Any

import pytest
from openai.types.responses.response_create_params import (
    ResponseCreateParamsNonStreaming,
    ResponseCreateParamsStreaming,
)
from pydantic import BaseModel, ConfigDict, with_config

from lib.errors import LLMError
from lib.llm import (
    Audio,
    BlobRef,
    File,
    Image,
    Message,
    Opaque,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    ToolSpec,
)
from lib.llm.responses.request import build_body

from .sdk_kit import SDKTypes

strict = with_config(ConfigDict(extra="forbid"))
SDK = SDKTypes(strict(ResponseCreateParamsNonStreaming), strict(ResponseCreateParamsStreaming))


def body(*messages: Message, **options: Any) -> dict[str, Any]:
    """Return the body, which the SDK must take, too."""
    built = build_body(messages, model="m", server="api.test", **options)
    plain = json.loads(json.dumps(built))
    assert SDK.read(plain) == plain
    return built


def items(*messages: Message) -> list[dict[str, Any]]:
    return body(*messages)["input"]


HI = Message.user("hi")
SEALED = Thinking("I look", "responses/api.test/rs_1/gA/A")
REASONING = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [{"type": "summary_text", "text": "I look"}],
    "encrypted_content": "gA/A",
}


def test_a_conversation_becomes_items_in_its_order() -> None:
    assert items(
        Message.system("Be ", "brief"),
        HI,
        Message.assistant("I look", ToolCall("c1", "look", {"b": 1, "a": 2}), ToolCall("c2", "go")),
        Message.tool(ToolResult("c1", "seen"), ToolResult("c2", "no way", is_error=True)),
        Message.assistant("It is here."),
    ) == [
        {"role": "system", "content": "Be brief"},
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "I look"},
        {"type": "function_call", "call_id": "c1", "name": "look", "arguments": '{"a":2,"b":1}'},
        {"type": "function_call", "call_id": "c2", "name": "go", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "seen"},
        {"type": "function_call_output", "call_id": "c2", "output": "Error: no way"},
        {"role": "assistant", "content": "It is here."},
    ]


def test_what_the_user_attaches_goes_in_its_own_kind_of_content() -> None:
    image, document = b"\x89PNG", b"%PDF"
    assert items(
        Message.user(
            "see",
            Image(url="https://x.test/a.png"),
            Image(data=image, media_type="image/png"),
            File(url="https://x.test/a.pdf"),
            File(data=document, media_type="application/pdf", name="a.pdf"),
            File(data=document, media_type="application/pdf"),
        )
    ) == [
        {
            "role": "user",
            "content": [
                {"type": "input_text", "text": "see"},
                {"type": "input_image", "detail": "auto", "image_url": "https://x.test/a.png"},
                {
                    "type": "input_image",
                    "detail": "auto",
                    "image_url": "data:image/png;base64,iVBORw==",
                },
                {"type": "input_file", "file_url": "https://x.test/a.pdf"},
                {
                    "type": "input_file",
                    "filename": "a.pdf",
                    "file_data": "data:application/pdf;base64,JVBERg==",
                },
                {
                    "type": "input_file",
                    "filename": "file",
                    "file_data": "data:application/pdf;base64,JVBERg==",
                },
            ],
        }
    ]


def test_sealed_reasoning_goes_back_before_what_came_of_it() -> None:
    message = {"role": "assistant", "content": "here", "phase": "commentary"}
    commentary = Text("here", extra={"phase": "commentary"})
    silent = Thinking("", "responses/api.test/rs_2/gBBB")

    assert items(HI, Message.assistant(SEALED, commentary))[1:] == [REASONING, message]
    assert items(HI, Message.assistant(silent, "here"))[1] == {
        "type": "reasoning",
        "id": "rs_2",
        "summary": [],
        "encrypted_content": "gBBB",
    }


@pytest.mark.parametrize(
    "parts",
    [
        (Thinking("in the open"), "here"),
        (Thinking("sealed by another provider", "sig"), "here"),
        (Thinking("sealed by another provider", "messages/api.test/rs_1/gAAA"), "here"),
        (Thinking("sealed elsewhere", "responses/other.test/rs_1/gAAA"), "here"),
        (Thinking("sealed in part", "responses/api.test/rs_1"), "here"),
        (Thinking("sealed in part", "responses/api.test//gAAA"), "here"),
        ("here", SEALED),
        ("here", SEALED, ""),
    ],
)
def test_other_thinking_stays_here(parts: tuple[Any, ...]) -> None:
    assert items(HI, Message.assistant(*parts))[1:] == [{"role": "assistant", "content": "here"}]


def test_reasoning_that_nothing_came_of_stays_here() -> None:
    assert items(HI, Message.assistant(SEALED), HI) == items(HI, HI)


def test_arguments_that_were_not_json_go_back_as_json() -> None:
    (item,) = items(Message.assistant(ToolCall("c", "look", invalid='{"a')))

    assert json.loads(item["arguments"]) == {"INVALID_JSON": '{"a'}


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (Message.system(Image(url="u")), "no Image in a message of the system"),
        (Message.assistant(Image(url="u")), "no Image in a message of the assistant"),
        (Message.user(ToolCall("c", "f")), "no ToolCall in a message of the user"),
        (Message.user(Audio(url="u")), "no Audio in a message of the user"),
        (Message.user(Opaque({"type": "new"})), "no Opaque in a message of the user"),
        (Message("tool", (Text("x"),)), "no Text in a message of the tool"),
        (Message.user(Image(blob=BlobRef("0" * 64, 3, "image/png"))), "blob was not loaded"),
    ],
)
def test_what_has_no_place_is_refused(message: Message, expected: str) -> None:
    with pytest.raises(LLMError, match=expected):
        build_body([message], model="m")


# -- tools, outputs, settings --------------------------------------------------------------------


class Place(BaseModel):
    city: str
    street: str | None


class Optionally(BaseModel):
    city: str
    street: str | None = None


def tools_of(schema: dict[str, Any]) -> dict[str, Any]:
    (tool,) = body(HI, tools=[ToolSpec("look", "Look around", schema)])["tools"]
    return tool


def test_a_tool_that_requires_everything_is_strict() -> None:
    tool = tools_of(Place.model_json_schema())

    assert (tool["type"], tool["name"], tool["description"]) == ("function", "look", "Look around")
    assert tool["strict"] is True
    assert tool["parameters"]["additionalProperties"] is False
    assert tool["parameters"]["required"] == ["city", "street"]


NESTED: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "string"}}}


@pytest.mark.parametrize(
    "schema",
    [
        Optionally.model_json_schema(),
        {"type": "object", "properties": {"a": NESTED}, "required": ["a"]},
        {
            "type": "object",
            "properties": {"a": {"anyOf": [NESTED, {"type": "null"}]}},
            "required": ["a"],
        },
        {"type": "object", "properties": {"a": {}}, "required": ["a"]},
        {"type": "object", "properties": {"a": {"type": "string"}}, "required": True},
        {"type": "object"},
    ],
)
def test_a_tool_with_an_optional_or_open_schema_is_sent_unchanged(schema: dict[str, Any]) -> None:
    tool = tools_of(schema)

    assert (tool["strict"], tool["parameters"]) == (False, schema)


def test_an_output_is_requested_as_the_format_of_the_text() -> None:
    built = body(HI, output=Optionally, settings={"text": {"verbosity": "low"}})

    assert built["text"]["verbosity"] == "low"
    wanted = built["text"]["format"]
    assert (wanted["type"], wanted["name"], wanted["strict"]) == ("json_schema", "output", True)
    assert wanted["schema"]["required"] == ["city", "street"]
    loose = body(HI, output={"type": "object"})["text"]["format"]
    assert loose == {
        "type": "json_schema",
        "name": "output",
        "strict": False,
        "schema": {"type": "object"},
    }


def test_settings_go_as_they_are_but_for_two() -> None:
    settings = {"temperature": 0, "max_tokens": 5, "tool_choice": "look", "max_tool_calls": 1}
    tool = ToolSpec("look", "", {"type": "object", "properties": {}})

    built = body(HI, settings={**settings, "reasoning": {"effort": "low"}}, tools=[tool])

    assert built["max_output_tokens"] == 5
    assert built["tool_choice"] == {"type": "function", "name": "look"}
    assert built["reasoning"] == {"effort": "low"}
    assert built["max_tool_calls"] == 1
    assert "max_tokens" not in built
    without = body(HI, settings=settings)
    assert without.keys() == {"model", "input", "temperature", "max_output_tokens"}
    kept = body(HI, settings={"tool_choice": "required"}, tools=[tool])
    assert kept["tool_choice"] == "required"


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"store": False, "input": []}, "settings cannot hold input, store"),
        ({"previous_response_id": "x"}, "settings cannot hold previous_response_id"),
        ({"text": {"format": {}}}, "settings cannot hold text.format"),
    ],
)
def test_what_has_a_parameter_is_no_setting(settings: dict[str, Any], expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        build_body([HI], model="m", settings=settings)


def test_unset_options_are_not_sent() -> None:
    request_body = {"model": "m", "input": [{"role": "user", "content": "hi"}]}

    assert body(HI) == request_body
    assert body(HI, store=False, stream=True, previous="resp_1") == {
        **request_body,
        "previous_response_id": "resp_1",
        "store": False,
        "stream": True,
    }


MARK = {"prompt_cache_breakpoint": {"mode": "explicit", "ttl": "12h"}}


def marked(*messages: Message) -> tuple[list[list[str]], list[dict[str, Any]]]:
    """Return the texts of the marked parts of each item, and the items without their marks."""
    sent = body(*messages, cache="12h")["input"]
    found: list[list[str]] = []
    for item in sent:
        parts: Any = item.get("output", item.get("content", []))
        texts = list[str]()
        for part in () if isinstance(parts, str) else parts:
            if "prompt_cache_breakpoint" in part:
                assert {"prompt_cache_breakpoint": part.pop("prompt_cache_breakpoint")} == MARK
                texts.append(part.get("text", part["type"]))
        found.append(texts)
    return found, sent


def test_breakpoints_stand_where_the_next_call_begins_in_the_same_way() -> None:
    first = [Message.system("Be brief"), Message.user("look ", Image(url="https://a.test/a.png"))]
    answer = Message.assistant(Text("so"), ToolCall("c1", "look", {}), ToolCall("c2", "look", {}))
    results = Message.tool(ToolResult("c1", "a"), ToolResult("c2", "b", is_error=True))

    marks, sent = marked(*first)
    later_marks, later = marked(*first, answer, results)

    assert marks == [["Be brief"], ["input_image"]]
    assert later_marks == [["Be brief"], ["input_image"], [], [], [], [], ["Error: b"]]
    assert later[: len(sent)] == sent


def test_a_long_conversation_has_three_breakpoints_and_no_part_is_none() -> None:
    turns = [each for _ in range(5) for each in (HI, Message.assistant(Text("hello")))]

    assert marked(Message.system("Be brief"), *turns, HI)[0] == [
        ["Be brief"],
        *[[]] * 8,
        ["hi"],
        [],
        ["hi"],
    ]
    assert marked(Message.assistant(Text("hello")))[0] == [[]]
    assert marked(HI, Message.system("late"))[0] == [[], ["late"]]


def test_without_a_cache_nothing_is_marked_and_text_stays_text() -> None:
    assert items(HI) == [{"role": "user", "content": "hi"}]
