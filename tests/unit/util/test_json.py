import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib._util.json import canonical, compact, copied, digest, parse, quoted

plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters()),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters()), inner),
)


@given(plain | st.tuples(plain, plain) | st.dictionaries(st.integers() | st.booleans(), plain))
def test_what_is_written_is_what_the_standard_library_writes(value: object) -> None:
    text = json.dumps(
        value, ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":")
    )

    assert canonical(value).encode() == text.encode("utf-8", "backslashreplace")


@given(st.text(st.characters(codec=None)))
def test_a_quoted_text_is_its_canonical_form(text: str) -> None:
    assert quoted(text) == canonical(text)


def test_every_character_is_quoted_as_the_standard_library_does() -> None:
    every = "".join(map(chr, (*range(0xD800), *range(0xE000, 0x110000))))

    assert quoted(every) == json.dumps(every, ensure_ascii=False)
    assert quoted("\ud800") == '"\\ud800"'


@pytest.mark.parametrize("value", [object(), [{1, 2}], {"a": b"bytes"}, {(1, 2): 3}])
def test_what_is_not_plain_is_refused(value: object) -> None:
    with pytest.raises(TypeError):
        canonical(value)


def test_a_circle_is_refused_and_leaves_the_encoder_usable() -> None:
    circle: list[Any] = []
    circle.append(circle)

    with pytest.raises(ValueError, match="Circular"):
        canonical(circle)

    assert canonical([[], []]) == "[[],[]]"


@given(plain | st.tuples(plain, plain))
def test_a_copy_is_equal_and_shares_nothing_that_can_be_changed(value: object) -> None:
    copy = copied(value)

    assert copy == value
    assert type(copy) is type(value)
    assert not _changeable(copy) & _changeable(value)


def _changeable(value: Any) -> set[int]:
    """Return the identities of all lists and dictionaries in a value."""
    if not isinstance(value, list | tuple | dict):
        return set()
    items: list[Any] = [*value.values()] if isinstance(value, dict) else [*value]
    inner = set[int]().union(*map(_changeable, items))
    return inner if isinstance(value, tuple) else {id(value), *inner}  # pyright: ignore[reportUnknownArgumentType] - any JSON


@given(plain)
def test_what_is_written_is_read_back_and_written_the_same(value: object) -> None:
    text = canonical(value)

    assert parse(text.encode()) == value
    assert canonical(parse(text)) == text


def test_key_order_and_lone_surrogates_do_not_change_the_bytes() -> None:
    assert canonical({"b": "\ud800é", "a": 1}) == canonical({"a": 1, "b": "\ud800é"})
    assert canonical({"b": "\ud800é"}).encode() == b'{"b":"\\ud800\xc3\xa9"}'


@given(plain)
def test_compact_text_keeps_the_order_of_keys(value: object) -> None:
    text = compact([value, {"b": 1, "a": 2}])

    assert text.endswith(',{"b":1,"a":2}]')
    assert json.dumps(parse(text)) == json.dumps(json.loads(text))


@pytest.mark.parametrize("text", ["NaN", '{"a":Infinity}', "[", ""])
def test_what_is_not_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the message is the parser's
        parse(text)


@pytest.mark.parametrize("value", [float("nan"), [float("inf")]])
def test_numbers_that_are_not_finite_are_refused(value: object) -> None:
    for write in (canonical, compact):
        with pytest.raises(ValueError, match="Out of range"):
            write(value)


def test_a_digest_knows_where_a_part_ends() -> None:
    assert digest("ab", "c") != digest("a", "bc")
    assert len(digest()) == 64
