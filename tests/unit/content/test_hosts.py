"""Hosts are shown in ASCII where they are not."""

from lib.content.links import with_ascii_host
from lib.tools.builtin.search.text import web_url

SHOWN = {
    "https://example.org/é?q=ü#ß": "https://example.org/é?q=ü#ß",
    "HTTPS://Example.org:8443/": "HTTPS://Example.org:8443/",
    "https://münchen.example/ü": "https://xn--mnchen-3ya.example/ü",
    "https://MÜNCHEN.example:444?x": "https://xn--mnchen-3ya.example:444?x",
    "https://\u0440\u0430ypal.com/": "https://xn--ypal-43d9g.com/",
    "https://example。org/": "https://example.org/",
    "https://\uff45xample.org/": "https://example.org/",
    "https://[2001:db8::1]/é": "https://[2001:db8::1]/é",
    "mailto:é@x.org": "mailto:é@x.org",
}
UNSHOWN = [
    "https://user@é.example/",
    "https://user:word@é.example/",
    "https://é.example:x/",
    "https://[é]/",
    "https://\u2028.example/",
    "https://é..example/",
    f"https://{'é' * 300}.example/",
    f"https://{'é.' * 200}example/",
]


def test_hosts_that_are_not_ascii_are_written_as_a_labels() -> None:
    assert {url: with_ascii_host(url) for url in SHOWN} == SHOWN


def test_hosts_that_have_no_such_form_are_not_shown() -> None:
    assert [url for url in UNSHOWN if with_ascii_host(url) is not None] == []


def test_results_of_searches_have_their_hosts_in_ascii() -> None:
    assert web_url("https://\u0440\u0430ypal.com/login") == "https://xn--ypal-43d9g.com/login"
