"""Laws of messages and replies: what was written is read back, equal things have equal bytes."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from lib._util.json import canonical, digest, parse
from lib.engine.core.conversation import EMPTY_DIGEST, History
from lib.llm import (
    Audio,
    BlobRef,
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
    Usage,
    message_from_json,
    message_to_json,
    reply_from_json,
    reply_to_json,
    usage_from_json,
    usage_to_json,
)

texts = st.text(st.characters(codec=None), max_size=20)
leaves = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
)
plain = st.recursive(
    leaves | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
# Keys of a release to come: none of ours begins with an underscore.
extras = st.dictionaries(texts.map("_{}".format), plain, max_size=2)
blobs = st.builds(BlobRef, texts, st.integers(0), texts)


def attachments(kind: type[Image | Audio | File], **more: Any) -> st.SearchStrategy[Any]:
    common = {"extra": extras, **more}
    media_types = st.sampled_from(["image/png", "x/y"])
    return st.one_of(
        st.builds(kind, data=st.binary(max_size=20), media_type=media_types, **common),
        st.builds(kind, blob=blobs, media_type=texts, **common),
        st.builds(kind, url=texts, media_type=texts, **common),
    )


def unknown(kind: str, rest: dict[str, Any]) -> Opaque:
    return Opaque({**rest, "type": f"_{kind}"})


opaque = st.builds(unknown, texts, st.dictionaries(texts, plain, max_size=3))
parts: st.SearchStrategy[Part] = st.one_of(
    st.builds(Text, texts, extra=extras),
    st.builds(Thinking, texts, st.none() | texts, extra=extras),
    st.builds(
        ToolCall,
        texts,
        texts,
        st.dictionaries(texts, plain, max_size=3),
        st.none() | texts,
        extra=extras,
    ),
    st.builds(ToolResult, texts, texts, st.booleans(), extra=extras),
    attachments(Image),
    attachments(Audio),
    attachments(File, name=texts),
    opaque,
)
messages = st.builds(
    Message,
    st.sampled_from(["system", "user", "assistant", "tool"]),
    st.lists(parts, max_size=4).map(tuple),
    extra=extras,
)
counts = st.integers(0, 10**9)
usages = st.builds(
    Usage,
    input_tokens=counts,
    output_tokens=counts,
    cache_read_tokens=counts,
    cache_write_tokens=counts,
    reasoning_tokens=counts,
    cost=st.none() | st.integers(0, 2**40).map(lambda n: n / 1024),
)
replies = st.builds(
    Reply,
    st.lists(parts, max_size=4).map(tuple),
    usages,
    st.sampled_from(["stop", "tool_calls", "length", "content_filter", "other"]),
    texts,
    texts,
    st.none() | st.dictionaries(texts, plain, max_size=2),
)


@given(messages)
def test_a_message_survives_its_stored_form(message: Message):
    assert message_from_json(parse(canonical(message_to_json(message)))) == message


@given(messages)
def test_a_stored_message_is_written_again_to_the_same_bytes(message: Message):
    stored = canonical(message_to_json(message))

    assert canonical(message_to_json(message_from_json(parse(stored)))) == stored


@given(messages | st.builds(ToolResult, texts, texts).map(Message.tool))
def test_a_history_has_the_digest_of_the_stored_form(message: Message):
    stored = canonical(message_to_json(message))

    assert History().append(message).digest == digest(EMPTY_DIGEST, stored)


@given(replies)
def test_a_reply_survives_its_stored_form(reply: Reply):
    assert reply_from_json(parse(canonical(reply_to_json(reply)))) == reply


@given(usages)
def test_a_usage_survives_its_stored_form_and_stores_no_zero(usage: Usage):
    stored = usage_to_json(usage)

    assert usage_from_json(parse(canonical(stored))) == usage
    assert not [name for name, value in stored.items() if value == 0 and name != "cost"]


@given(usages, usages, usages)
def test_usage_adds_up_in_any_order_and_zero_changes_nothing(a: Usage, b: Usage, c: Usage):
    assert a + b == b + a
    assert (a + b) + c == a + (b + c)
    assert a + Usage() == a
