"""Tests what plain text, Markdown and reStructuredText become: headings, code and titles."""

import pytest

from lib.ingest.document import Document
from lib.ingest.readers import read_markdown, read_plain, read_rst


def outline(document: Document) -> list[tuple[int, int, str]]:
    return [
        (document.line_at(heading.start), heading.level, heading.text)
        for heading in document.headings
    ]


def blocks(document: Document) -> list[str]:
    return [document.text[start:end] for start, end in document.blocks]


def test_plain_text_is_taken_as_it_is() -> None:
    document = read_plain("# no heading\n\ntext\n")

    assert document == Document(
        text="# no heading\n\ntext\n", offsets=[0, 13, 14, 19], lines=range(1, 5)
    )
    assert [document.line_at(offset) for offset in (0, 12, 13, 14, 18)] == [1, 1, 2, 3, 3]


def test_markdown_headings_have_levels_and_lines() -> None:
    document = read_markdown(
        "Title\n=====\n\n## Install ##\ntext\n\nLinux and Mac\n---\n   ### Deep # er\n#\n"
    )

    assert outline(document) == [
        (1, 1, "Title"),
        (4, 2, "Install"),
        (7, 2, "Linux and Mac"),
        (9, 3, "Deep # er"),
        (10, 1, ""),
    ]
    assert document.title == "Title"


@pytest.mark.parametrize(
    "text",
    [
        "#hashtag\n",
        "####### seven\n",
        "    # indented code\n",
        "text\n\n---\n",
        "- item\n---\n",
        "1. item\n---\n",
        "> quote\n---\n",
        "| a |\n---\n",
        "# \u00a0no\n"[1:],
        "```\n# comment\n```\n",
        "~~~\ntext\n---\n~~~\n",
        "```\ntext\n```\n---\n",
    ],
)
def test_what_only_looks_like_a_heading_is_none(text: str) -> None:
    assert outline(read_markdown(text)) == []


def test_fenced_code_is_a_block() -> None:
    document = read_markdown(
        "a\n```py\nx = 1\n```\n\n- item\n\n  ~~~~\n  ```\n  ~~~\n  ~~~~\n``` no `fence`\n"
        "```\nnever closed\n``` not closing"
    )

    assert blocks(document) == [
        "```py\nx = 1\n```",
        "  ~~~~\n  ```\n  ~~~\n  ~~~~",
        "```\nnever closed\n``` not closing",
    ]


def test_front_matter_gives_the_title_and_keeps_the_line_numbers() -> None:
    document = read_markdown('---\nlayout: page\ntitle: "The guide"\n---\n# Start\n')

    assert document.title == "The guide"
    assert document.text == "\n\n\n\n# Start\n"
    assert outline(document) == [(5, 1, "Start")]


@pytest.mark.parametrize("text", ["---\nno key\n---\n# A\n", "---\na: b\n# A\n", "text\n# A\n"])
def test_a_rule_at_the_start_is_no_front_matter(text: str) -> None:
    document = read_markdown(text)

    assert document.text == text
    assert document.title == "A"


def test_front_matter_without_a_title_leaves_it_to_the_headings() -> None:
    assert read_markdown("---\na: b\n...\n## B\n").title == ""


def test_rst_titles_have_the_levels_of_their_adornments() -> None:
    document = read_rst(
        "=====\nTitle\n=====\n\nIntro\n\nOne\n---\n\ntext\n\nDeep\n~~~~\n\nTwo\n-----\n\n"
        "Not long enough\n---\n\n----\n\nab\n==\n\nlast"
    )

    assert outline(document) == [(1, 1, "Title"), (7, 2, "One"), (12, 3, "Deep"), (15, 2, "Two")]
    assert document.title == "Title"
    assert [document.text[h.start : h.end] for h in document.headings][:2] == [
        "=====\nTitle\n=====",
        "One\n---",
    ]


def test_rst_without_titles_has_none() -> None:
    assert read_rst("just text").title == ""
