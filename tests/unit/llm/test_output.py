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
    ("text", "message"),
    [
        ("Ada", "the reply is not JSON"),
        ("", "the reply is not JSON"),
        ("[" * 100_000, "the reply is not JSON"),
        ("[" * 150 + "]" * 150, "the reply is nested too deeply"),
        ("null", "the reply does not fit the output schema: the value must be of type object"),
        ('{"name": 7.5}', "the reply does not fit the output schema: name must be of type string"),
        ("{}", "the reply does not fit the output schema: the value lacks the property 'name'"),
    ],
)
def test_an_error_of_the_schema_does_not_quote_the_reply(text: str, message: str):
    with pytest.raises(InvalidReply) as caught:
        parse_output(reply(text), SCHEMA)

    assert str(caught.value) == message
    assert not caught.value.retryable


def test_an_error_of_a_pydantic_model_does_not_quote_the_reply():
    bad = '{"addresses": [{"street": "Secret Street", "number": 0}, "Secret"]}'

    with pytest.raises(InvalidReply) as caught:
        parse_output(reply(bad), Person)

    message = str(caught.value)
    assert message.startswith("the reply does not fit the output schema: name: Field required; ")
    assert "addresses[0].number: Input should be greater than or equal to 1" in message
    assert "addresses[1]: Input should be an object" in message
    assert "Secret" not in "".join(format_exception(caught.value))


def test_a_problem_of_the_whole_reply_is_one_of_the_value():
    with pytest.raises(InvalidReply, match=r"schema: the value: Input should be an object$"):
        parse_output(reply("[]"), Person)


def test_at_most_five_problems_are_named():
    schema = {"items": {"type": "integer"}}

    with pytest.raises(InvalidReply) as caught:
        parse_output(reply('["a", "b", "c", "d", "e", "f"]'), schema)

    assert str(caught.value).count("must be of type integer") == 5


@pytest.mark.parametrize(
    ("stop", "message"),
    [("length", "the reply was cut off"), ("content_filter", "the model declined")],
)
def test_an_unfinished_or_declined_reply_is_not_even_read(stop: Any, message: str):
    with pytest.raises(InvalidReply, match=message):
        parse_output(Reply((Text('{"name": "Ada"}'),), stop=stop), SCHEMA)


def test_a_schema_with_a_broken_reference_is_refused():
    with pytest.raises(InvalidReply, match=r"cannot be checked: the JSON schema has no '#/x'"):
        parse_output(reply("{}"), {"$ref": "#/x"})
