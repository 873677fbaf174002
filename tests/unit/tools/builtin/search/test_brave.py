"""Brave Search: the requests that it gets, and what each answer becomes."""

import asyncio
import json
from typing import Any

import pytest

from fakes.search_server import API_KEY, BraveServer
from lib.testing.http import Hang, Reaction, Response
from lib.tools.builtin import BraveSearchProvider, SearchApiProvider, SearchResult

from .brave_kit import JSON, PAGES, refusal, served


def test_the_specification_s_name_is_the_same_class() -> None:
    assert SearchApiProvider is BraveSearchProvider


async def test_results_are_read_and_the_request_is_what_brave_wants() -> None:
    (found,), server = await served(country="de", safesearch="strict", max_results=3)

    (request,) = server.requests
    assert found == [
        SearchResult(
            "Rust & you", "https://rust.example/book", "Rust isn't iron <oxide>.", None, "brave"
        ),
        SearchResult("Oxide", "https://oxide.example/", "Of rust.", "2026-01-01", "brave"),
    ]
    assert request.path == "/res/v1/web/search"
    assert request.query == {
        "q": ["rust"],
        "count": ["3"],
        "text_decorations": ["false"],
        "result_filter": ["web"],
        "safesearch": ["strict"],
        "country": ["DE"],
    }
    assert request.headers["x-subscription-token"] == API_KEY
    assert request.headers["accept"] == "application/json"
    assert "gzip" in request.headers["accept-encoding"]


async def test_at_most_twenty_results_are_requested() -> None:
    _, server = await served(max_results=50)

    assert server.requests[0].query["count"] == ["20"]


async def test_markup_is_taken_off_even_where_brave_sends_it() -> None:
    entry = {
        "title": "Rust&#x27;s <strong>book</strong>",
        "url": "https://a.test/",
        "description": "<strong>Rust</strong> &amp; iron &lt;oxide&gt;",
        "age": "3 days ago",
        "extra_snippets": ["one <strong>more</strong>", "", None, *["x"] * 9],
    }
    body = {"type": "search", "web": {"results": [entry, {"url": "http://u:p@a.test/"}, "x"]}}

    (found,), _ = await served(script=[Response.of(body)])

    assert found == [
        SearchResult(
            "Rust's book",
            "https://a.test/",
            "Rust & iron <oxide>",
            "3 days ago",
            "brave",
            ("one more", "x", "x"),
        )
    ]


@pytest.mark.parametrize(
    "body", [{}, {"type": "search"}, {"web": None}, {"web": {"results": None}}]
)
async def test_no_web_is_no_results_and_no_error(body: Any) -> None:
    (found, nothing), _ = await served(["rust", "xyzzy"], script=[Response.of(body), None])

    assert (found, nothing) == ([], [])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"safesearch": "on"}, "safesearch is"),
        ({"country": "DEU"}, "country is"),
        ({"country": "d&"}, "country is"),
        ({"timeout_s": -1}, "timeout_s is above 0"),
        ({"base_url": "https://k:s@brave.test"}, "base_url"),
    ],
)
def test_what_brave_could_only_refuse_is_refused_at_once(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        BraveSearchProvider(API_KEY, **options)


ABOUT_NOTHING: Any = {"code": "VALIDATION", "meta": {"errors": [{"loc": None}, 3]}}


@pytest.mark.parametrize("body", [{}, {"error": None}, {"error": ABOUT_NOTHING}])
async def test_another_422_is_about_the_query(body: Any) -> None:
    error = await refusal(Response.of(body, 422))

    assert (error.code, error.message) == (
        "invalid_arguments",
        "Brave Search refused the query (status 422): put it otherwise",
    )


@pytest.mark.parametrize("query", ["x" * 401, "a " * 51, " "])
async def test_a_query_that_brave_would_refuse_is_not_sent(query: str) -> None:
    found, server = await served([query])

    assert found[0].code == "invalid_arguments"
    assert server.requests == []


@pytest.mark.parametrize(
    ("reaction", "message"),
    [
        (Response(status=302, headers={"location": "/x"}), "not followed"),
        (Response(status=500), "status 500"),
        (Response(headers={"content-type": "text/html"}, body=b"{}"), "JSON object"),
        (Response(headers=JSON, body=b"[1]"), "JSON object"),
    ],
)
async def test_other_answers_are_unavailable(reaction: Reaction, message: str) -> None:
    error = await refusal(reaction)

    assert error.code == "unavailable"
    assert message in error.message


async def test_an_answer_without_a_type_may_be_json() -> None:
    (found,), _ = await served(script=[Response(body=json.dumps({"web": {}}).encode())])

    assert found == []


async def test_a_search_can_be_cancelled_and_made_again() -> None:
    async def main() -> int:
        async with BraveServer(PAGES) as server:
            server.script.append(Hang())
            provider = BraveSearchProvider(API_KEY, base_url=server.base_url)
            first = asyncio.create_task(provider.search("rust"))
            while not server.requests:  # noqa: ASYNC110 - there is no event for it
                await asyncio.sleep(0)  # noqa: TID251 - until it is on its way
            first.cancel()
            with pytest.raises(asyncio.CancelledError):
                await first
            return len(await provider.search("rust"))

    assert (await main()) == 2
