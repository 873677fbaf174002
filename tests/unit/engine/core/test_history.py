from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.engine.core.conversation import History, Tail
from lib.llm import BlobRef, Image, Message, ToolCall

texts = st.lists(st.text(max_size=5), max_size=8)


@given(texts, texts, texts)
def test_histories_that_share_a_beginning_are_independent(
    start: list[str], left: list[str], right: list[str]
) -> None:
    begun = History().extend([Message.user(text) for text in start])

    one = begun.extend([Message.user(text) for text in left])
    other = begun.extend([Message.user(text) for text in right])

    assert [message.text for message in begun] == start
    assert [message.text for message in one] == start + left
    assert [message.text for message in other] == start + right
    assert (one == other) == (left == right) == (one.digest == other.digest)
    assert len({one, other}) == (1 if left == right else 2)


def test_a_history_is_a_sequence() -> None:
    history = History().extend([Message.user("a"), Message.user("b"), Message.user("c")])
    shorter = History().append(Message.user("a"))

    assert (len(history), history[-1].text) == (3, "c")
    assert [message.text for message in history[1:]] == ["b", "c"]
    assert history != "abc"
    assert shorter != history


def test_an_incremental_digest_equals_that_of_the_whole() -> None:
    messages = [Message.user(str(number)) for number in range(7)]
    whole, history = History().extend(messages), History().extend(messages)
    shorter, longer = history, history.extend([Message.user("7"), Message.user("8")])

    assert [shorter.hash_incrementally(1_200) for _ in range(4)] == [True, True, False, False]
    assert [longer.hash_incrementally(1) for _ in range(3)] == [True, False, False]
    assert shorter.digest == whole.digest
    assert longer.digest == whole.extend(list(longer[7:])).digest
    assert not History().hash_incrementally(1)


def test_a_long_message_counts_by_its_size() -> None:
    history = History().extend([Message.user("x" * 9_000), *map(Message.user, "abc")])

    assert [history.hash_incrementally(9_000) for _ in range(2)] == [True, False]


def test_messages_that_are_folded_again_are_neither_stored_nor_hashed_twice() -> None:
    def word(number: int) -> Message:
        return Message.user(str(number))

    begun = History().extend([word(0), word(1)])
    driven = begun.append(word(2)).append(word(3))
    hashed = driven.digest

    again = begun.append(word(2)).append(word(3))
    other = begun.append(Message.user("2", "")).append(word(3))

    assert not again.hash_incrementally(0)
    assert again.digest == hashed
    assert all(one is same for one, same in zip(again, driven, strict=True))
    assert other.hash_incrementally(0)
    assert other.digest != hashed
    assert [message.text for message in driven.append(word(4))] == list("01234")


def test_messages_that_cannot_be_hashed_can_be_folded_again() -> None:
    endless = Message.assistant(ToolCall("c", "look", {"n": 10**5000}))
    begun = History().append(Message.user("a"))

    folded = [begun.append(message) for message in (endless, replace(endless), Message.user("b"))]

    assert [len(history) for history in folded] == [2, 2, 2]
    with pytest.raises(ValueError, match="digits"):
        folded[0].hash_incrementally(1e9)


def test_a_history_records_which_messages_a_blob_store_has() -> None:
    blob = Image(blob=BlobRef("a" * 64, 3, "image/png"))
    begun = History().extend([Message.user("a"), Message.user("b", blob)])
    longer = begun.append(Message.user(blob))

    assert list(begun.stored) == [1]
    assert list(longer.stored) == [1, 2]
    assert list(begun.append(Message.user("c")).append(Message.user(blob)).stored) == [1, 3]
    assert list(longer.first(1).stored) == []


def test_slices_and_tails_are_those_of_a_list() -> None:
    messages = [Message.user(str(number)) for number in range(5)]
    history = History().extend(messages).append(Message.user("5")).first(5)
    tail = Tail(history, 2)

    for start, stop, step in product((None, -7, -2, 0, 3, 9), repeat=3):
        if step != 0:
            cut = slice(start, stop, step)
            assert history[cut] == messages[cut], cut
            assert tail[cut] == tuple(messages[2:][cut]), cut
    assert [tail[0], tail[-1], history[-5]] == [messages[2], messages[4], messages[0]]
    assert (list(tail), len(tail), len(history.first(9))) == (messages[2:], 3, 5)
    for beyond in (3, -4):
        with pytest.raises(IndexError):
            tail[beyond]
    with pytest.raises(IndexError):
        history[5]
