"""Request bodies, held against the official SDK's own types."""

from typing import Any

import pytest
from openai.types.chat.completion_create_params import (
    CompletionCreateParamsNonStreaming,
    CompletionCreateParamsStreaming,
)
from pydantic import BaseModel, ValidationError

from lib.errors import LLMError, UnsupportedModality
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
from lib.llm.chat.request import Dialect, build_body
from lib.llm.messages import Role
from lib.llm.parts import Part

from .sdk_kit import SDKTypes

SEARCH = ToolSpec(
    "search",
    "Search the docs",
    {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
)


class Answer(BaseModel):
    reasoning: str
    answer: int


def build(*messages: Message, dialect: Dialect | None = None, **options: Any) -> dict[str, Any]:
    return build_body(messages, model="m", dialect=dialect or Dialect(), **options)


SDK = SDKTypes(CompletionCreateParamsNonStreaming, CompletionCreateParamsStreaming)
PNG = Image(data=b"\x89PNG", media_type="image/png")
CONVERSATION = (
    Message.system("Be brief."),
    Message.user("What is ", "this?"),
    Message.user("See", PNG, Image(url="https://x.test/a.png")),
    Message.user(
        Audio(data=b"RIFF", media_type="audio/x-wav"),
        Audio(data=b"ID3", media_type="audio/mpeg"),
        File(data=b"%PDF", media_type="application/pdf", name="a.pdf"),
        File(data=b"%PDF", media_type="application/pdf"),
    ),
    Message.assistant(Thinking("hm"), "I search", ToolCall("c1", "search", {"q": "ü", "a": 1})),
    Message.tool(ToolResult("c1", "found")),
    Message.assistant(ToolCall("c2", "search", invalid='{"q": '), ToolCall("c3", "search")),
    Message.tool(ToolResult("c2", "no JSON", is_error=True), ToolResult("c3", "found")),
    Message.assistant(Thinking("nothing to say")),
)
MESSAGES = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "What is this?"},
    {
        "role": "user",
        "content": [
            {"type": "text", "text": "See"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw=="}},
            {"type": "image_url", "image_url": {"url": "https://x.test/a.png"}},
        ],
    },
    {
        "role": "user",
        "content": [
            {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}},
            {"type": "input_audio", "input_audio": {"data": "SUQz", "format": "mp3"}},
            {
                "type": "file",
                "file": {
                    "filename": "a.pdf",
                    "file_data": "data:application/pdf;base64,JVBERg==",
                },
            },
            {
                "type": "file",
                "file": {"filename": "file", "file_data": "data:application/pdf;base64,JVBERg=="},
            },
        ],
    },
    {
        "role": "assistant",
        "content": "I search",
        "tool_calls": [
            {
                "id": "c1",
                "type": "function",
                "function": {"name": "search", "arguments": '{"a":1,"q":"ü"}'},
            }
        ],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "found"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": "c2",
                "type": "function",
                "function": {"name": "search", "arguments": r'{"INVALID_JSON":"{\"q\": "}'},
            },
            {
                "id": "c3",
                "type": "function",
                "function": {"name": "search", "arguments": "{}"},
            },
        ],
    },
    {"role": "tool", "tool_call_id": "c2", "content": "Error: no JSON"},
    {"role": "tool", "tool_call_id": "c3", "content": "found"},
    {"role": "assistant", "content": ""},
]


def test_a_whole_conversation_is_written_as_the_official_types_have_it():
    body = build(*CONVERSATION)

    assert body == {"model": "m", "messages": MESSAGES}
    assert SDK.read(body) == body


def test_everything_that_a_call_can_ask_is_written_as_the_official_types_have_it():
    settings = {"temperature": 0.2, "max_tokens": 9, "stop": ["\n"], "tool_choice": "search"}
    body = build(Message.user("hi"), tools=[SEARCH], output=Answer, settings=settings, stream=True)

    assert body == {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "temperature": 0.2,
        "stop": ["\n"],
        "max_tokens": 9,
        "tool_choice": {"type": "function", "function": {"name": "search"}},
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "search",
                    "description": "Search the docs",
                    "parameters": SEARCH.input_schema,
                },
            }
        ],
        "response_format": {
            "type": "json_schema",
            "json_schema": {
                "name": "output",
                "strict": True,
                "schema": {
                    "title": "Answer",
                    "type": "object",
                    "properties": {
                        "reasoning": {"title": "Reasoning", "type": "string"},
                        "answer": {"title": "Answer", "type": "integer"},
                    },
                    "required": ["reasoning", "answer"],
                    "additionalProperties": False,
                },
            },
        },
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    assert SDK.read(body) == body


