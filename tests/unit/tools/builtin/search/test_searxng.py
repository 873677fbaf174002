"""SearXNG: what it is asked, and what becomes of each of its answers."""

import gzip
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import httpx2
import pytest

from lib.errors import ToolError
from lib.testing.aio import run
from lib.testing.http import Drop, Hang, Reaction, Response
from lib.testing.search_server import AskedOfSearXNG, SearXNGServer, WebPage
from lib.tools.builtin import MetaSearchProvider, SearchAnswer, SearchResult, SearXNGProvider
from lib.tools.builtin.search.provider import SearchResults
from lib.tools.builtin.search.searxng import obedient

REAL = (Path(__file__).parents[4] / "data" / "builtin" / "searxng-response.json").read_bytes()
JSON = {"content-type": "application/json"}
PAGES = [
    WebPage(url="https://rust.example/book", title="The Rust book", text="Learn <b>rust</b>."),
    WebPage(
        url="https://oxide.example/", title="Oxide", text="Rust on iron.", published="2026-01-01"
    ),
]


def answering(body: bytes | Any, *, headers: dict[str, str] = JSON) -> SearXNGProvider:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()

    def serve(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers=headers, content=content)

    return SearXNGProvider("http://sx.test", transport=httpx2.MockTransport(serve))


def search(provider: SearXNGProvider, query: str = "x", max_results: int = 5) -> SearchResults:
    return run(provider.search(query, max_results=max_results))


def refusal_of(provider: SearXNGProvider, query: str = "x") -> ToolError:
    with pytest.raises(ToolError) as caught:
        search(provider, query)
    assert caught.value.__cause__ is None
    return caught.value


def served(
    query: str = "rust",
    *,
    script: Sequence[Reaction] = (),
    server: Callable[[], SearXNGServer] = lambda: SearXNGServer(PAGES),
    **options: Any,
) -> tuple[SearchResults | ToolError, SearXNGServer]:
    async def main() -> tuple[SearchResults | ToolError, SearXNGServer]:
        async with server() as searxng:
            searxng.script.extend(script)
            provider = SearXNGProvider(searxng.base_url, **options)
            try:
                return await provider.search(query), searxng
            except ToolError as error:
                return error, searxng
            finally:
                await provider.aclose()

    return run(main())


def test_the_specification_s_name_is_the_same_class() -> None:
    assert MetaSearchProvider is SearXNGProvider


# -- what it is asked --------------------------------------------------------------------------


def test_a_search_is_one_get_with_the_headers_that_the_limiter_wants() -> None:
    found, server = served(
        categories="general,it",
        language="de-DE",
        safesearch=2,
        server=lambda: SearXNGServer(PAGES, limiter=True),
    )

    (request,) = server.requests
    assert isinstance(found, list)
    assert [result.url for result in found] == [page.url for page in PAGES]
    assert (request.method, request.path) == ("GET", "/search")
    assert request.query == {
        "q": ["rust"],
        "format": ["json"],
        "categories": ["general,it"],
        "language": ["de-DE"],
        "safesearch": ["2"],
    }
    assert request.headers["accept-language"] == "de-DE"
    assert request.headers["user-agent"].startswith("lib-agents/")


def test_nothing_is_asked_that_was_not_given() -> None:
    _, server = served("größe & co")

    assert server.requests[0].query == {"q": ["größe & co"], "format": ["json"]}


def test_a_server_below_a_path_is_asked_there() -> None:
    async def main() -> list[str]:
        async with SearXNGServer(PAGES) as server:
            await SearXNGProvider(f"{server.base_url}/sx/").search("rust")
            return [request.path for request in server.requests]

    assert run(main()) == ["/sx/search"]


@pytest.mark.parametrize(
    ("query", "asked"),
    [
        ("!!g my secret", "g my secret"),
        ("my !!g secret", "my g secret"),
        ("secret !!", "secret"),
        ("!wp rust", "wp rust"),
        (":de rust", "de rust"),
        ("rust <3", "rust 3"),
        ("!:!!g x", "g x"),
        ("!<5 :<<7 <!!g", "5 <<7 <!!g"),
        ("\u3000!!g\u00a0:fr\u2028!lt x", "g fr lt x"),
        ("\u200b!!g x", "g x"),
        ("i <3 c++ a!b 10:30 <div> c#", "i 3 c++ a!b 10:30 <div> c#"),
    ],
)
def test_no_word_of_a_query_commands_the_server(query: str, asked: str) -> None:
    assert obedient(query) == asked
    found, server = served(query)

    assert not isinstance(found, ToolError)
    assert [asdict(each) for each in server.asked] == [asdict(AskedOfSearXNG(asked))]


def test_the_fake_obeys_what_is_not_taken_away() -> None:
    async def main() -> tuple[int, str, AskedOfSearXNG]:
        async with SearXNGServer(PAGES) as server, httpx2.AsyncClient() as client:
            parameters = {"q": "!!g my :de !wp secret <3 !!", "format": "json"}
            answer = await client.get(f"{server.base_url}/search", params=parameters)
            return answer.status_code, answer.headers["location"], server.asked[0]

    assert run(main()) == (
        302,
        "https://www.google.com/search?q=my%20secret",
        AskedOfSearXNG("my secret", ["wp"], ["de"], 3, "g", lucky=True),
    )


