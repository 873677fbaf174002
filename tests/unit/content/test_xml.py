"""XML and feeds become text, bounded whatever they hold."""

from lib.content.xml import MAX_ELEMENTS, elements, outline

from .extract_kit import read


def test_xml_becomes_an_outline_without_its_comments_and_entities() -> None:
    found = read(
        '<?xml version="1.0"?><!DOCTYPE a [<!ENTITY lol "ha"><!ENTITY x SYSTEM '
        '"file:///etc/passwd">]><n:a xmlns:n="u" b="1">'
        "<!-- no --><c/> &lol; &x; &#65; <d>e<![CDATA[<f>]]></d></n:a></z>",
        "application/xml",
    )

    assert found.text == "a (b=1): &lol; &x; A\n c\n d: e<f>"


def test_xhtml_is_read_as_html_whatever_xml_it_is_called() -> None:
    assert read("<html><p hidden='x'>a</p><p>b</p></html>", "text/xml").text == "b"


RSS = """<?xml version="1.0"?><rss><channel><title>News &amp; more</title><link>https://e.org</link>
<description>About it</description>
<item><title>One</title><link>/1</link>
<pubDate>Mon, 1 Jan 2026</pubDate>
<description>&lt;p&gt;First &lt;b hidden&gt;no&lt;/b&gt;
&lt;a href="/x"&gt;here&lt;/a&gt;</description>
<content:encoded><![CDATA[<p>whole</p>]]></content:encoded></item>
<item><guid>https://e.org/2</guid>
<description></description>
<content:encoded><![CDATA[<p>Two</p>]]></content:encoded></item>
<item><title>Three</title><guid>tag:3</guid></item></channel></rss>"""

ATOM = """<feed xmlns="http://www.w3.org/2005/Atom"><title>Blog</title>
<entry><title type="html">A &lt;i&gt;b&lt;/i&gt;</title><link rel="self" href="/self"/>
<link href="/post"/><updated>2026-01-01</updated>
<summary type="xhtml"><div><p>In <b>elements</b></p></div></summary></entry></feed>"""


def test_rss_becomes_its_entries() -> None:
    found = read(RSS, "application/rss+xml")

    assert found.title == "News & more"
    assert found.text == (
        "About it\n\n## [One](https://example.org/1)\nMon, 1 Jan 2026\n\n"
        "First [here](https://example.org/x)\n\n## [(without a title)](https://e.org/2)\n\nTwo\n\n"
        "## Three"
    )


def test_atom_becomes_its_entries() -> None:
    found = read(ATOM, "application/atom+xml")

    assert (found.title, found.text) == (
        "Blog",
        "## [A b](https://example.org/post)\n2026-01-01\n\nIn elements",
    )


def test_an_outline_is_cut_where_it_is_long_enough() -> None:
    found, _ = elements("<a><b>c</b><d/></a>")

    assert outline(found, max_chars=3) == "a\n b: c"


def test_a_link_of_a_feed_that_is_none_of_the_web_is_left_out() -> None:
    assert read("<feed><entry><link href='tag:x'/></entry></feed>", "text/xml").text == (
        "## (without a title)"
    )


def test_feeds_are_bounded() -> None:
    found = read("<rss>" + "<item><title>x</title></item>" * 600, "text/xml")
    long = read(f"<rss><item><description>{'x ' * 3_000}</description></item></rss>", "text/xml")

    assert found.text.count("## x") == 500
    assert found.note == "the first 500 of 600 entries"
    assert len(long.text) < 2_100
    assert read("<feed><title>T</title></feed>", "text/xml").title == "T"


def test_documents_of_very_many_elements_are_cut() -> None:
    found = read("<a>" * (MAX_ELEMENTS + 1), "text/xml")

    assert found.text.startswith("a\n a\n  a\n")
    assert found.text.count("a") == MAX_ELEMENTS
    assert found.note == "only the beginning of the document was read"
