import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib._util.json import canonical, digest, parse

plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters()),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters()), inner),
)


@given(plain)
def test_what_is_written_is_read_back_and_written_the_same(value: object) -> None:
    text = canonical(value)

    assert parse(text.encode()) == value
    assert canonical(parse(text)) == text


def test_key_order_and_lone_surrogates_do_not_change_the_bytes() -> None:
    assert canonical({"b": "\ud800é", "a": 1}) == canonical({"a": 1, "b": "\ud800é"})
    assert canonical({"b": "\ud800é"}).encode() == b'{"b":"\\ud800\xc3\xa9"}'


@pytest.mark.parametrize("text", ["NaN", '{"a":Infinity}', "[", ""])
def test_what_is_not_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the message is the parser's
        parse(text)


@pytest.mark.parametrize("value", [float("nan"), [float("inf")]])
def test_numbers_that_are_not_finite_are_refused(value: object) -> None:
    with pytest.raises(ValueError, match="Out of range"):
        canonical(value)


def test_a_digest_knows_where_a_part_ends() -> None:
    assert digest("ab", "c") != digest("a", "bc")
    assert len(digest()) == 64
