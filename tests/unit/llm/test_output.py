from traceback import format_exception
from typing import Any

import pytest
from pydantic import BaseModel, Field

from lib.errors import InvalidReply
from lib.llm import Reply, Text, Thinking, output_schema, parse_output


class Address(BaseModel):
    street: str
    number: int = Field(ge=1)


class Person(BaseModel):
    name: str
    addresses: list[Address] = []


SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


def reply(text: str) -> Reply:
    return Reply((Thinking("the name is secret"), Text(text)))


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "Ada"}',
        '  {"name": "Ada"}\n',
        '```json\n{"name": "Ada"}\n```',
        '```\n{"name": "Ada"}\n```\n',
    ],
)
def test_a_fitting_reply_becomes_the_value(text: str):
    assert parse_output(reply(text), SCHEMA) == {"name": "Ada"}
    assert parse_output(reply(text), Person) == Person(name="Ada")


def test_the_schema_of_a_model_is_what_pydantic_says():
    assert output_schema(Person) == Person.model_json_schema()
    assert output_schema(SCHEMA) == SCHEMA
    with pytest.raises(TypeError, match="got int"):
        output_schema(3)  # pyright: ignore[reportArgumentType] - the mistake is the test


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("Ada", "the reply is not JSON"),
        ("", "the reply is not JSON"),
        ("[" * 100_000, "the reply is not JSON"),
        ("[" * 150 + "]" * 150, "the reply is nested too deeply"),
        ("null", "the reply does not fit the asked output: the value must be of type object"),
        ('{"name": 7.5}', "the reply does not fit the asked output: name must be of type string"),
        ("{}", "the reply does not fit the asked output: the value lacks the property 'name'"),
    ],
)
def test_what_does_not_fit_a_schema_is_told_without_quoting_it(text: str, told: str):
    with pytest.raises(InvalidReply) as caught:
        parse_output(reply(text), SCHEMA)

    assert str(caught.value) == told
    assert not caught.value.retryable


def test_what_does_not_fit_a_model_is_told_without_quoting_it():
    bad = '{"addresses": [{"street": "Secret Street", "number": 0}, "Secret"]}'

    with pytest.raises(InvalidReply) as caught:
        parse_output(reply(bad), Person)

    told = str(caught.value)
    assert told.startswith("the reply does not fit the asked output: name: Field required; ")
    assert "addresses[0].number: Input should be greater than or equal to 1" in told
    assert "addresses[1]: Input should be an object" in told
    assert "Secret" not in "".join(format_exception(caught.value))


def test_a_problem_of_the_whole_reply_is_one_of_the_value():
    with pytest.raises(InvalidReply, match=r"output: the value: Input should be an object$"):
        parse_output(reply("[]"), Person)


def test_no_more_than_five_problems_are_told():
    schema = {"items": {"type": "integer"}}

    with pytest.raises(InvalidReply) as caught:
        parse_output(reply('["a", "b", "c", "d", "e", "f"]'), schema)

    assert str(caught.value).count("must be of type integer") == 5


@pytest.mark.parametrize(
    ("stop", "told"),
    [("length", "the reply was cut off"), ("content_filter", "the model declined")],
)
def test_an_unfinished_or_declined_reply_is_not_even_read(stop: Any, told: str):
    with pytest.raises(InvalidReply, match=told):
        parse_output(Reply((Text('{"name": "Ada"}'),), stop=stop), SCHEMA)


def test_a_schema_that_refers_to_nothing_is_told_of():
    with pytest.raises(InvalidReply, match=r"cannot be checked: the JSON schema has no '#/x'"):
        parse_output(reply("{}"), {"$ref": "#/x"})
