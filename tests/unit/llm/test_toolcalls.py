"""Tool calls from fragments: one test for each way in which servers write them."""

import itertools
from typing import Any

import pytest

from lib.errors import InvalidReply
from lib.llm import ToolCall, ToolCallDelta
from lib.llm.api.fields import read_arguments
from lib.llm.chat.reply import ToolCallAssembler

Fragment = dict[str, Any]


def piece(
    name: str | None = None,
    arguments: Any = None,
    *,
    index: Any = None,
    id: str | None = None,  # noqa: A002 - the wire's name
) -> Fragment:
    """Return an item of `tool_calls`."""
    function = {"name": name, "arguments": arguments}
    return {"index": index, "id": id, "type": "function", "function": function}


def assemble(fragments: list[Fragment], used: tuple[str, ...] = ()) -> list[ToolCall]:
    assembler = ToolCallAssembler()
    for fragment in fragments:
        assembler.add(fragment)
    return assembler.calls(used, map("new{}".format, itertools.count(1)).__next__)


A, B = ToolCall("a", "f", {"x": 1}), ToolCall("b", "f", {"x": 2})
DIALECTS: dict[str, list[Fragment]] = {
    "by the book": [
        piece("f", "", index=0, id="a"),
        piece(None, '{"x"', index=0),
        piece(None, ": 1}", index=0),
        piece("f", "", index=1, id="b"),
        piece(None, '{"x": 2}', index=1),
    ],
    "interleaved": [
        piece("f", "", index=0, id="a"),
        piece("f", "", index=1, id="b"),
        piece(None, '{"x":', index=0),
        piece(None, '{"x":', index=1),
        piece(None, "1}", index=0),
        piece(None, "2}", index=1),
    ],
    "whole, all of index 0": [
        piece("f", '{"x": 1}', index=0, id="a"),
        piece("f", '{"x": 2}', index=0, id="b"),
    ],
    "whole, no index": [piece("f", '{"x": 1}', id="a"), piece("f", '{"x": 2}', id="b")],
    "in pieces, all of index 0": [
        piece("f", "", index=0, id="a"),
        piece(None, '{"x": 1', index=0),
        piece(None, "}", index=0, id="a"),
        piece("f", "", index=0, id="b"),
        piece(None, '{"x": 2', index=0),
        piece(None, "}", index=0, id="b"),
    ],
    "all of index 0, late pieces by id": [
        piece("f", "", index=0, id="a"),
        piece("f", "", index=0, id="b"),
        piece(None, '{"x": 1}', index=0, id="a"),
        piece(None, '{"x": 2}', index=0, id="b"),
    ],
    "no index, pieces without anything": [
        piece("f", id="a"),
        piece(None, '{"x": 1}'),
        piece("f", id="b"),
        piece(None, '{"x": 2}'),
    ],
    "the index only at the head": [
        piece("f", "", index=0, id="a"),
        piece(None, '{"x": 1}'),
        piece("f", "", index=1, id="b"),
        piece(None, '{"x": 2}'),
    ],
    "the head on every piece": [
        piece("f", "", index=0, id="a"),
        piece("f", '{"x":', index=0, id="a"),
        piece("f", " 1}", index=0, id="a"),
        piece("f", '{"x": ', index=1, id="b"),
        piece("f", "2}", index=1, id="b"),
    ],
    "the head on every piece, no index": [
        piece("f", '{"x":', id="a"),
        piece("f", "1}", id="a"),
        piece("f", '{"x":', id="b"),
        piece("f", "2}", id="b"),
    ],
    "a new id on every piece": [
        piece("f", '{"x":', index=0, id="a"),
        piece(None, "1}", index=0, id="zz"),
        piece("f", '{"x":', index=1, id="b"),
        piece(None, "2}", index=1, id="yy"),
    ],
    "the id first": [
        piece(None, None, index=0, id="a"),
        piece("f", '{"x": 1}', index=0),
        piece(None, None, index=1, id="b"),
        piece("f", '{"x": 2}', index=1),
    ],
    "the id last": [
        piece("f", '{"x": 1', index=0),
        piece(None, "}", index=0, id="a"),
        piece("f", '{"x": 2', index=1),
        piece(None, "}", index=1, id="b"),
    ],
    "objects for arguments": [
        piece("f", {"x": 1}, index=0, id="a"),
        piece("f", {"x": 2}, index=1, id="b"),
    ],
    "an index that is none": [
        piece("f", '{"x": 1}', index=["0"], id="a"),
        piece("f", '{"x": 2}', index="1", id="b"),
    ],
}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_dialect_gives_the_same_calls(dialect: str):
    assert assemble(DIALECTS[dialect]) == [A, B]


