"""Tags, texts and attributes, in linear time whatever stands there."""

import pytest

from effort import effort_below
from lib.content.markup import attributes, tokens


def read(text: str) -> list[tuple[str, str]]:
    return [
        (kind, value)
        for kind, value, start, end in tokens(text, skipped=("script",), raw=("title",))
        if start < end
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a<b c='>'>d</B >", [("text", "a"), ("open", "b"), ("text", "d"), ("close", "b")]),
        ("<!-->a<!--->b<!-- c --!>d", [("text", "a"), ("text", "b"), ("text", "d")]),
        (
            "<script>if (a<b) x</script>y",
            [("open", "script"), ("close", "script"), ("text", "y")],
        ),
        ("<script>never <b>closed", [("open", "script")]),
        ("<title>a<b></title>", [("open", "title"), ("text", "a<b>"), ("close", "title")]),
        ("<title></title>", [("open", "title"), ("close", "title")]),
        ("<title>a<b>", [("open", "title"), ("text", "a"), ("open", "b")]),
        ("1 < 2 <3> <", [("text", "1 < 2 <3> <")]),
        ('<a b="x>y" z', [("open", "a"), ("text", 'y" z')]),
        ("<<<b>", [("text", "<<"), ("open", "b")]),
    ],
)
def test_markup_is_split_at_its_tags(text: str, expected: list[tuple[str, str]]) -> None:
    assert read(text) == expected


def test_tokens_say_where_they_stand() -> None:
    text = "ab<p x>c"

    assert [text[start:end] for _, _, start, end in tokens(text, skipped=())] == [
        "ab",
        "<p x>",
        "c",
    ]


def test_the_first_attribute_of_a_name_counts_and_references_are_resolved() -> None:
    assert attributes("<a HREF='x&amp;y' href=z b c = \"d\" e=f/>", limit=9) == {
        "href": "x&y",
        "b": "",
        "c": "d",
        "e": "f/",
    }


def test_a_tag_of_very_many_attributes_is_not_read() -> None:
    assert attributes("<a " + "b " * 500_000 + ">", limit=256) is None
    assert attributes("", limit=1) == {}


@pytest.mark.parametrize("tail", ["", ">", "'>", '">'])
@pytest.mark.parametrize(
    "piece",
    ["<", "<a ", "<!", "<!--", "</", "<a x='", "<title>", "<script>", "<a x=\"'>", "<p ='", "<a ="],
)
def test_hostile_markup_takes_linear_time(piece: str, tail: str) -> None:
    text = piece * (300_000 // len(piece)) + tail
    with effort_below(2.0):
        for _ in tokens(text, skipped=("script",), raw=("title",)):
            pass
