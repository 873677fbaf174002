"""Any bytes, as anything: no other exception than ToolError, bounded text, linear work."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from effort import calls_of, effort_below
from lib.content import extract, page
from lib.content.extraction import MAX_CHARS
from lib.content.html.page import main_blocks
from lib.content.html.reader import read_blocks
from lib.content.html.visibility import find_hidden_text
from lib.errors import ToolError

TYPES = (
    *("text/html", "application/json", "text/xml", "text/markdown", "text/plain", "image/png", ""),
)
LABELS = (None, "utf-8", "shift_jis", "utf-16", "punycode", "klingon", "iso-2022-jp", "x" * 999)
URL = "https://example.org/a/b?c#d"


def read(body: bytes, content_type: str, charset: str | None = None) -> str:
    return extract(body, content_type=content_type, charset=charset, url=URL).text


@given(
    st.binary(max_size=300)
    | st.text(alphabet="<>/!-=\"'& \npab[]{}:,`#\\\\u0", max_size=200).map(str.encode),
    st.sampled_from(TYPES) | st.text(max_size=20),
    st.sampled_from(LABELS) | st.text(max_size=10),
    st.sampled_from((URL, "", "x", "//[", "javascript:1")),
)
def test_any_bytes_as_anything_become_text_or_a_tool_error(
    body: bytes, content_type: str, charset: str | None, url: str
) -> None:
    try:
        found = extract(body, content_type=content_type, charset=charset, url=url)
    except ToolError as refusal:
        if refusal.code not in {"unsupported", "failed"}:
            raise
    else:
        assert len(found.text) <= 1_000 + 60 * len(body)


@given(st.text(max_size=300), st.integers(1, 50))
def test_the_pieces_of_a_text_are_together_the_text(text: str, max_chars: int) -> None:
    pieces: list[str] = []
    start: int | None = 0
    while start is not None:
        piece, start = page(text, start=start, max_chars=max_chars)
        assert len(piece) <= max_chars
        pieces.append(piece)

    assert "".join(pieces) == text


HOSTILE = {
    "text/html": (
        *(
            "<div>",
            "<p>x",
            "<p>x</p>",
            "<li>x</li>",
            "<ol><li>x",
            "<blockquote><p>x",
            " ",
            "<",
            "<b>",
        ),
        *(
            "<td>",
            "<tr><td>x<td>y",
            "<a href=../x>y",
            "<p a>",
            "&a",
            "&#1;",
            "<p hidden>x",
            "x<br>",
        ),
        *(
            "<code>x",
            "<pre>x",
            "<title>",
            "<svg>",
            "</div>",
            "<h1>x",
            "<dt>a<dd>b",
            "<!--",
            "<![CDATA[",
        ),
        *("\u200b", "\x1b[0m", '<a =">', "<table><tr><td>", "<div class=nav-x>y", "<noscript>"),
        *("<p style='left:'>", "<div hidden>", "<template>", "\u00a0x", "<select>", "<textarea>"),
    ),
    "application/json": ("[", "1,", '["', '\\"', '{"a":', "\\u00e9", "[1],", '"a":1,', "]"),
    "text/xml": (
        *("<a>", "<a/>", "<", "<!DOCTYPE[", "<![CDATA[", '<a b="', "<a>x", "] ", "<rss><item>"),
        *("&x;", "<?", "<!--", "</a>"),
    ),
    "text/markdown": ("```", "```\n", "<!--", "-->", "~~~", "# ", " #", "\r"),
}


@pytest.mark.parametrize(
    ("content_type", "piece"),
    [(content_type, piece) for content_type, pieces in HOSTILE.items() for piece in pieces],
)
def test_hostile_content_takes_linear_time_and_bounded_memory(
    content_type: str, piece: str
) -> None:
    body = (piece * (60_000 // len(piece))).encode()
    with effort_below(2.0):
        assert len(read(body, content_type)) <= MAX_CHARS


@pytest.mark.parametrize(
    "piece",
    [
        *(
            "font:",
            "font:a ",
            "font:0",
            "font: .",
            "opacity:",
            "opacity:0",
            "opacity:1.",
            "/*",
            "\\",
        ),
        *(
            "\\6f ",
            "color:",
            "color:rgba(",
            "color:rgba(0,",
            "color:#0",
            "background:",
            "background:#",
        ),
        *("background:a ", "color:a;background:b;", "background:rgb(1,", ";", " ", "!", "-"),
    ],
)
@pytest.mark.parametrize("before", ["", "font:", "opacity:", "color:", "color:a;background:"])
def test_hostile_styles_take_linear_time(before: str, piece: str) -> None:
    with effort_below(2):  # in quadratic time it takes minutes
        find_hidden_text(f'<p style="{before}{piece * (200_000 // len(piece))}">x')


def work(html: str) -> int:
    """Return how many calls reading and judging a page take."""
    return calls_of(lambda: main_blocks(read_blocks(html, url=URL)))


@pytest.mark.parametrize(
    "piece", ["<p>x</p>", "<div>", "<li>x", "<table><tr><td>x", "<a href=x>y</a>"]
)
def test_twice_as_much_content_takes_at_most_twice_the_work(piece: str) -> None:
    assert work(piece * 400) <= 2.1 * work(piece * 200)


def test_a_page_of_too_many_events_or_blocks_is_cut() -> None:
    assert not read_blocks("a<b>" * 5, url=URL, max_events=10).cut
    assert read_blocks("a<b>" * 5, url=URL, max_events=9).cut
    assert not read_blocks("<p>a" * 3, url=URL, max_blocks=3).cut
    page = read_blocks("<p>a" * 9, url=URL, max_blocks=3)
    assert page.cut
    assert len(page.blocks) == 3


def test_links_of_a_long_base_do_not_make_the_text_long() -> None:
    body = f"<base href='https://e.org/{'x' * 1_900}/'>" + "<p><a href=y>z</a>" * 20_000
    found = extract(body.encode(), content_type="text/html", charset=None, url=URL)

    assert len(found.text) == MAX_CHARS
    assert found.note == "page is too complex: only its beginning was read"