def test_the_oracle_sees_wrong_and_unknown_fields():
    wrong = {"model": "m", "messages": [{"role": "user", "content": [{"type": "text"}]}]}
    unknown = {"model": "m", "messages": [{"role": "user", "content": "hi", "colour": "red"}]}

    with pytest.raises(ValidationError):
        SDK.read(wrong)
    assert SDK.read(unknown) != unknown


def test_properties_stay_in_the_order_of_the_schema():
    schema = build(Message.user("hi"), output=Answer)["response_format"]["json_schema"]["schema"]

    assert list(schema["properties"]) == ["reasoning", "answer"]


def test_a_schema_without_a_strict_form_is_sent_as_it_is():
    schema = {"type": "object", "additionalProperties": {"type": "integer"}}

    schema_format = build(Message.user("hi"), output=schema)["response_format"]["json_schema"]

    assert schema_format == {"name": "output", "strict": False, "schema": schema}


def test_what_needs_tools_is_left_out_without_tools():
    settings = {"tool_choice": "auto", "parallel_tool_calls": False, "seed": 1}

    assert build(Message.user("hi"), settings=settings) == {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "seed": 1,
    }
    with_tools = build(Message.user("hi"), settings=settings, tools=[SEARCH])
    assert with_tools["tool_choice"] == "auto"
    assert with_tools["parallel_tool_calls"] is False


def test_a_server_has_its_own_names_for_things():
    dialect = Dialect(max_tokens_field="max_completion_tokens", thinking_field="reasoning_content")
    signed = ToolCall("c", "f", extra={"extra_content": {"google": {}}, "other": 1})

    body = build(
        Message.assistant(Thinking("a"), Thinking("b"), signed),
        Message.assistant("done"),
        dialect=dialect,
        settings={"max_tokens": 7},
    )

    assert body == {
        "model": "m",
        "messages": [
            {
                "role": "assistant",
                "content": None,
                "reasoning_content": "ab",
                "tool_calls": [
                    {
                        "id": "c",
                        "type": "function",
                        "function": {"name": "f", "arguments": "{}"},
                        "extra_content": {"google": {}},
                    }
                ],
            },
            {"role": "assistant", "content": "done", "reasoning_content": ""},
        ],
        "max_completion_tokens": 7,
    }


def test_settings_cannot_replace_what_has_a_parameter():
    taken = ["messages", "model", "n", "response_format", "stream", "stream_options", "tools"]

    with pytest.raises(ValueError, match=f"settings cannot hold {', '.join(taken)}$"):
        build(Message.user("hi"), settings={**dict.fromkeys(taken), "seed": 1})


MISPLACED: list[tuple[Role, Part]] = [
    ("system", PNG),
    ("system", ToolCall("c", "f")),
    ("user", ToolCall("c", "f")),
    ("user", ToolResult("c", "x")),
    ("user", Thinking("x")),
    ("user", Opaque({"type": "video"})),
    ("assistant", PNG),
    ("assistant", ToolResult("c", "x")),
    ("tool", Text("x")),
]


@pytest.mark.parametrize(("role", "part"), MISPLACED)
def test_a_part_that_its_role_cannot_carry_is_refused(role: Role, part: Part):
    with pytest.raises(LLMError, match=f"no {type(part).__name__} in a message of the {role}"):
        build(Message(role, (part,)))


@pytest.mark.parametrize("part", [Audio(url="https://x.test/a"), File(url="https://x.test/a")])
def test_audio_and_files_by_url_are_a_modality_of_their_own(part: Audio | File):
    with pytest.raises(UnsupportedModality) as caught:
        build(Message.user(part))

    assert caught.value.modality == f"{part.modality} by URL"


def test_a_blob_that_was_not_loaded_is_refused():
    with pytest.raises(LLMError, match="blob was not loaded"):
        build(Message.user(Image(blob=BlobRef("a", 1, "image/png"))))
