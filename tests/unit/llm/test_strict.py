"""Strict schemas, with the official SDK's conversion and pydantic as oracles."""

from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from openai.lib._pydantic import to_strict_json_schema
from pydantic import BaseModel, Field

from lib.llm.schema import strict_schema, violations


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Point(BaseModel):
    x: float
    y: float


class Tree(BaseModel):
    label: str
    children: list["Tree"]


class Shape(BaseModel):
    """A shape."""

    name: str = Field(description="what it is called")
    colour: Colour
    corners: list[Point] = Field(min_length=3)
    centre: Point | None = None
    kind: Literal["open", "closed"]


class Described(BaseModel):
    start: Point = Field(description="where it starts")
    end: Point


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int = 9


class Dog(BaseModel):
    kind: Literal["dog"]
    name: Annotated[str, Field(min_length=1, max_length=9)] = "Rex"


class Owner(BaseModel):
    pet: Cat | Dog = Field(discriminator="kind")


class Linked(BaseModel):
    value: int
    rest: "Linked | None" = Field(default=None, description="what follows")


@pytest.mark.parametrize("model", [Point, Shape, Described, Tree])
def test_models_of_the_common_kinds_convert_as_the_official_sdk_does(model: type[BaseModel]):
    assert strict_schema(model.model_json_schema()) == to_strict_json_schema(model)


@pytest.mark.parametrize(
    ("model", "value"),
    [
        (Owner, {"pet": {"kind": "cat", "lives": 3}}),
        (Owner, {"pet": {"kind": "dog", "name": "Bo"}}),
        (Linked, {"value": 1, "rest": {"value": 2, "rest": None}}),
        (Shape, {"name": "", "colour": "red", "corners": [], "centre": None, "kind": "open"}),
    ],
)
def test_a_value_of_the_strict_form_is_one_of_the_model(
    model: type[BaseModel], value: dict[str, Any]
):
    strict = strict_schema(model.model_json_schema())

    assert strict is not None
    too_few_corners = model is Shape
    assert [*violations(value, strict)] == (
        ["corners must have at least 3 items"] if too_few_corners else []
    )
    if not too_few_corners:
        assert model.model_validate(value).model_dump() == value


def test_every_object_is_closed_and_asks_for_every_property():
    schema = {
        "type": "object",
        "$schema": "x",
        "properties": {
            "mail": {"type": "string", "format": "email", "default": "a@b.test"},
            "site": {"type": "string", "format": "uri", "minLength": 1},
            "inner": {"type": ["object", "null"], "properties": {"a": {"type": "integer"}}},
            "one": {"allOf": [{"type": "string"}], "description": "one"},
            "any": {"oneOf": [{"type": "integer"}, {"type": "null"}]},
        },
        "required": ["mail"],
    }

    assert strict_schema(schema) == {
        "type": "object",
        "properties": {
            "mail": {"type": "string", "format": "email"},
            "site": {"type": "string"},
            "inner": {
                "type": ["object", "null"],
                "properties": {"a": {"type": "integer"}},
                "additionalProperties": False,
                "required": ["a"],
            },
            "one": {"type": "string", "description": "one"},
            "any": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        },
        "required": ["mail", "site", "inner", "one", "any"],
        "additionalProperties": False,
    }


FORMATS = ["date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uuid"]


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "number", "minimum": 1, "exclusiveMaximum": 9, "multipleOf": 2},
        {"type": "integer", "maximum": 1, "exclusiveMinimum": 0},
        {"type": "array", "items": {"type": "null"}, "minItems": 1, "maxItems": 2},
        {"type": "string", "pattern": "^a", "title": "A", "description": "an a"},
        {"enum": ["a", 1]},
        {"const": "a"},
        *({"type": "string", "format": name} for name in FORMATS),
    ],
)
def test_what_strict_mode_knows_is_kept(schema: dict[str, Any]):
    annotations: dict[str, Any] = {
        "deprecated": True,
        "examples": [],
        "readOnly": True,
        "writeOnly": True,
    }
    unknown = {**annotations, "default": 1, "minLength": 1, "maxLength": 2, "uniqueItems": True}

    strict = strict_schema({"type": "object", "properties": {"a": {**schema, **unknown}}})

    assert strict is not None
    assert strict["properties"]["a"] == schema


def test_a_reference_stands_alone_even_where_it_refers_to_itself():
    node = {"$ref": "#/$defs/Node", "description": "what follows"}
    schema = {
        "type": "object",
        "properties": {"first": node},
        "$defs": {"Node": {"type": "object", "properties": {"next": node}}},
    }
    closed = {"additionalProperties": False}
    alone = {"next": {"$ref": "#/$defs/Node"}}
    inlined = {"type": "object", "description": "what follows", "required": ["next"], **closed}

    assert strict_schema(schema) == {
        "type": "object",
        "properties": {"first": {**inlined, "properties": alone}},
        "required": ["first"],
        "$defs": {
            "Node": {
                "type": "object",
                "properties": {"next": {**inlined, "properties": alone}},
                "required": ["next"],
                **closed,
            }
        },
        **closed,
    }


def test_the_given_schema_is_left_as_it_is():
    schema = Linked.model_json_schema()

    strict_schema(schema)

    assert schema == Linked.model_json_schema()


@pytest.mark.parametrize(
    "property_schema",
    [
        True,
        {},
        {"type": "object"},
        {"type": "object", "additionalProperties": {"type": "string"}},
        {"type": "object", "properties": {}, "additionalProperties": True},
        {"not": {"type": "string"}},
        {"allOf": [{"minimum": 1}, {"maximum": 2}]},
        {"type": "array", "items": {}},
        {"$ref": "#/$defs/Missing", "description": "x"},
    ],
)
def test_what_strict_mode_cannot_say_has_no_strict_form(property_schema: Any):
    assert strict_schema({"type": "object", "properties": {"a": property_schema}}) is None


def test_a_root_that_is_no_object_has_no_strict_form():
    assert strict_schema({"type": "array", "items": {"type": "string"}}) is None
    assert strict_schema({"anyOf": [{"type": "string"}]}) is None
