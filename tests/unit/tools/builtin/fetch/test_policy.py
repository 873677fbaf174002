"""Policies: what is refused when one is made, and how hosts and media types are matched."""

import copy
import pickle
from dataclasses import replace
from ipaddress import ip_address
from typing import Any

import pytest

from lib.errors import FetchBlocked
from lib.tools.builtin.fetch.policy import DEFAULT_CONTENT_TYPES, FetchPolicy, Rules, takes
from lib.tools.builtin.fetch.url import parse


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"allowed_hosts": "example.com"}, TypeError),
        ({"allowed_hosts": (1,)}, TypeError),
        ({"allowed_hosts": None}, TypeError),
        ({"allowed_hosts": ("example.com:443",)}, ValueError),
        ({"allowed_hosts": ("https://example.com",)}, ValueError),
        ({"allowed_hosts": ("*",)}, ValueError),
        ({"allowed_hosts": ("a.*.com",)}, ValueError),
        ({"allowed_hosts": ("*.8.8.8.8",)}, ValueError),
        ({"denied_hosts": ("",)}, ValueError),
        ({"denied_hosts": ("10.0.0.0/8",)}, ValueError),
        ({"denied_hosts": ("[::1%eth0]",)}, ValueError),
        ({"allowed_ports": (True,)}, TypeError),
        ({"allowed_ports": ("80",)}, TypeError),
        ({"allowed_ports": ()}, ValueError),
        ({"allowed_ports": (0,)}, ValueError),
        ({"allowed_ports": (65_536,)}, ValueError),
        ({"allow_http": 1}, TypeError),
        ({"allow_private_networks": "no"}, TypeError),
        ({"max_redirects": -1}, ValueError),
        ({"max_redirects": 51}, ValueError),
        ({"max_redirects": 1.0}, TypeError),
        ({"max_bytes": 0}, ValueError),
        ({"max_bytes": True}, TypeError),
        ({"timeout_s": 0}, ValueError),
        ({"timeout_s": float("nan")}, ValueError),
        ({"timeout_s": float("inf")}, ValueError),
        ({"timeout_s": True}, TypeError),
        ({"connect_timeout_s": "5"}, TypeError),
        ({"connect_timeout_s": -1.0}, ValueError),
        ({"content_types": ()}, ValueError),
        ({"content_types": ("html",)}, ValueError),
        ({"content_types": "text/html"}, TypeError),
        ({"user_agent": ""}, ValueError),
        ({"user_agent": "a\r\nHost: b"}, ValueError),
        ({"user_agent": "é"}, ValueError),
        ({"user_agent": None}, ValueError),
        ({"extra": [("A", "b")]}, TypeError),
        ({"extra": {"A": 1}}, TypeError),
        ({"extra": {"A b": "c"}}, ValueError),
        ({"extra": {"A": "b\r\nC: d"}}, ValueError),
        ({"extra": {"A": "b\n"}}, ValueError),
        ({"extra": {"A:": "b"}}, ValueError),
        ({"extra": {"": "b"}}, ValueError),
        ({"extra": {"A": "é"}}, ValueError),
        ({"extra": {"A": "1", "a": "2"}}, ValueError),
    ],
)
def test_a_policy_that_means_nothing_cannot_be_made(
    fields: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        FetchPolicy(**fields)


@pytest.mark.parametrize(
    "name",
    [
        *("Host", "content-length", "TRANSFER-ENCODING", "Connection", "Accept-Encoding", "Cookie"),
        *("Upgrade", "Proxy-Authorization", "TE", "Trailer", "Expect", "User-Agent", "Keep-Alive"),
    ],
)
def test_headers_that_are_not_the_callers_cannot_be_set(name: str) -> None:
    with pytest.raises(ValueError, match="not for extra"):
        FetchPolicy(extra={name: "secret"})


def test_a_value_of_a_header_is_not_repeated_in_an_error() -> None:
    with pytest.raises(ValueError, match="X-Key") as caught:
        FetchPolicy(extra={"X-Key": "secret\r\n"})

    assert "secret" not in str(caught.value)


def test_headers_of_a_policy_are_its_own_copy() -> None:
    headers = {"Authorization": "Bearer key", "X-Empty": ""}
    policy = FetchPolicy(extra=headers)
    headers["Host"] = "evil"

    assert policy.extra == {"Authorization": "Bearer key", "X-Empty": ""}


def test_headers_of_a_policy_are_not_shown_and_cannot_be_changed() -> None:
    policy = FetchPolicy(extra={"Authorization": "Bearer key"})
    extra: Any = policy.extra

    assert "key" not in f"{policy!r} {policy}"
    with pytest.raises(TypeError):
        extra["Host"] = "evil"
    for copied in (copy.deepcopy(policy), pickle.loads(pickle.dumps(policy)), replace(policy)):
        assert copied == policy
        assert copied.extra == {"Authorization": "Bearer key"}
    assert policy != FetchPolicy()


@pytest.mark.parametrize("denied", ["8.8.8.8", "::ffff:8.8.8.8", "64:ff9b::808:808"])
@pytest.mark.parametrize("found", ["8.8.8.8", "::ffff:8.8.8.8", "64:ff9b::808:808"])
def test_an_address_that_is_denied_is_so_for_every_name_that_leads_to_it(
    denied: str, found: str
) -> None:
    rules = Rules(FetchPolicy(denied_hosts=(denied,)))

    with pytest.raises(FetchBlocked, match="the host is denied") as caught:
        rules.check_addresses("example.com", [ip_address("1.1.1.1"), ip_address(found)])

    assert caught.value.host == "example.com"
    rules.check_addresses("example.com", [ip_address("8.8.4.4")])


def test_fields_may_be_lists_and_are_kept_as_tuples() -> None:
    hosts: Any = ["example.com"]

    assert FetchPolicy(hosts).allowed_hosts == ("example.com",)


def test_a_strict_policy_reaches_listed_hosts_by_https_only() -> None:
    policy = FetchPolicy.strict(["example.com"], max_redirects=1)

    assert (policy.allowed_hosts, policy.allow_http, policy.max_redirects) == (
        ("example.com",),
        False,
        1,
    )
    with pytest.raises(FetchBlocked, match="only https"):
        Rules(policy).check(parse("http://example.com/"))


@pytest.mark.parametrize(
    ("hosts", "fields", "error"),
    [
        ([], {}, ValueError),
        ("example.com", {}, TypeError),
        (["example.com"], {"allow_http": True}, ValueError),
        (["example.com"], {"unknown": 1}, TypeError),
    ],
)
def test_a_strict_policy_that_is_not_strict_cannot_be_made(
    hosts: Any, fields: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        FetchPolicy.strict(hosts, **fields)


@pytest.mark.parametrize(
    ("denied", "url"),
    [
        ("Bücher.example", "https://xn--bcher-kva.example/"),
        ("xn--bcher-kva.example", "https://BÜCHER.example./"),
        ("*.example.com", "https://a.b.example.com/"),
        ("8.8.8.8", "https://8.8.8.8/"),
        ("8.8.8.8", "https://[::ffff:808:808]/"),
        ("[2606:4700::1111]", "https://[2606:4700:0:0::1111]/"),
        ("::ffff:8.8.8.8", "https://8.8.8.8/"),
        ("64:ff9b::808:808", "https://8.8.8.8/"),
    ],
)
def test_a_host_is_known_in_every_spelling(denied: str, url: str) -> None:
    with pytest.raises(FetchBlocked, match="denied"):
        Rules(FetchPolicy(denied_hosts=(denied,))).check(parse(url))


@pytest.mark.parametrize("url", ["https://example.com/", "https://evil-example.com/"])
def test_names_below_a_name_are_only_those_behind_a_dot(url: str) -> None:
    with pytest.raises(FetchBlocked, match="among those allowed"):
        Rules(FetchPolicy(("*.example.com",))).check(parse(url))


@pytest.mark.parametrize(
    "host",
    [
        *("localhost", "a.localhost", "db", "printer.local", "x.internal", "a.svc", "nas.lan"),
        *("router.home.arpa", "wiki.corp", "metadata.google.internal", "localhost.localdomain"),
    ],
)
def test_names_of_private_networks_are_refused_without_a_lookup(host: str) -> None:
    with pytest.raises(FetchBlocked, match="private network") as caught:
        Rules(FetchPolicy()).check(parse(f"http://{host}/"))

    assert caught.value.host == host
    Rules(FetchPolicy(allow_private_networks=True)).check(parse(f"http://{host}/"))


def test_a_host_that_is_allowed_is_no_exception_from_what_addresses_are_public() -> None:
    with pytest.raises(FetchBlocked, match="address not public"):
        Rules(FetchPolicy(("127.0.0.1",))).check(parse("http://127.0.0.1/"))


@pytest.mark.parametrize(
    ("media_type", "taken"),
    [
        ("text/html", True),
        ("application/json", True),
        ("application/ld+json", True),
        ("application/feed+xml", True),
        ("image/svg+xml", False),
        ("application/pdf", False),
        ("text/css", False),
    ],
)
def test_the_default_media_types(media_type: str, taken: bool) -> None:
    assert takes(DEFAULT_CONTENT_TYPES, media_type) is taken


def test_media_types_may_be_given_as_a_family() -> None:
    assert takes(("TEXT/*",), "text/css")
    assert not takes(("text/*",), "texts/css")
