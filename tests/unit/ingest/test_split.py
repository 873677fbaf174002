"""Tests how documents are cut: examples, and laws that hold for any text."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.ingest.document import Document
from lib.ingest.files import read_html
from lib.ingest.readers import read_markdown, read_plain
from lib.ingest.split import Chunk, Splitter


def texts(splitter: Splitter, document: Document) -> list[str]:
    return [chunk.text for chunk in splitter.split(document)]


def test_sections_become_chunks_with_their_headings_and_lines() -> None:
    document = read_markdown(
        "intro\n\n# Guide\n\n## Install\n\nRun it.\n\n### Linux\n\nmake\n\n## Use\n\n"
    )

    assert Splitter().split(document) == [
        Chunk(text="intro", line=1, end_line=1, heading=""),
        Chunk(
            text="# Guide\n\n## Install\n\nRun it.", line=3, end_line=7, heading="Guide > Install"
        ),
        Chunk(text="### Linux\n\nmake", line=9, end_line=11, heading="Guide > Install > Linux"),
        Chunk(text="## Use", line=13, end_line=13, heading="Guide > Use"),
    ]


def test_paragraphs_are_joined_while_they_fit_and_kept_whole() -> None:
    document = read_plain("aaaa aaaa.\n\nbbbb bbbb.\n  \n\ncccc cccc cccc.\n\n\n")

    assert texts(Splitter(max_chars=26, overlap=0), document) == [
        "aaaa aaaa.\n\nbbbb bbbb.",
        "cccc cccc cccc.",
    ]


def test_a_long_paragraph_is_cut_between_sentences() -> None:
    document = read_plain("One is here. Two (\u201cis\u201d) there! Three? 四です。五です。")

    assert texts(Splitter(max_chars=22, overlap=0), document) == [
        "One is here.",
        "Two (\u201cis\u201d) there!",
        "Three? 四です。五です。",
    ]


def test_lines_then_words_then_letters_are_cut_when_nothing_else_fits() -> None:
    document = read_plain("a b\nc d\neee ffff\n123456789")

    assert texts(Splitter(max_chars=5, overlap=0), document) == [
        "a b",
        "c d",
        "eee",
        "ffff",
        "12345",
        "6789",
    ]


def test_a_chunk_repeats_the_end_of_the_one_before_from_a_sentence_or_a_word() -> None:
    document = read_plain("One two. Three four.\n\nFive six seven.\n\nEight nine ten.\n")

    assert texts(Splitter(max_chars=36, overlap=14), document) == [
        "One two. Three four.",
        "Three four.\n\nFive six seven.",
        "six seven.\n\nEight nine ten.",
    ]


def test_code_stays_whole_when_it_fits_and_is_cut_at_lines_when_it_does_not() -> None:
    fence = "```\nx = 1. And\n\ny = 2\n```"
    document = read_markdown(f"Some words before it:\n{fence}\nand after it. More words.")

    assert texts(Splitter(max_chars=30, overlap=0), document) == [
        "Some words before it:",
        fence,
        "and after it. More words.",
    ]
    assert texts(Splitter(max_chars=20, overlap=0), document)[1:3] == [
        "it:\n```\nx = 1. And",
        "y = 2\n```",
    ]


def test_indentation_of_the_first_line_is_kept() -> None:
    (chunk,) = Splitter().split(read_plain("\n \n    code\n  text\n"))

    assert chunk == Chunk(text="    code\n  text", line=3, end_line=4, heading="")


@pytest.mark.parametrize("text", ["", " \n\n\t"])
def test_a_blank_document_has_no_chunks(text: str) -> None:
    assert Splitter().split(read_plain(text)) == []


@pytest.mark.parametrize(("max_chars", "overlap"), [(0, 0), (10, 10), (10, -1)])
def test_impossible_sizes_are_refused(max_chars: int, overlap: int) -> None:
    with pytest.raises(ValueError, match=f"max_chars is {max_chars} and overlap {overlap}"):
        Splitter(max_chars=max_chars, overlap=overlap)


PIECES = (
    "word", "longerword", "x", " ", " ", "\n", "\n\n", ". ", "! ", "\n# Head\n", "\n## Deeper\n",
    "\n```\n", "- item", "猫。", "\t", "| a |", "\n---\n", "verylongwordwithoutanyspaceinit",
)  # fmt: skip
documents = st.lists(st.sampled_from(PIECES), max_size=60).map("".join)
splitters = st.tuples(st.integers(1, 80), st.integers(0, 40)).map(
    lambda sizes: Splitter(max_chars=sizes[0], overlap=min(sizes[1], sizes[0] - 1))
)


@given(documents, splitters)
def test_chunks_are_slices_that_fit_and_cover_every_word(text: str, splitter: Splitter) -> None:
    document = read_markdown(text)
    chunks = splitter.split(document)

    covered = 0
    for chunk in chunks:
        assert 0 < len(chunk.text) <= splitter.max_chars
        found = [at.start() for at in re.finditer(f"(?={re.escape(chunk.text)})", document.text)]
        place = max((at for at in found if not document.text[covered:at].strip()), default=-1)
        assert place >= 0, "a chunk is missing before this one"
        covered = max(covered, place + len(chunk.text))
    assert not document.text[covered:].strip()


@given(documents, splitters)
def test_lines_are_those_of_the_source(text: str, splitter: Splitter) -> None:
    source = text.split("\n")

    for chunk in splitter.split(read_plain(text)):
        cited = "\n".join(source[chunk.line - 1 : chunk.end_line])
        assert chunk.text.strip() in cited
        assert cited.count("\n") == chunk.text.strip().count("\n")


@given(documents, st.integers(0, 30))
def test_a_word_that_fits_is_never_cut(text: str, overlap: int) -> None:
    text = text.replace("。", "")  # after which a sentence may begin without a space
    words = set(text.split())
    splitter = Splitter(max_chars=max(map(len, words), default=1) + overlap, overlap=overlap)

    for chunk in splitter.split(read_plain(text)):
        assert set(chunk.text.split()) <= words


@given(documents, st.integers(20, 80))
def test_a_block_of_code_that_fits_is_in_one_chunk(text: str, max_chars: int) -> None:
    document = read_markdown(text)
    found = texts(Splitter(max_chars=max_chars, overlap=10), document)

    for start, end in document.blocks:
        if end - start <= max_chars:
            assert any(document.text[start:end].strip() in chunk for chunk in found)


@given(documents)
def test_html_is_cited_by_its_own_lines(text: str) -> None:
    source = "".join(f"<p>{paragraph}</p>\n" for paragraph in text.split("\n\n")).split("\n")

    for chunk in Splitter(max_chars=40, overlap=10).split(read_html("\n".join(source))):
        cited = " ".join(source[chunk.line - 1 : chunk.end_line])
        shown = cited.replace("<p>", "").replace("</p>", "")
        assert "".join(chunk.text.split()) in "".join(shown.split())
