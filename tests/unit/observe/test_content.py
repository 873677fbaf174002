import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib._util.json import canonical
from lib.observe.spans.content import Content, Conversation

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


def show(value: Any, limit: int) -> Any:
    return Content(capture=True, limit=limit).show(value)


@given(values, st.integers(0, 200))
def test_what_fits_is_shown_whole_and_nothing_else_exceeds_the_limit(value: Any, limit: int):
    size = len(value) if isinstance(value, str) else len(canonical(value))

    shown = show(value, limit)

    if size <= limit:
        assert shown == value
    elif shown is not None:
        assert (len(shown) if isinstance(shown, str) else len(canonical(shown))) <= limit


@given(values)
def test_nothing_is_shown_unless_content_is_captured(value: Any):
    assert Content(capture=False, limit=4000).show(value) is None


CASES: list[tuple[Any, int, Any]] = [
    ("hello world", 5, "hell…"),
    ("hello", 0, ""),
    ("hello", 5, "hello"),
    ([123456], 8, [123456]),
    ({"a": "b"}, 9, {"a": "b"}),
    ({"a": "b"}, 8, {}),
    # The shape stays: the longest text is cut, the short fields beside it are all there.
    ({"content": "hello world", "role": "user"}, 34, {"content": "hello…", "role": "user"}),
    ([1, "two", "hello world", 4], 15, [1, "two", "he…"]),
    ({"text": '"' * 20}, 19, {"text": '"""…'}),
    ({"text": "hello"}, 14, {"text": "he…"}),
    ({"text": "hello"}, 12, {"text": "…"}),
    ({"text": "hello"}, 11, {}),
    ({"number": 123456}, 10, {}),
    ([[]], 2, []),
    (123456, 3, None),
    ({}, 1, None),
]


@pytest.mark.parametrize(("value", "limit", "shown"), CASES)
def test_what_is_too_long_keeps_its_shape(value: Any, limit: int, shown: Any):
    assert show(value, limit) == shown


def test_what_is_nested_too_deeply_is_left_out_where_it_is_too_long():
    deep: Any = "x"
    for _ in range(900):
        deep = [deep]

    assert show({"deep": deep}, 500) == {"deep": json.loads("[" * 32 + "]" * 32)}


def messages(*texts: str) -> Conversation:
    conversation = Conversation(kept=True)
    for text in texts:
        conversation.add({"content": text})
    return conversation


@pytest.mark.parametrize(
    ("limit", "shown", "omitted"),
    [
        (100, ["one", "two", "three"], 0),
        (57, ["one", "two", "three"], 0),
        (56, ["two", "three"], 1),
        (21, ["three"], 2),
        (20, ["thr…"], 2),
        (18, ["t…"], 2),
        (3, [], 2),
    ],
)
def test_the_newest_messages_that_fit_together_are_shown(
    limit: int, shown: list[str], omitted: int
):
    newest = Content(capture=True, limit=limit).newest(messages("one", "two", "three"))

    assert newest == ([{"content": text} for text in shown], omitted)


def test_of_no_conversation_nothing_is_shown():
    assert Content(capture=True, limit=100).newest(Conversation(kept=True)) == (None, 0)


def test_a_conversation_that_is_not_kept_hears_nothing():
    conversation = Conversation(kept=False)
    conversation.add({"content": "one"})
    conversation.call("key")
    conversation.answer("key", {"content": "two"})
    conversation.add_answers()

    assert conversation.messages == []


def test_answers_enter_the_conversation_in_the_order_of_their_calls_once_they_are_there():
    conversation = Conversation(kept=True)
    for key in ("a", "b", "c"):
        conversation.call(key)
    conversation.answer("c", "of c")
    conversation.answer("b", "of b")
    conversation.add_answers()
    conversation.answer("a", "of a")
    conversation.add_answers()

    assert conversation.messages == ["of b", "of c", "of a"]