def test_whole_calls_without_ids_or_with_one_id_for_all_get_ids_of_their_own():
    nameless = [piece("f", '{"x": 1}', index=0), piece("f", '{"x": 2}', index=0)]
    repeated = [piece("f", '{"x": 1}', id="a"), piece("f", '{"x": 2}', id="a")]

    assert [call.id for call in assemble(nameless)] == ["new1", "new2"]
    assert [call.id for call in assemble(repeated)] == ["a", "new1"]
    assert [call.arguments for call in assemble(repeated)] == [{"x": 1}, {"x": 2}]


def test_a_head_after_complete_arguments_begins_another_call():
    fragments = [
        piece("f", '{"x":', index=0),
        piece("f", " 1}", index=0),
        piece("f", '{"x": 2}', index=0),
    ]

    assert [call.arguments for call in assemble(fragments)] == [{"x": 1}, {"x": 2}]


def test_pieces_go_by_index_where_all_calls_have_one_id():
    fragments = [
        piece("f", "", index=0, id="a"),
        piece("f", "", index=1, id="a"),
        piece(None, '{"x": 1}', index=0, id="a"),
        piece(None, '{"x": 2}', index=1, id="a"),
    ]

    assert [call.arguments for call in assemble(fragments)] == [{"x": 1}, {"x": 2}]


def test_an_id_that_the_conversation_already_has_is_replaced():
    assert assemble([piece("f", "{}", id="a")], used=("a",)) == [ToolCall("new1", "f")]


def test_different_names_are_different_calls():
    fragments = [piece("f", "", index=0), piece("g", "", index=0)]

    assert [call.name for call in assemble(fragments)] == ["f", "g"]


def test_what_a_fragment_adds_comes_with_the_index_of_its_call():
    assembler = ToolCallAssembler()

    assert assembler.add(piece("f", "", index=7, id="a")) == ToolCallDelta(0, "a", "f")
    assert assembler.add(piece(None, "{}", index=7)) == ToolCallDelta(0, arguments="{}")
    assert assembler.add(piece("f", "{}", index=7, id="b")) == ToolCallDelta(1, "b", "f", "{}")


def test_the_items_of_a_whole_answer_are_calls_of_their_own():
    assembler = ToolCallAssembler()
    for _ in range(2):
        assembler.add(piece("f", "", id="a"), whole=True)

    assert assembler.calls((), lambda: "new") == [ToolCall("a", "f"), ToolCall("new", "f")]


def test_a_providers_own_field_is_kept():
    signed = {**piece("f", "{}", id="a"), "extra_content": {"google": {"thought_signature": "s"}}}

    assert assemble([signed, {**piece(None, ""), "extra_content": None}]) == [
        ToolCall("a", "f", extra={"extra_content": {"google": {"thought_signature": "s"}}})
    ]


@pytest.mark.parametrize("fragment", [{}, {"index": 0, "function": "f"}, piece(None, "{}")])
def test_a_call_that_never_gets_a_name_is_an_invalid_reply(fragment: Fragment):
    with pytest.raises(InvalidReply) as caught:
        assemble([fragment])

    assert caught.value.retryable


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = {"a": value}
    return value


def test_objects_nested_too_deeply_to_be_stored_are_invalid_arguments():
    (call,) = assemble([piece("f", nested(200), id="a")])

    assert (call.arguments, call.invalid) == ({}, "(nested too deeply)")


@pytest.mark.parametrize(
    ("text", "arguments", "invalid"),
    [
        ("", {}, None),
        ("  \n", {}, None),
        ("{}", {}, None),
        ('{"a": [1, {"b": "\\ud800"}]}', {"a": [1, {"b": "\ud800"}]}, None),
        ('{"a": 1', {}, '{"a": 1'),
        ("[1]", {}, "[1]"),
        ("null", {}, "null"),
        ('{"a": NaN}', {}, '{"a": NaN}'),
        ('{"a":' * 300 + "1" + "}" * 300, {}, '{"a":' * 300 + "1" + "}" * 300),
        ("[" * 100_000, {}, "[" * 100_000),
    ],
)
def test_arguments_are_an_object_or_the_text_is_kept(
    text: str, arguments: dict[str, Any], invalid: str | None
):
    assert read_arguments(text) == (arguments, invalid)
