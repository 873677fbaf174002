"""Values as backends take them."""

from typing import Any, cast

from hypothesis import given, settings
from hypothesis import strategies as st

from lib._util.json import canonical
from lib.observe.dialects.values import clean, clean_text, plain_json

texts = st.text(st.sampled_from("aé\x00\ud800\udfff\U0001f600"), max_size=4)
scalars = st.none() | st.booleans() | st.integers(-(2**64), 2**64) | st.floats() | texts
values = scalars | st.lists(scalars, max_size=3) | st.dictionaries(texts, scalars, max_size=2)


@settings(max_examples=200)
@given(st.dictionaries(texts, values, max_size=5))
def test_attributes_are_clean_sorted_and_nothing_else_is_lost(attributes: dict[str, Any]) -> None:
    found = clean(attributes)

    assert list(found) == sorted(found)
    assert found == {
        clean_text(name): _plainly(attributes[name])
        for name in sorted(attributes)
        if name and _plainly(attributes[name]) is not None
    }
    for text in [*found, *(value for value in found.values() if isinstance(value, str))]:
        assert text.encode() is not None  # which a lone surrogate would not let it
        assert "\x00" not in text


def _plainly(value: Any) -> Any:
    """Return one value by the rule, without a short cut."""
    plain = plain_json(value)
    if not isinstance(plain, list | dict):
        return plain
    kinds = {item.__class__ for item in cast(list[Any], plain)}
    alike = isinstance(plain, list) and len(kinds) <= 1 and type(None) not in kinds
    return cast(Any, plain) if alike else canonical(plain)