def test_a_query_of_nothing_but_commands_is_empty() -> None:
    assert refusal_of(answering(b""), "!! : !").code == "invalid_arguments"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"safesearch": 3}, "safesearch is 0, 1, 2 or None"),
        ({"language": "de&q=x"}, "language is a code"),
        ({"timeout_s": 0}, "timeout_s is above 0"),
    ],
)
def test_what_the_server_could_only_refuse_is_refused_at_once(
    options: dict[str, Any], told: str
) -> None:
    with pytest.raises(ValueError, match=told):
        SearXNGProvider("http://sx.test", **options)


@pytest.mark.parametrize(
    "address",
    [
        "",
        "sx.test",
        "ftp://sx.test",
        "http://",
        "http://sx.test:0",
        "http://sx.test:x",
        "http://sx.test/?a=b",
        "http://sx.test/#a",
        "http://sx.test\\x",
        "http://sx .test",
        "http://user:hunter2@sx.test",
    ],
)
def test_an_address_that_is_none_is_refused_without_being_repeated(address: str) -> None:
    with pytest.raises(ValueError, match="base_url") as caught:
        SearXNGProvider(address)

    assert "hunter2" not in str(caught.value)


# -- what it answers ---------------------------------------------------------------------------


def test_a_real_answer_is_read() -> None:
    found = search(answering(REAL), max_results=50)

    assert len(found) == 12
    assert found[0] == SearchResult(
        title="Doc 0 python ans info safesearch=0",
        url="https://example.org/0?q=1&x=é",
        snippet="Content 0 & more x",
        published="2026-01-01T00:00:00",
        source="localt",
    )
    assert found.answers == (
        SearchAnswer("42 is the answer", "https://example.org/a", "localt"),
        SearchAnswer("Title: Info body. born: 1999", "https://example.org/i", "localt"),
    )
    assert found.unresponsive == (
        "boom (unexpected crash)",
        "dead (unexpected crash)",
        "limited (too many requests)",
        "slow (timeout)",
    )


def test_only_as_many_results_come_as_are_wanted() -> None:
    assert [result.url[-9] for result in search(answering(REAL), max_results=3)] == ["0", "1", "2"]


def test_answers_of_older_servers_are_texts() -> None:
    found = search(
        answering({"results": [], "answers": ["<b>42</b>", "", None, 7, {"answer": "x"}]})
    )

    assert found.answers == (SearchAnswer("42"), SearchAnswer("x"))


def test_a_model_is_not_told_the_address_of_the_machine_it_runs_on() -> None:
    found, server = served("ip")

    assert isinstance(found, SearchResults)
    assert (found.answers, server.asked[0].query) == ((), "ip")


def test_an_infobox_may_hold_anything() -> None:
    boxes = [
        {
            "infobox": "Rust",
            "content": None,
            "urls": [{"url": "javascript:x"}, {"url": "http://a.test/"}],
        },
        {"content": "only text.", "attributes": [{"label": "a"}, "b", {"value": "c"}]},
        {"infobox": 3},
        "box",
    ]

    assert search(answering({"infoboxes": boxes})).answers == (
        SearchAnswer("Rust", "http://a.test/"),
        SearchAnswer("only text"),
    )


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"results": None},
        {"results": {}},
        {"results": ["x", None, 3, {}, {"url": None}, {"url": {"a": 1}}]},
        {"results": [{"url": "javascript:alert(1)", "title": "x"}]},
        {"results": [{"url": "https://u:p@example.org/", "title": "x"}]},
        {"answers": "x", "infoboxes": 3, "unresponsive_engines": "down"},
    ],
)
def test_what_is_no_result_is_left_out(body: Any) -> None:
    found = search(answering(body))

    assert (list(found), found.answers, found.unresponsive) == ([], (), ())


def test_a_page_without_a_title_is_called_by_its_address() -> None:
    (result,) = search(answering({"results": [{"url": "https://a.test/b", "title": 3}]}))

    assert result == SearchResult("https://a.test/b", "https://a.test/b")


def test_an_empty_answer_of_dead_engines_is_no_empty_web() -> None:
    body = {"results": [], "unresponsive_engines": [["slow", "timeout"], ["boom"], [], 3]}

    error = refusal_of(answering(body))

    assert (error.code, error.message) == (
        "unavailable",
        "nothing was found, and engines did not answer: slow (timeout), boom",
    )


# -- how it fails ------------------------------------------------------------------------------


def test_a_server_without_json_says_what_its_operator_must_do() -> None:
    error, _ = served(server=lambda: SearXNGServer(PAGES, formats=["html"]))

    assert isinstance(error, ToolError)
    assert error.code == "unavailable"
    assert "must list json under search.formats" in error.message


