"""Fetching: what an answer must be, what is sent, and what a failure is called."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from fakes.hostile_server import HostileServer
from lib.errors import FetchBlocked, ToolError
from lib.testing.aio import run
from lib.tools.builtin import FetchPolicy, SafeFetcher
from lib.tools.builtin.fetch.fetcher import Page

TLS = Path(__file__).parents[4] / "data" / "builtin" / "tls"


async def resolve(host: str, port: int) -> list[str]:
    return ["93.184.216.34"]


@pytest.fixture
def fetch(internet: Any) -> Any:
    def fetched(path: str, policy: FetchPolicy | None = None, **server: Any) -> Page:
        async def main() -> Page:
            fetcher = SafeFetcher(policy, resolver=resolve, verify=False)
            async with HostileServer(**server) as internet.server, fetcher:
                return await fetcher.fetch(f"http://srv.test/{path}")

        return run(main())

    return fetched


def test_a_page_names_its_url_and_its_redirects(fetch: Any) -> None:
    moved = {"http://srv.test/a": "/b?c", "http://srv.test/b?c": "/d#e"}

    assert fetch("a#f", redirects=moved) == Page(
        url="http://srv.test/d",
        requested_url="http://srv.test/a#f",
        status=200,
        content_type="text/plain",
        charset="utf-8",
        body=b"a page",
        truncated=False,
        hops=("http://srv.test/a", "http://srv.test/b?c"),
    )


def test_what_is_sent(fetch: Any, internet: Any) -> None:
    policy = FetchPolicy(user_agent="me/1")
    fetch("x?y=%20", policy)

    (request,) = internet.server.requests
    accept = request.headers["accept"]
    assert request.target == "/x?y=%20"
    assert accept.startswith("text/markdown, text/html;q=0.9")
    assert request.headers == {
        "host": "srv.test",
        "connection": "close",
        "user-agent": "me/1",
        "accept": accept,
        "accept-encoding": "gzip, deflate",
    }


KEY = {"X-Api-Key": "key", "accept": "application/json"}


@pytest.mark.parametrize(
    ("fields", "url", "gets"),
    [
        ({"extra_hosts": ("a.example.com",)}, "https://a.example.com/", True),
        ({"extra_hosts": ("*.example.com",)}, "https://a.example.com/", True),
        ({"extra_hosts": ("93.184.216.34",)}, "https://93.184.216.34/", True),
        ({"allowed_hosts": ("a.example.com",)}, "https://a.example.com/", True),
        ({"extra_hosts": ("a.example.com",)}, "http://a.example.com/", False),
        ({"extra_hosts": ("b.example.com",)}, "https://a.example.com/", False),
        ({"extra_hosts": ("example.com",)}, "https://a.example.com/", False),
        ({"extra_hosts": ("93.184.216.34",)}, "https://a.example.com/", False),
        ({}, "https://a.example.com/", False),
        (
            {"allowed_hosts": ("*.example.com",), "extra_hosts": ("b.example.com",)},
            "https://a.example.com/",
            False,
        ),
    ],
)
async def test_extra_headers_go_by_https_to_the_hosts_that_are_named(
    fields: Any, url: str, gets: bool, internet: Any
) -> None:
    policy = FetchPolicy(extra=KEY, **fields)
    server = HostileServer(certificate=TLS / "good.pem")
    fetcher = SafeFetcher(policy, resolver=resolve, verify=False)
    async with server as internet.server, fetcher:
        await fetcher.fetch(url)

    (request,) = internet.server.requests
    assert ("x-api-key" in request.headers) == gets
    assert (request.headers["accept"] == "application/json") == gets


def test_extra_headers_that_are_never_sent_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    SafeFetcher(FetchPolicy(extra={"X-Api-Key": "secret"}))

    assert "no host gets the extra headers (X-Api-Key): name it in extra_hosts" in caplog.text
    assert "secret" not in caplog.text
    caplog.clear()
    SafeFetcher(FetchPolicy(extra={"X-Api-Key": "secret"}, extra_hosts=("example.com",)))
    assert not caplog.text


@pytest.mark.parametrize(
    ("scenario", "code", "message"),
    [
        ("status_401_challenge", "denied", "the server answered 401"),
        ("status_404", "not_found", "the server answered 404"),
        ("retry_after", "rate_limited", "the server answered 429: try again in 30 s"),
        ("retry_after_huge", "rate_limited", "the server answered 429"),
        ("retry_after_odd", "unavailable", "the server answered 503"),
        ("status_500", "unavailable", "the server answered 500"),
        ("status_999", "failed", "the server's answer is not valid HTTP"),
        ("switch_101", "failed", "'srv.test' does not answer in valid HTTP"),
        ("many_headers", "too_large", "the server's answer has too many headers"),
        ("huge_header", "failed", "'srv.test' does not answer in valid HTTP"),
        ("huge_trailers", "failed", "'srv.test' does not answer in valid HTTP"),
        ("http_0_9", "failed", "'srv.test' does not answer in valid HTTP"),
        ("no_location", "failed", "the server answered 302 and not where to"),
        ("bad_gzip", "failed", "the server's answer is not compressed as it says"),
    ],
)
def test_what_fails_has_a_code_and_no_word_of_the_server(
    scenario: str, code: str, message: str, fetch: Any
) -> None:
    with pytest.raises(ToolError) as caught:
        fetch(scenario)

    assert (caught.value.code, caught.value.message) == (code, message)
    assert not isinstance(caught.value, FetchBlocked)


@pytest.mark.parametrize(
    ("scenario", "rule"),
    [
        ("two_locations", "a redirect to two places"),
        ("location_latin1", "the URL has a blank or a control character"),
        ("endless_redirect", "a redirect to the same URL"),
        ("ctype_two", "a content type that cannot be read"),
        ("ctype_garbage", "a content type that cannot be read"),
        ("ctype_image", "content of type image/png is not read"),
        ("ctype_svg", "content of type image/svg\\+xml is not read"),
        ("ctype_lie_binary", "the content is binary"),
        ("no_content_type_binary", "the content is binary"),
        ("unknown_encoding", "a content coding that was not requested"),
        ("fifty_encodings", "too many content codings"),
    ],
)
def test_what_the_policy_forbids_is_blocked(scenario: str, rule: str, fetch: Any) -> None:
    with pytest.raises(FetchBlocked, match=rule) as caught:
        fetch(scenario)

    assert caught.value.code == "blocked"


@pytest.mark.parametrize(
    ("scenario", "content_type", "body", "truncated"),
    [
        ("no_content_type_text", "text/plain", b"a page", False),
        ("ctype_twice_the_same", "text/plain", b"a page", False),
        ("ctype_problem_json", "application/problem+json", b'{"a": 1}', False),
        ("identity_encoding", "text/plain", b"a page", False),
        ("zlib_deflate", "text/plain", b"a deflated page", False),
        ("gzip_twice_in_two_lines", "text/plain", b"a page", False),
        ("partial", "text/plain", b"a page", True),
        ("gzip_members", "text/plain", b"one two", False),
        ("content_length_small", "text/plain", b"a p", False),
        ("content_length_large", "text/plain", b"a page", True),
        ("content_length_huge", "text/plain", b"a page", True),
        ("incomplete_chunks", "text/plain", b"a pageand", True),
        ("tiny_chunks", "text/plain", b"ab" * 5_000, False),
        ("cl_and_te", "text/plain", b"a page", False),
    ],
)
def test_what_is_odd_and_can_still_be_read(
    scenario: str, content_type: str, body: bytes, truncated: bool, fetch: Any
) -> None:
    page = fetch(scenario)

    assert (page.content_type, page.body, page.truncated) == (content_type, body, truncated)


def test_a_charset_is_found_however_it_is_written(fetch: Any) -> None:
    found = {name: fetch(name).charset for name in ("ctype_params", "ctype_twice_the_same")}

    assert found == {"ctype_params": "utf-8", "ctype_twice_the_same": "utf-8"}
    assert fetch("ctype_json").charset is None


def test_a_type_that_is_not_text_is_read_if_the_policy_names_it(fetch: Any) -> None:
    assert fetch("ctype_image", FetchPolicy(content_types=("image/*",))).body.startswith(b"\x89PNG")


def test_what_has_no_type_is_refused_where_text_is(fetch: Any) -> None:
    with pytest.raises(FetchBlocked, match="of a type not read"):
        fetch("no_content_type_text", FetchPolicy(content_types=("text/html",)))


@pytest.mark.parametrize("scenario", ["slow_headers", "slow_body", "silence"])
def test_one_deadline_is_over_everything(scenario: str, fetch: Any) -> None:
    with pytest.raises(ToolError) as caught:
        fetch(scenario, FetchPolicy(timeout_s=0.3))

    assert (caught.value.code, str(caught.value)) == (
        "timeout",
        "no complete answer within 0.3 s",
    )


async def test_the_deadline_is_over_all_redirects_together(internet: Any) -> None:
    async def slowly(host: str, port: int) -> list[str]:
        await asyncio.sleep(0.15)  # noqa: TID251 - a slow name server
        return ["93.184.216.34"]

    async def main() -> None:
        moved = {f"http://a{n}.example.com/": f"http://a{n + 1}.example.com/" for n in range(5)}
        async with HostileServer(redirects=moved) as internet.server:
            await SafeFetcher(FetchPolicy(timeout_s=0.4), resolver=slowly).fetch(
                "http://a0.example.com/"
            )

    with pytest.raises(ToolError, match=r"no complete answer within 0\.4 s"):
        await main()
    assert len(internet.server.requests) < 4


def test_redirects_end(fetch: Any, internet: Any) -> None:
    moved = {"http://srv.test/a": "/b", "http://srv.test/b": "/a"}

    with pytest.raises(FetchBlocked, match="too many redirects"):
        fetch("a", redirects=moved)
    assert len(internet.server.requests) == 6
    with pytest.raises(FetchBlocked, match="a redirect to the same URL"):
        fetch("a", redirects={"http://srv.test/a": "http://SRV.test:80/a#b"})
    assert len(internet.server.requests) == 1


def test_the_body_of_a_redirect_is_not_read_and_its_cookie_not_kept(
    fetch: Any, internet: Any
) -> None:
    fetch("a", redirects={"http://srv.test/a": "/b"})

    assert [request.connection for request in internet.server.requests] == [0, 1]
    assert all("cookie" not in request.headers for request in internet.server.requests)


async def test_a_redirect_to_another_origin_gets_no_extra_headers(internet: Any) -> None:
    internet.secure = True
    moved = {
        "https://a.example.com/": "https://a.example.com:8443/",
        "https://a.example.com:8443/": "https://b.example.com/",
        "https://b.example.com/": "https://a.example.com/b",
    }
    policy = FetchPolicy(
        extra={"X-Api-Key": "key"}, extra_hosts=("*.example.com",), allowed_ports=(443, 8443)
    )

    fetcher = SafeFetcher(policy, resolver=resolve, verify=False)
    server = HostileServer(redirects=moved, certificate=TLS / "good.pem")
    async with server as internet.server, fetcher:
        await fetcher.fetch("https://a.example.com/")

    got = ["x-api-key" in request.headers for request in internet.server.requests]
    assert got == [True, False, False, False]


async def test_hosts_that_redirects_lead_to_may_be_judged_by_the_caller(internet: Any) -> None:
    moved = {"http://a.com/": "http://a.com/b", "http://a.com/b": "http://c.com/"}
    judged: list[str] = []

    def may_visit(host: str) -> bool:
        judged.append(host)
        return False

    async def main() -> None:
        async with HostileServer(redirects=moved) as internet.server:
            fetcher = SafeFetcher(resolver=resolve)
            await fetcher.fetch("http://a.com/", may_visit=may_visit)

    with pytest.raises(FetchBlocked, match="needs approval"):
        await main()
    assert judged == ["c.com"]
    assert len(internet.server.requests) == 2


def test_what_cannot_be_a_fetcher() -> None:
    policy: Any = {"allow_http": False}
    transport: Any = object()

    with pytest.raises(TypeError, match="policy is a FetchPolicy, not dict"):
        SafeFetcher(policy)
    with pytest.raises(ValueError, match="not both"):
        SafeFetcher(transport=transport, proxy="http://127.0.0.1:1")
