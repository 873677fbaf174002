import copy
import json
import pickle
from dataclasses import asdict, replace
from typing import Any

import pytest

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
    message_from_json,
    message_to_json,
    part_from_json,
    part_to_json,
)


def test_a_message_of_one_text_has_the_short_form():
    assert message_to_json(Message.user("hi")) == {"role": "user", "content": "hi"}


def test_each_role_has_its_constructor():
    result = ToolResult("c", "x")

    assert Message.system("a") == Message("system", (Text("a"),))
    assert Message.user("a", Text("b")) == Message("user", (Text("a"), Text("b")))
    assert Message.assistant() == Message("assistant", ())
    assert Message.tool(result, result) == Message("tool", (result, result))


def test_any_other_message_lists_its_parts_without_their_defaults():
    message = Message.assistant(
        Thinking("hm"), "I look", ToolCall("c1", "search", {"q": "x"}), ToolCall("c2", "now")
    )

    assert message_to_json(message) == {
        "role": "assistant",
        "parts": [
            {"type": "thinking", "text": "hm"},
            {"type": "text", "text": "I look"},
            {"type": "tool_call", "id": "c1", "name": "search", "arguments": {"q": "x"}},
            {"type": "tool_call", "id": "c2", "name": "now"},
        ],
    }


def test_a_text_with_unknown_keys_is_not_shortened():
    message = Message.user(Text("hi", extra={"lang": "en"}))

    assert message_to_json(message) == {
        "role": "user",
        "parts": [{"type": "text", "text": "hi", "lang": "en"}],
    }


def test_the_long_form_of_one_text_is_read_as_the_short_one():
    long = {"role": "user", "parts": [{"type": "text", "text": "hi"}]}

    assert message_from_json(long) == Message.user("hi")


def test_results_tell_an_error_and_signatures_are_kept():
    message = Message.tool(ToolResult("c1", "no", is_error=True), ToolResult("c2", "yes"))

    assert message_to_json(message)["parts"] == [
        {"type": "tool_result", "call_id": "c1", "content": "no", "is_error": True},
        {"type": "tool_result", "call_id": "c2", "content": "yes"},
    ]
    assert part_to_json(Thinking("hm", "sig")) == {
        "type": "thinking",
        "text": "hm",
        "signature": "sig",
    }


def test_attachments_have_one_form_for_each_source():
    blob = BlobRef("ab" * 32, 3, "application/pdf")

    assert part_to_json(Image(data=b"\x00\xff", media_type="image/png")) == {
        "type": "image",
        "data": "AP8=",
        "media_type": "image/png",
    }
    assert part_to_json(File(blob=blob, name="a.pdf")) == {
        "type": "file",
        "blob": {"$blob": "ab" * 32, "size": 3, "type": "application/pdf"},
        "name": "a.pdf",
    }
    assert part_to_json(Audio(blob=blob, media_type="audio/wav"))["media_type"] == "audio/wav"
    assert part_to_json(Image(url="https://x.test/a")) == {
        "type": "image",
        "url": "https://x.test/a",
    }


def test_text_and_tool_calls_of_a_message_are_at_hand():
    call = ToolCall("c1", "f")
    message = Message.assistant("a", Thinking("b"), call, "c")

    assert message.text == "ac"
    assert message.tool_calls == (call,)


def test_what_a_newer_release_wrote_survives():
    stored = {
        "role": "user",
        "cached": True,
        "parts": [{"type": "video", "url": "u"}, {"type": "text", "text": "x", "lang": "de"}],
    }

    message = message_from_json(stored)

    assert message == Message(
        "user",
        (Opaque({"type": "video", "url": "u"}), Text("x", extra={"lang": "de"})),
        extra={"cached": True},
    )
    assert message_to_json(message) == stored


NO_MESSAGES: list[Any] = [
    "hi",
    {},
    {"role": "user"},
    {"role": "robot", "content": "x"},
    {"role": "user", "content": "x", "parts": []},
    {"role": "user", "content": 3},
    {"role": "user", "parts": ["x"]},
    {"role": "user", "parts": [{}]},
    {"role": "user", "parts": [{"type": "text"}]},
    {"role": "user", "parts": [{"type": "image"}]},
    {"role": "user", "parts": [{"type": "image", "data": "%%", "media_type": "a/b"}]},
    {"role": "user", "parts": [{"type": "image", "data": "AP8=", "url": "u"}]},
    {"role": "user", "parts": [{"type": "image", "blob": "ab"}]},
    {"role": "user", "parts": [{"type": "image", "blob": {"$blob": "ab", "type": "a/b"}}]},
    {"role": "user", "parts": [{"type": "tool_call", "id": "1", "name": "f", "arguments": []}]},
    {"role": "user", "parts": [{"type": "tool_result", "call_id": 1, "content": "x"}]},
]


@pytest.mark.parametrize("stored", NO_MESSAGES)
def test_what_is_no_message_is_refused(stored: Any):
    with pytest.raises(ValueError, match=r"message|part|object|attachment|arguments|base64|blob"):
        message_from_json(stored)


@pytest.mark.parametrize(
    "sources",
    [
        {},
        {"data": b"x"},
        {"data": b"x", "url": "u", "media_type": "image/png"},
        {"url": "u", "blob": BlobRef("a", 1, "b/c")},
    ],
)
def test_an_attachment_without_exactly_one_usable_source_is_refused(sources: dict[str, Any]):
    with pytest.raises(ValueError, match="attachment"):
        Image(**sources)


def test_a_blob_gives_its_attachment_the_media_type():
    assert Image(blob=BlobRef("a", 1, "image/gif")).media_type == "image/gif"


def test_an_opaque_part_is_of_a_type_that_has_no_class():
    assert part_from_json({"type": "video"}) == Opaque({"type": "video"})
    with pytest.raises(ValueError, match="'text' is a part of its own"):
        Opaque({"type": "text", "text": "x"})
    with pytest.raises(ValueError, match="'type'"):
        Opaque({"text": "x"})


def test_what_has_no_extra_says_so_and_cannot_be_given_one_in_place() -> None:
    text, message = Text("a"), Message.user("b")

    assert text.extra == message.extra == {}
    assert message_from_json(message_to_json(message)).extra is text.extra
    for change in (
        lambda: text.extra.update(lang="en"),
        lambda: text.extra.setdefault("lang", "en"),
        lambda: text.extra.__setitem__("lang", "en"),
        lambda: message.extra.__ior__({"lang": "en"}),
        lambda: message.extra.__init__(lang="en"),
    ):
        with pytest.raises(TypeError, match="cannot be changed: make the part or message again"):
            change()
    assert Text("d").extra == {}
    assert replace(text, extra={"lang": "en"}).extra == {"lang": "en"}


@pytest.mark.parametrize("message", [Message.user("a"), Message.tool(ToolResult("c", "x"))])
def test_messages_can_be_copied_pickled_and_written(message: Message) -> None:
    for again in (
        copy.copy(message),
        copy.deepcopy(message),
        pickle.loads(pickle.dumps(message)),
    ):
        assert again == message
    extras: list[dict[str, Any]] = [
        copy.deepcopy(message).extra,
        pickle.loads(pickle.dumps(message)).extra,
        asdict(message)["extra"],
        message.extra.copy(),
        message.extra | {},
    ]
    for extra in extras:
        extra["lang"] = "en"
    assert json.loads(json.dumps(asdict(message)))["extra"] == message.extra == {}