def test_html_with_status_200_is_no_result() -> None:
    error = refusal_of(answering(b"<!DOCTYPE html>secret", headers={"content-type": "text/html"}))

    assert error.code == "unavailable"
    assert "secret" not in error.message


@pytest.mark.parametrize(
    "body", [b"", b"[]", b'"x"', b"{", b"[" * 500_000, b'{"a":' * 200_000, b"\xff", b"1" * 9_000]
)
def test_what_is_no_json_object_is_no_result(body: bytes) -> None:
    assert refusal_of(answering(body)).code == "unavailable"


def test_the_limiter_s_refusal_tells_the_operator_the_way_out() -> None:
    async def main() -> ToolError:
        async with SearXNGServer(PAGES, limiter=True) as server:
            provider = SearXNGProvider(server.base_url)
            for _ in range(4):
                await provider.search("rust")
            with pytest.raises(ToolError) as caught:
                await provider.search("rust")
            return caught.value

    error = run(main())
    assert error.code == "rate_limited"
    assert "pass-list" in error.message


@pytest.mark.parametrize(
    ("status", "told"),
    [
        (301, "redirects"),
        (302, "redirects"),
        (308, "redirects"),
        (204, "failed"),
        (400, "check categories"),
        (404, "check base_url"),
        (500, "failed"),
        (503, "failed"),
    ],
)
def test_a_status_that_is_not_200_is_an_error_that_quotes_nothing(status: int, told: str) -> None:
    headers = {"location": "https://evil.test/secret", **JSON}
    body = b"" if status == 204 else b'{"error":"secret"}'

    error, server = served(script=[Response(status=status, headers=headers, body=body)])

    assert isinstance(error, ToolError)
    assert (error.code, len(server.requests)) == ("unavailable", 1)
    assert told in error.message
    assert "secret" not in error.message


def test_redirects_are_not_followed() -> None:
    async def main() -> int:
        async with SearXNGServer(PAGES) as other, SearXNGServer(PAGES) as server:
            headers = {"location": f"{other.base_url}/search?q=rust&format=json"}
            server.script.append(Response(status=302, headers=headers))
            with pytest.raises(ToolError, match="not followed"):
                await SearXNGProvider(server.base_url).search("rust")
            return len(other.requests)

    assert run(main()) == 0


@pytest.mark.parametrize("packed", [False, True])
def test_an_endless_answer_is_given_up(packed: bool) -> None:
    body = b'{"results":"' + b"x" * 5_000_000 + b'"}'
    headers = {**JSON, "content-encoding": "gzip"} if packed else JSON

    error, _ = served(
        script=[Response(headers=headers, body=gzip.compress(body) if packed else body)]
    )

    assert isinstance(error, ToolError)
    assert error.code == "too_large"


@pytest.mark.parametrize("reaction", [Drop(), Response(headers=JSON, body=b'{"resu', cut=True)])
def test_a_broken_connection_is_unavailable_and_names_no_address(reaction: Reaction) -> None:
    if isinstance(reaction, Response):
        reaction = Response(headers={**JSON, "connection": "close"}, body=b'{"resu', cut=True)
    error, _ = served(script=[reaction])

    assert isinstance(error, ToolError)
    assert (error.code, error.message) == (
        "unavailable",
        "the SearXNG server could not be reached",
    )
    assert error.__cause__ is None


def test_a_server_that_does_not_answer_costs_the_time_limit_and_no_more() -> None:
    error, _ = served(script=[Hang()], timeout_s=0.2)

    assert isinstance(error, ToolError)
    assert (error.code, error.message) == (
        "timeout",
        "the SearXNG server did not answer within 0.2 s",
    )


def test_an_answer_of_many_megabytes_of_entries_is_read_in_little_time() -> None:
    entry = {"url": "javascript:x", "title": "<" * 300, "content": "&#" * 300}
    body = {"results": [entry] * 1_900, "answers": [{"answer": "<!--" * 500}] * 10}

    assert list(search(answering(body))) == []


def test_the_fake_refuses_as_the_real_one_does() -> None:
    async def main() -> list[tuple[int, Any]]:
        async with SearXNGServer(PAGES) as server, httpx2.AsyncClient() as client:
            base, answers = server.base_url, list[httpx2.Response]()
            for path in (
                "/?q=rust",
                "/search?format=json&q=",
                "/search?format=json&q=x&safesearch=7",
                "/search?format=xml&q=x",
            ):
                answers.append(await client.get(base + path))
            server.limiter = True
            answers.append(await client.get(f"{base}/search?format=json&q=x"))
            return [
                (each.status_code, each.headers.get("location") or each.text) for each in answers
            ]

    assert run(main()) == [
        (308, "/search?q=rust"),
        (400, '{"error": "No query"}'),
        (400, '{"error": "Invalid value 7 for parameter safesearch"}'),
        (200, "<!DOCTYPE html><html><body>results</body></html>"),
        (429, "Too Many Requests"),
    ]
