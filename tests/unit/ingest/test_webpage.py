"""HTML becomes what a reader sees, every line with its source line, in linear time."""

from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from effort import effort_below
from lib.ingest.document import Document
from lib.ingest.files import read_html

PAGE = """<!DOCTYPE html>
<html><head>
<title>The &amp; guide</title>
<style>p { color: red }</style>
<script>if (a < b) document.write("<p>no</p>")</script>
</head>
<body>
<nav><ul><li>Home</li></ul></nav>
<h1>Get
  started</h1>
<!-- a remark > with an end -->
<p class="a > b">First paragraph,
over two lines&nbsp;&mdash; <b>bold</b>.</p>
<ul>
<li>one
<li>two<br>still two</li>
</ul>
<table><tr><th>k</th><th>v</th></tr><tr><td>1</td><td>2</td></tr></table>
<pre><code>
def f():
    <span>return</span> <span>1</span>

f()
</code></pre>
<h2><div>Next</div></h2>Last words
</body></html>
"""


def lines(document: Document) -> list[tuple[int, str]]:
    """Return each line of the text with the source line of its first word."""
    found: list[tuple[int, str]] = []
    offset = 0
    for line in document.text.split("\n"):
        indent = len(line) - len(line.lstrip())
        found.append((document.line_at(offset + indent), line))
        offset += len(line) + 1
    return found


def test_a_page_becomes_its_visible_text_with_source_lines() -> None:
    document = read_html(PAGE)

    assert [line for line in lines(document) if line[1]] == [
        (9, "Get started"),
        (12, "First paragraph, over two lines — bold."),
        (15, "one"),
        (16, "two"),
        (16, "still two"),
        (18, "k v"),
        (18, "1 2"),
        (20, "def f():"),
        (21, "    return 1"),
        (23, "f()"),
        (25, "Next"),
        (25, "Last words"),
    ]
    assert "\n\nFirst paragraph" in document.text
    assert document.text.endswith("return 1\n\nf()\n\nNext\n\nLast words")


def test_titles_headings_and_code_are_known() -> None:
    document = read_html(PAGE)

    assert document.title == "The & guide"
    assert [
        (heading.level, heading.text, document.text[heading.start : heading.end])
        for heading in document.headings
    ] == [(1, "Get started", "Get started"), (2, "Next", "Next")]
    assert [document.text[start:end] for start, end in document.blocks] == [
        "def f():\n    return 1\n\nf()"
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        ("a < b and c > d <3", "a < b and c > d <3"),
        ("<P>A<BR>B</P >C", "A\nB\n\nC"),
        ("a<b>b</b>c <i>d</i>", "abc d"),
        ("x<br/>y<hr />z", "x\ny\n\nz"),
        ("<p>a</p>\n\n<p> b </p>", "a\n\nb"),
        ("&lt;b&gt; &#65;&#x42; &nope; &", "<b> AB &nope; &"),
        (f"&#{'9' * 5000}; x", "\ufffd x"),
        # what is hidden
        ("<svg><svg>x</svg>y</svg>z", "z"),
        ("<nav>a<button>b</nav>c</button>d", "cd"),
        ("a<script>b</scripted></SCRIPT >c", "ac"),
        ("a<script>never closed <p>b", "a"),
        ("a<nav>never closed <p>b", "a\n\nnever closed\n\nb"),
        ("a<!-- never closed <p>b", "a"),
        ("a<!---->b<?php x ?>c</>d<![CDATA[e]]>f", "abcdf"),
        # quotations with ends of tags in them, and without their own end
        ("<a title='1 > 0' alt=\">\">x</a>", "x"),
        ("<a title=\"1>x</a> and <b c='>'>y</b>", "x and y"),
        ('<a title="1>x" y', 'x" y'),
        ("<a title = '>'>x <p data=don't>y</p>", "x\n\ny"),
        ("text <a never closed", "text"),
        ("text <a never\nclosed\n", "text"),
        ("<title>a<b>c</b></title>d", "d"),
        ("<h1></h1><h2>a", "a"),
        ("<pre>\n\n  a \n b</pre>c", "  a \n b\n\nc"),
        ("<pre></pre>a<pre>b", "a\n\nb"),
    ],
)
def test_markup_is_read_as_it_comes(text: str, expected: str) -> None:
    assert read_html(text).text == expected


def test_the_first_heading_is_the_title_of_a_page_without_one() -> None:
    assert read_html("<h2>a</h2><h1>b</h1><h1>c</h1>").title == "b"
    assert read_html("a").title == ""


class Oracle(HTMLParser):
    """The words of a page, by the standard library's parser."""

    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []

    def handle_data(self, data: str) -> None:
        self.words.extend(data.split())


PIECES = (
    "<p>", "</p>", "<b class='x'>", "</b>", '<div id="a>b">', "<br/>", "<li>", "</ul>", "<h2>",
    "</h2>", "<td>", "<pre>", "<!-- no -->", " ", "\n", "&amp;", "word", "other", "é",
)  # fmt: skip


@given(st.lists(st.sampled_from(PIECES), max_size=30))
def test_the_words_are_those_of_the_standard_parser(pieces: list[str]) -> None:
    oracle = Oracle()
    oracle.feed(" ".join(pieces))
    oracle.close()

    assert read_html(" ".join(pieces)).text.split() == oracle.words


@given(st.text(alphabet="<>/!-=\"'& \nabp#", max_size=80))
def test_any_text_is_read(text: str) -> None:
    document = read_html(text)

    assert [document.line_at(offset) for offset in range(len(document.text))] == sorted(
        document.line_at(offset) for offset in range(len(document.text))
    )
    assert document.line_at(len(document.text)) <= text.count("\n") + 1


@pytest.mark.parametrize(
    "text",
    [
        piece * 20_000 + tail
        for piece in ("<", "<a ", "<!", "<!--", "</", "&#", "<a x='", "<svg>", "<a x=\"'>", "<p ='")
        for tail in ("", ">", "'>", '">')
    ],
)
def test_hostile_markup_takes_linear_time(text: str) -> None:
    with effort_below(2.0):
        read_html(text)
