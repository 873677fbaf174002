import math
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.observe import GENAI, LANGFUSE, LANGSMITH, OPENINFERENCE
from lib.observe import attributes as a
from lib.observe.dialects.values import attribute, clean, json_text, text
from lib.observe.span import SPAN_KINDS, SpanKind
from lib.testing.dialect import check_attributes, make_span

DIALECTS = [GENAI, LANGFUSE, LANGSMITH, OPENINFERENCE]


@given(st.lists(st.text() | st.floats() | st.lists(st.integers()), max_size=20))
def test_a_long_list_is_written_as_a_short_one_is(items: list[Any]):
    whole = json_text(items * 4)

    assert json_text([items * 4]) == f"[{whole}]"
    assert whole == "[" + ",".join([json_text(items)[1:-1]] * 4 if items else []) + "]"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("plain", "plain"),
        ("ümlaut \ud800", "ümlaut \ufffd"),
        ("a\x00b", "a\ufffdb"),
        (True, True),
        (2**63 - 1, 2**63 - 1),
        (2**63, "9223372036854775808"),
        (-(2**63), -(2**63)),
        (1.5, 1.5),
        (math.nan, None),
        (-math.inf, None),
        (None, None),
        ([], []),
        (["a", "\udfff"], ["a", "\ufffd"]),
        ([1, 2], [1, 2]),
        ((True, False), [True, False]),
        ([1, True], "[1,true]"),
        ([1, 2.5], "[1,2.5]"),
        ([1, None], "[1,null]"),
        ([1.5, math.nan], "[1.5,null]"),
        ([[1]], "[[1]]"),
        ({"b": 1, "a": {"\ud800": 2**70}}, '{"a":{"\ufffd":"1180591620717411303424"},"b":1}'),
        (datetime(2026, 1, 2, tzinfo=UTC), "2026-01-02T00:00:00+00:00"),
        (b"secret", "<bytes>"),
    ],
)
def test_a_value_is_converted_for_backends(value: Any, expected: Any):
    assert attribute(value) == expected
    assert type(attribute(value)) is type(expected)


def test_subclasses_of_plain_types_become_plain_types():
    class Text(str):
        __slots__ = ()

    class Number(int):
        pass

    expected = clean({"number": Number(7), "text": Text("a\x00")})

    assert expected == {"number": 7, "text": "a\ufffd"}
    assert [type(value) for value in expected.values()] == [int, str]


def test_names_are_cleaned_and_sorted_and_what_has_no_name_is_left_out():
    assert list(clean({"b": 1, "a\ud800": 2, "": 3, "a": 4})) == ["a", "a\ufffd", "b"]


def test_what_is_nested_too_deep_leaves_its_type():
    deep: Any = "x"
    for _ in range(100_000):
        deep = [deep]

    assert json_text(deep) == "[" * 64 + '"<list>"' + "]" * 64


def test_a_text_stays_itself_and_all_else_is_json():
    assert [text("a"), text(1), text(None), text({"a": "b"})] == ["a", "1", "null", '{"a":"b"}']


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ({"b": "ü", "a": [1, 2.5, None]}, '{"a":[1,2.5,null],"b":"ü"}'),
        (["\ud800"], '["\ufffd"]'),
        ({"\udfff": 1}, '{"\ufffd":1}'),
        (["\x00"], '["\ufffd"]'),
        (["\\u0000 \x01"], '["\\\\u0000 \\u0001"]'),
        ([2**63, 2**63 - 1, "9223372036854775808"], None),
        ([math.nan, -math.inf], "[null,null]"),
        ({1: b""}, '{"1":"<bytes>"}'),
    ],
)
def test_json_has_only_what_every_reader_takes(value: Any, written: str | None):
    numbers = '["9223372036854775808",9223372036854775807,"9223372036854775808"]'

    assert json_text(value) == (written or numbers)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**80), 2**80)
    | st.floats()
    | st.text(st.characters(exclude_categories=()), max_size=8)
    | st.sampled_from(["text", "tool_call", "tool_result", "image", "user", "assistant", "…"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["role", "content", "parts", "type", "text", "data", "blob", "call_id"])
            | st.text(max_size=4),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@pytest.mark.parametrize("odd", [7, "eu", None, {}, 10**400, 1.5, [10**400, 1.5], True])
@pytest.mark.parametrize(
    "names",
    [[a.TAGS], [a.INPUT_TOKENS, a.OUTPUT_TOKENS], [a.OMITTED], [a.FINISH_REASONS], [a.COST]],
)
def test_any_value_of_a_known_attribute_can_be_sent(names: list[str], odd: Any):
    values = dict(zip(names, [odd, 1.5], strict=False))
    messages = [{"role": "user", "content": "x"}] * 130
    for dialect in DIALECTS:
        check_attributes(dialect.attributes(make_span("llm", attributes=values, input=messages)))


@given(
    kind=st.sampled_from(SPAN_KINDS),
    content=JSON,
    attributes=st.dictionaries(
        st.sampled_from(
            [
                "session.id",
                "lib.trace.tags",
                "gen_ai.usage.input_tokens",
                "gen_ai.response.finish_reasons",
                "gen_ai.tool.definitions",
                "gen_ai.response.time_to_first_chunk",
                "lib.input.omitted",
            ]
        )
        | st.text(max_size=4),
        JSON,
        max_size=6,
    ),
)
def test_each_dialect_sends_any_log_validly(
    kind: SpanKind, content: Any, attributes: dict[str, Any]
):
    for dialect in DIALECTS:
        for shown in (content, [content], {"role": "user", "parts": [content]}):
            span = make_span(kind, input=shown, output=shown, attributes=attributes)
            check_attributes(dialect.attributes(span))
