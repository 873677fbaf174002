"""Types of content, plain text, Markdown and JSON become text, bounded whatever they hold."""

import pytest

from lib.content import extract, extraction, page
from lib.content.extraction import kind_of
from lib.errors import ToolError

from .extract_kit import URL, read


@pytest.mark.parametrize(
    ("content_type", "kind"),
    [
        ("text/html; charset=utf-8", "html"),
        ("Text/HTML ", "html"),
        ("application/xhtml+xml", "html"),
        ("application/problem+json", "json"),
        ("application/rss+xml", "xml"),
        ("text/x-anything", "plain"),
        ("", None),
    ],
)
def test_a_media_type_says_how_it_is_read(content_type: str, kind: str | None) -> None:
    assert kind_of(content_type) == kind


@pytest.mark.parametrize("content_type", ["image/png", "image/svg+xml", "application/zip", "x"])
def test_what_is_no_text_is_refused(content_type: str) -> None:
    with pytest.raises(ToolError) as caught:
        read("secret", content_type)

    assert caught.value.code == "unsupported"
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"<!DOCTYPE html><p>a", "a"),
        (b"\xef\xbb\xbf <!-- x --> <html><p>a", "a"),
        (b"<?xml version='1.0'?><a>b</a>", "a: b"),
        (b"plain <b>text", "plain <b>text"),
        (b"\xff\xfea\x00", "a"),
        (b"", ""),
    ],
)
def test_what_has_no_type_is_guessed_by_its_beginning(body: bytes, text: str) -> None:
    assert read(body, "").text == text


def test_binary_content_without_a_type_is_refused() -> None:
    with pytest.raises(ToolError) as caught:
        read(b"PK\x03\x04", "")

    assert caught.value.code == "unsupported"


def test_plain_text_stays_as_it_is_even_if_it_looks_like_html() -> None:
    assert read("<p>a</p>\r\nb\rc\n", "text/plain").text == "<p>a</p>\nb\nc"
    assert read("a,b\n1,2\n", "text/csv").text == "a,b\n1,2"


def test_comments_of_markdown_are_dropped_but_not_in_code() -> None:
    found = read(
        "<!-- no -->\n# Head #\n\na<!-- b\nc --> d <!-- e --> f\n```x\n<!-- code -->\n```\n"
        "~~~\n```\n<!-- code -->\n~~~\ng<!-- never ends\n# h",
        "text/markdown",
    )

    assert found.title == "Head"
    assert found.text == (
        "# Head #\n\na\n d  f\n```x\n<!-- code -->\n```\n~~~\n```\n<!-- code -->\n~~~\ng\n"
    ).strip("\n")
    assert read("no heading", "text/markdown").title is None


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ('{"a":1,"b":[true,null],"c":{}}', '{\n "a": 1,\n "b": [true,null],\n "c": {}\n}'),
        ("[]", "[]"),
        ("[[1,2],[3]]", "[\n [1,2],\n [3]\n]"),
        (
            '{"a":"\\u00e9\\ud83d\\ude00\\u0041\\ud800\\\\u00e9\\n"}',
            '{"a":"é😀\\u0041\\ud800\\\\u00e9\\n"}',
        ),
        (
            '[{"a":"' + "x" * 100 + '","b":[ ]}]',
            '[\n {\n  "a": "' + "x" * 100 + '",\n  "b": [ ]\n }\n]',
        ),
        ('["' + "x" * 100 + '"]', '[\n "' + "x" * 100 + '"\n]'),
        ("[" + "1," * 99 + "1]", "[" + "1," * 99 + "1]"),
        ("[1,\n\n   2]", "[1, 2]"),
        ("1" * 5_000, "1" * 5_000),
        ('{"a": ]]', '{"a": ]\n]'),
        ('["never closed', '[\n "never closed'),
        ('["\\', '[\n "\\'),
    ],
)
def test_json_is_indented_and_nothing_of_it_changes(body: str, text: str) -> None:
    assert read(body, "application/json").text == text


def test_deep_json_is_indented_only_so_far_and_cut() -> None:
    found = read("[" * 300_000, "application/json")

    assert len(found.text) == extraction.MAX_CHARS
    assert found.note == "the text is cut, it is longer"


def test_an_encoding_that_browsers_refuse_is_said() -> None:
    found = extract(b"x", content_type="text/plain", charset="hz-gb-2312", url=URL)

    assert found.note == "the text is in an encoding that is not read"


def test_pieces_of_a_text_end_at_lines_words_or_where_they_are_full() -> None:
    assert page("abc", start=0, max_chars=3) == ("abc", None)
    assert page("aaaaaa\nbbb ccc", start=0, max_chars=8) == ("aaaaaa\n", 7)
    assert page("aaaaaa bbbbbb", start=0, max_chars=8) == ("aaaaaa ", 7)
    assert page("aaaaaabbbbbb", start=0, max_chars=8) == ("aaaaaabb", 8)
    assert page("abc", start=9, max_chars=3) == ("", None)
    assert page("abc", start=-1, max_chars=0) == ("a", 1)
