"""The grammar of URLs: what it takes, what it refuses, and what redirects are read as."""

import pytest

from lib.errors import FetchBlocked
from lib.tools.builtin.fetch.url import MAX_URL_CHARS, Target, join, parse


@pytest.mark.parametrize(
    ("url", "read"),
    [
        ("http://example.com", "http://example.com/"),
        ("HTTPS://EXAMPLE.com:443/a?b#c", "https://example.com/a?b"),
        ("http://example.com:8080/", "http://example.com:8080/"),
        ("http://example.com:080/", "http://example.com/"),
        ("https://example.com?q=1", "https://example.com/?q=1"),
        ("https://example.com./", "https://example.com/"),
        ("https://Bücher.example/Straße?q=ü", "https://xn--bcher-kva.example/Stra%C3%9Fe?q=%C3%BC"),
        ("https://faß.de/", "https://xn--fa-hia.de/"),
        ("https://xn--bcher-kva.example/", "https://xn--bcher-kva.example/"),
        ("https://e.com/%2e%2e/100%?a[]={1}|2", "https://e.com/%2e%2e/100%?a[]={1}|2"),
        ('https://e.com/"a"<b>', "https://e.com/%22a%22%3Cb%3E"),
        ("https://e.com/?a=b\\c", "https://e.com/?a=b%5Cc"),
        ("https://e.com/a/../b", "https://e.com/a/../b"),
        ("http://8.8.8.8:81/", "http://8.8.8.8:81/"),
        ("http://[2606:4700:4700:0:0:0:0:1111]:81/", "http://[2606:4700:4700::1111]:81/"),
        ("http://[::FFFF:8.8.8.8]/", "http://[::ffff:808:808]/"),
        ("https://a_b.example.com/", "https://a_b.example.com/"),
        ("https://fa.wikipedia.org/wiki/\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645", None),
    ],
)
def test_a_url_is_read_into_one_spelling(url: str, read: str | None) -> None:
    assert parse(url).url == (read or parse(parse(url).url).url)


def test_a_url_that_was_read_is_read_as_itself() -> None:
    once = parse("http://ⓔⓧⓐⓜⓟⓛⓔ.ⓒⓞⓜ:81/a b".replace(" ", "%20"))

    assert once == Target("http", "example.com", 81, "/a%20b")
    assert parse(once.url) == once


@pytest.mark.parametrize(
    ("url", "rule"),
    [
        ("http://example.com/" + "a" * MAX_URL_CHARS, "longer than"),
        *((f"http://example.com/{c}", "control character") for c in " \t\r\n\0\x7f\x85\xa0\u2028"),
        ("http://example.com/\ud800", "control character"),
        ("file:///etc/passwd", "only http and https"),
        ("httpx://example.com/", "only http and https"),
        ("http:example.com", "not a complete"),
        ("http:///example.com", "not a complete"),
        ("example.com", "not a complete"),
        ("", "not a complete"),
        ("http://example.com\\@evil.com/", "not a complete"),
        ("http://example.com/\\evil", "not a complete"),
        ("http://a@example.com/", "user name"),
        ("http://exa%6dple.com/", "cannot be read"),
        ("http://example.com:/", "cannot be read"),
        ("http://example.com:123456/", "cannot be read"),
        ("http://example.com:\uff18\uff10/", "cannot be read"),
        ("http://example.com:65536/", "out of range"),
        ("http://example.com:0/", "out of range"),
        ("http://[::1/", "cannot be read"),
        ("http://[::1%25lo]/", "cannot be read"),
        ("http://[1::2::3]/", "not a valid IPv6"),
        ("http://[127.0.0.1]/", "not a valid IPv6"),
        ("http://127.1/", "is a number"),
        ("http://0x7f000001/", "is a number"),
        ("http://8.8.8.8./", "is a number"),
        ("http://8.8.8.08/", "is a number"),
        ("http://\uff18.\uff18.\uff18.\uff18/", "not a valid name"),
        ("http://💩.la/", "not a valid name"),
        ("http://exa\u200bmple.com/", "invisible"),
        ("http://" + "ü" * 254 + ".de/", "too long"),
        ("http://" + "a" * 64 + ".com/", "not a valid name"),
        ("http://" + ".".join(["a" * 60] * 5) + "/", "not a valid name"),
        ("http://a..b/", "not a valid name"),
        ("http://-a.com/", "not a valid name"),
        ("http://a-.com/", "not a valid name"),
        ("http://xn--a.com/", "not a valid name"),
        ("http://xn--localhost-.com/", "not a valid name"),
        ("http://xn--ls8h.la/", "not a valid name"),
        ("http://xn--a-ÿ.com/", "not a valid name"),
    ],
)
def test_what_can_be_read_in_two_ways_is_refused_and_not_repaired(url: str, rule: str) -> None:
    with pytest.raises(FetchBlocked, match=rule) as caught:
        parse(url)

    assert (caught.value.code, caught.value.host) == ("blocked", None)
    assert caught.value.__context__ is None


@pytest.mark.parametrize(
    ("location", "read"),
    [
        ("/x", "https://a.com/x"),
        ("x", "https://a.com/b/x"),
        ("../x", "https://a.com/x"),
        ("../../../x/.", "https://a.com/x/"),
        ("./x/..", "https://a.com/b/"),
        ("?x=1", "https://a.com/b/c?x=1"),
        ("?", "https://a.com/b/c?"),
        ("#x", "https://a.com/b/c?d=e"),
        ("", "https://a.com/b/c?d=e"),
        ("x?y=../z#f", "https://a.com/b/x?y=../z"),
        ("//b.com/x", "https://b.com/x"),
        ("http://b.com/x", "http://b.com/x"),
        ("/café", "https://a.com/caf%C3%A9"),
    ],
)
def test_a_redirect_is_read_relative_to_where_it_comes_from(location: str, read: str) -> None:
    assert join(parse("https://a.com/b/c?d=e"), location).url == read


@pytest.mark.parametrize(
    "location",
    ["javascript:x", "///b.com/", "\\\\b.com", "/\\b.com", "//a@b.com/", "x\0", "b.com:80/x"],
)
def test_a_redirect_that_can_be_read_in_two_ways_is_refused(location: str) -> None:
    with pytest.raises(FetchBlocked):
        join(parse("https://a.com/b/c"), location)


def test_what_a_target_shows_of_itself() -> None:
    name, address = parse("https://example.com:444/"), parse("http://[2606:4700::1]:81/")

    assert (name.origin, name.authority, name.name) == (
        ("https", "example.com", 444),
        "example.com:444",
        "example.com",
    )
    assert (address.authority, address.name, str(address.address)) == (
        "[2606:4700::1]:81",
        None,
        "2606:4700::1",
    )
