import subprocess
import sys
from operator import attrgetter

import pytest

import lib.llm
from lib.errors import UnsupportedModality
from lib.llm import (
    Audio,
    ChatClient,
    Delta,
    File,
    FunctionClient,
    Image,
    LLMClient,
    Message,
    Opaque,
    Reply,
    ScriptedClient,
    Text,
    Thinking,
    ToolCall,
    ToolCallDelta,
    ToolResult,
    Usage,
    check_modalities,
    deltas_of,
    estimate_tokens,
    reply_from_json,
    reply_to_json,
    usage_from_json,
)


def test_a_reply_is_stored_without_its_defaults():
    call = ToolCall("c1", "f")
    whole = Reply(
        (Text("a"), call), Usage(input_tokens=3, cost=0.5), "tool_calls", "m", "id", {"at": 1}
    )

    assert reply_to_json(Reply((Text("a"),))) == {"parts": [{"type": "text", "text": "a"}]}
    assert reply_to_json(whole) == {
        "parts": [{"type": "text", "text": "a"}, {"type": "tool_call", "id": "c1", "name": "f"}],
        "usage": {"input_tokens": 3, "cost": 0.5},
        "stop": "tool_calls",
        "model": "m",
        "id": "id",
        "state": {"at": 1},
    }
    assert whole.message == Message.assistant("a", call)
    assert (whole.text, whole.tool_calls) == ("a", (call,))


def test_what_a_newer_release_adds_to_replies_and_usage_is_ignored():
    assert reply_from_json({"parts": [], "stop": "paused", "speed": 9}) == Reply((), stop="other")
    assert usage_from_json({"output_tokens": 2, "frames": 9}) == Usage(output_tokens=2)


def test_a_known_cost_is_not_lost_by_an_unknown_one():
    assert (Usage(cost=0.5) + Usage()).cost == 0.5
    assert (Usage() + Usage()).cost is None
    assert (Usage(cost=0.5) + Usage(cost=0.0)).cost == 0.5


@pytest.mark.parametrize(
    "part",
    [
        Image(url="u"),
        Audio(data=b"x", media_type="audio/wav"),
        File(data=b"x", media_type="text/plain"),
    ],
)
def test_an_attachment_that_the_client_did_not_declare_is_refused(part: Image | Audio | File):
    messages = [Message.user("hi"), Message.user("see", part)]

    check_modalities(messages, frozenset({"text", part.modality}), client="chat")
    with pytest.raises(UnsupportedModality) as caught:
        check_modalities(messages, frozenset({"text"}), client="chat")

    assert caught.value.modality == part.modality
    assert caught.value.client == "chat"
    assert caught.value.supported == {"text"}
    assert not caught.value.retryable


def test_a_part_of_unknown_type_is_refused():
    with pytest.raises(UnsupportedModality) as caught:
        check_modalities(
            [Message.user(Opaque({"type": "video"}))], frozenset({"text"}), client="chat"
        )

    assert caught.value.modality == "video"


def test_a_reply_is_taken_apart_into_the_deltas_that_a_stream_brings():
    calls = (ToolCall("c1", "f", {"a": 1}), ToolCall("c2", "g", invalid="x"), ToolCall("c3", "h"))
    reply = Reply((Thinking("hm"), Text("hello"), Text(""), *calls))

    assert [*deltas_of(reply, chars=3)] == [
        Delta(thinking="hm"),
        Delta(text="hel"),
        Delta(text="lo"),
        Delta(tool_call=ToolCallDelta(0, "c1", "f")),
        Delta(tool_call=ToolCallDelta(0, arguments='{"a')),
        Delta(tool_call=ToolCallDelta(0, arguments='":1')),
        Delta(tool_call=ToolCallDelta(0, arguments="}")),
        Delta(tool_call=ToolCallDelta(1, "c2", "g")),
        Delta(tool_call=ToolCallDelta(1, arguments="x")),
        Delta(tool_call=ToolCallDelta(2, "c3", "h")),
        Delta(tool_call=ToolCallDelta(2, arguments="{}")),
    ]
    assert [*deltas_of(Reply((Text("hello"), Opaque({"type": "video"}))))] == [Delta(text="hello")]


def test_the_estimate_of_tokens_counts_every_part():
    parts = (
        Text("12345"),
        Thinking("1234"),
        ToolCall("c", "name", invalid="1234"),
        ToolResult("c", ""),
        Image(url="u"),
        Opaque({"type": "video"}),
    )

    assert estimate_tokens(parts) == 2 + 1 + 2 + 0 + 500 + 4
    assert estimate_tokens([Message("user", parts)]) == 4 + 509


def test_all_clients_are_of_the_protocol():
    clients: list[LLMClient] = [
        ChatClient("m", base_url="http://127.0.0.1:1/v1"),
        ScriptedClient([]),
        FunctionClient(lambda _: "hi"),
    ]

    assert [client.name for client in clients] == ["chat", "scripted", "function"]
    assert [client.model for client in clients] == ["m", "scripted", "function"]
    assert [client.modalities for client in clients] == [frozenset({"text"})] * 3


def test_every_public_name_is_there_and_sorted():
    assert list(lib.llm.__all__) == sorted(lib.llm.__all__)
    assert all(getattr(lib.llm, name) is not None for name in lib.llm.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Nonsense'"):
        attrgetter("Nonsense")(lib.llm)


def test_importing_the_package_loads_neither_an_http_library_nor_pydantic():
    code = (
        "import sys, lib.llm\n"
        "from lib.llm import ScriptedClient, ChatClient\n"
        "ChatClient('m', base_url='http://127.0.0.1:1')\n"
        "print({'httpx2', 'pydantic', 'asyncio.base_events'} & set(sys.modules))"
    )

    out = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        check=True,
        encoding="utf-8",
    )

    assert out.stdout.split("\n")[0] == "{'asyncio.base_events'}"
