from typing import Any

import pytest

from lib.llm.schema import resolve, violations

NODE = {
    "type": "object",
    "properties": {
        "value": {"type": "integer"},
        "next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]},
    },
    "required": ["value"],
}


CASES: list[tuple[Any, list[Any], list[Any], str]] = [
    (True, [None, 3], [], ""),
    (False, [], [3], "the value is not allowed"),
    ({"type": "integer"}, [3, 3.0, -1], [3.5, True, "3"], "the value must be of type integer"),
    ({"type": "number"}, [3, 0.5], [False, None], "the value must be of type number"),
    ({"type": ["string", "null"]}, ["", None], [0], "the value must be of type string or null"),
    ({"type": "boolean"}, [True], [1], "the value must be of type boolean"),
    ({"enum": [1, "a", None]}, [1, 1.0, "a", None], [True, "b"], 'must be one of [1,"a",null]'),
    ({"const": {"a": [1, 2]}}, [{"a": [1.0, 2]}], [{"a": [2, 1]}], 'must be {"a":[1,2]}'),
    ({"minimum": 2, "maximum": 3}, [2, 3, "x", True], [1], "the value must be at least 2"),
    ({"maximum": 3}, [3], [3.5], "the value must be at most 3"),
    ({"exclusiveMinimum": 2}, [2.5], [2], "the value must be above 2"),
    ({"exclusiveMaximum": 2}, [1], [2], "the value must be below 2"),
    ({"multipleOf": 3}, [9, 0, "x"], [10], "the value must be a multiple of 3"),
    ({"multipleOf": 0.1}, [0.2, 3], [0.25], "the value must be a multiple of 0.1"),
    ({"minLength": 2}, ["ab", 1], ["a"], "the value must have at least 2 characters"),
    ({"maxLength": 2}, ["ab"], ["abc"], "the value must have at most 2 characters"),
    ({"pattern": "^a"}, ["ab", 1], ["ba"], "the value must match the pattern '^a'"),
    ({"pattern": r"\p{L}"}, ["any"], [], ""),
    ({"items": {"type": "string"}}, [[], ["a"], "x"], [["a", 1]], "[1] must be of type string"),
    (
        {"prefixItems": [{"type": "string"}], "items": {"type": "integer"}},
        [[], ["a"], ["a", 1], 7],
        [["a", "b"]],
        "[1] must be of type integer",
    ),
    ({"prefixItems": [{"type": "null"}]}, [[None, 1]], [[0]], "[0] must be of type null"),
    (
        {"minItems": 1, "maxItems": 2},
        [[1], [1, 2]],
        [[]],
        "the value must have at least 1 items",
    ),
    ({"uniqueItems": True}, [[1, True], "aa"], [[1, 1.0]], "the value must not repeat an item"),
    ({"uniqueItems": False}, [[1, 1]], [], ""),
    ({"required": ["a"]}, [{"a": 1}, []], [{"b": 1}], "the value lacks the property 'a'"),
    (
        {"properties": {"a": {"properties": {"b": {"type": "null"}}}}},
        [{}, {"a": {"b": None}}, "x"],
        [{"a": {"b": 1}}],
        "a.b must be of type null",
    ),
    (
        {
            "properties": {"a": {}},
            "patternProperties": {"^x": {}},
            "additionalProperties": False,
        },
        [{"a": 1, "x1": 2}, []],
        [{"b": 1}],
        "the value has the unknown property 'b'",
    ),
    (
        {"additionalProperties": {"type": "integer"}},
        [{"a": 1}],
        [{"a": "x"}],
        "a must be of type integer",
    ),
    (
        {"patternProperties": {"^n_": {"type": "integer"}}},
        [{"n_a": 1, "s": "x"}, 1],
        [{"n_a": "x"}],
        "n_a must be of type integer",
    ),
    ({"minProperties": 1}, [{"a": 1}], [{}], "the value must have at least 1 properties"),
    ({"maxProperties": 1}, [{"a": 1}], [{"a": 1, "b": 2}], "must have at most 1 properties"),
    ({"allOf": [{"minimum": 1}, {"maximum": 2}]}, [1, 2], [3], "the value must be at most 2"),
    (
        {"anyOf": [{"type": "integer"}, {"type": "string"}]},
        [1, "x"],
        [None],
        "the value fits none of its 2 alternatives",
    ),
    (
        {"oneOf": [{"type": "integer"}, {"minimum": 3}]},
        [1, 3.5],
        [4, 0.5],
        "the value must fit one of its 2 alternatives, it fits 2",
    ),
    ({"not": {"type": "null"}}, [0], [None], "the value is of a refused form"),
    (
        NODE,
        [{"value": 1}, {"value": 1, "next": {"value": 2, "next": None}}],
        [{"value": 1, "next": {"value": "x"}}],
        "next.value must be of type integer",
    ),
    ({"if": {}, "format": "email", "type": "string"}, ["no mail"], [1], "of type string"),
    ({"type": "unheard-of"}, [], [1], "the value must be of type unheard-of"),
]


@pytest.mark.parametrize(("schema", "fitting", "unfitting", "problem"), CASES)
def test_a_value_fits_or_the_first_violation_says_why(
    schema: Any, fitting: list[Any], unfitting: list[Any], problem: str
):
    assert [[*violations(value, schema)] for value in fitting] == [[]] * len(fitting)
    for number, value in enumerate(unfitting):
        first = next(violations(value, schema))
        assert problem in first or number > 0


def test_every_violation_is_named():
    schema = {
        "type": "object",
        "properties": {"a": {"type": "string"}, "b": {"items": {"maximum": 1}}},
        "required": ["a", "c"],
    }

    assert [*violations({"a": 1, "b": [0, 2, 3]}, schema)] == [
        "a must be of type string",
        "b[1] must be at most 1",
        "b[2] must be at most 1",
        "the value lacks the property 'c'",
    ]


def test_a_schema_without_end_and_a_value_without_bottom_come_to_an_end():
    value: Any = {"value": "x"}
    for _ in range(80):
        value = {"value": 1, "next": value}

    assert [*violations(1, {"$ref": "#"})] == ["the value is nested deeper than 100"]
    assert "nested deeper than 100" in next(violations(value, NODE))


def test_a_failing_chain_of_alternatives_is_checked_in_linear_time():
    value: Any = {"value": "x"}
    for _ in range(24):  # each level twice would be 16 million checks
        value = {"value": 1, "next": value}

    assert [*violations(value, NODE)] == ["next." * 24 + "value must be of type integer"]


@pytest.mark.parametrize("pointer", ["#/$defs/a~1b/0", "#/$defs/a%2Fb/0", "#/$defs/a~1b/1/x"])
def test_references_are_found_inside_the_schema(pointer: str):
    root = {"$defs": {"a/b": ["here", {"x": "here"}]}}

    assert resolve(pointer, root) == "here"


@pytest.mark.parametrize(
    "pointer", ["https://x.test/s.json", "#/$defs/b", "#/$defs/a/7", "#/$defs/a/x", "#/$defs/a/0/y"]
)
def test_references_to_nothing_are_a_fault_of_the_schema(pointer: str):
    root = {"$defs": {"a": [1]}}

    with pytest.raises(ValueError, match="the JSON schema has no"):
        resolve(pointer, root)
