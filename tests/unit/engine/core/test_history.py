from hypothesis import given
from hypothesis import strategies as st

from lib.engine.core.history import History
from lib.llm import Message

texts = st.lists(st.text(max_size=5), max_size=8)


@given(texts, texts, texts)
def test_histories_that_share_a_beginning_do_not_disturb_each_other(
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


def test_a_digest_is_reckoned_bit_by_bit_and_is_the_same() -> None:
    messages = [Message.user(str(number)) for number in range(7)]
    whole, history = History().extend(messages), History().extend(messages)
    shorter, longer = history, history.extend([Message.user("7"), Message.user("8")])

    assert [shorter.reckon(1_200) for _ in range(4)] == [True, True, False, False]
    assert [longer.reckon(1) for _ in range(3)] == [True, False, False]
    assert shorter.digest == whole.digest
    assert longer.digest == whole.extend(list(longer[7:])).digest
    assert not History().reckon(1)


def test_a_long_message_counts_as_what_it_is() -> None:
    history = History().extend([Message.user("x" * 9_000), *map(Message.user, "abc")])

    assert [history.reckon(9_000) for _ in range(2)] == [True, False]
