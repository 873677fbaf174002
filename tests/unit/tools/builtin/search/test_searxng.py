"""SearXNG: the requests that it gets, and queries that are refused before."""

from dataclasses import asdict
from typing import Any

import pytest

from fakes.search_server import SearXNGQuery, SearXNGServer
from lib.errors import ToolError
from lib.tools.builtin import MetaSearchProvider, SearXNGProvider
from lib.tools.builtin.search.searxng import obedient

from .searxng_kit import PAGES, answering, refusal_of, served


def test_the_specification_s_name_is_the_same_class() -> None:
    assert MetaSearchProvider is SearXNGProvider


async def test_a_search_is_one_get_with_the_headers_that_the_limiter_wants() -> None:
    found, server = await served(
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


async def test_unset_options_are_not_sent() -> None:
    _, server = await served("größe & co")

    assert server.requests[0].query == {"q": ["größe & co"], "format": ["json"]}


async def test_a_server_below_a_path_is_searched_there() -> None:
    async def main() -> list[str]:
        async with SearXNGServer(PAGES) as server:
            await SearXNGProvider(f"{server.base_url}/sx/").search("rust")
            return [request.path for request in server.requests]

    assert (await main()) == ["/sx/search"]


@pytest.mark.parametrize(
    ("query", "sent"),
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
async def test_no_word_of_a_query_commands_the_server(query: str, sent: str) -> None:
    assert obedient(query) == sent
    found, server = await served(query)

    assert not isinstance(found, ToolError)
    assert [asdict(each) for each in server.queries] == [asdict(SearXNGQuery(sent))]


async def test_a_query_of_nothing_but_commands_is_empty() -> None:
    assert (await refusal_of(answering(b""), "!! : !")).code == "invalid_arguments"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"safesearch": 3}, "safesearch is 0, 1, 2 or None"),
        ({"language": "de&q=x"}, "language is a code"),
        ({"timeout_s": 0}, "timeout_s is above 0"),
    ],
)
def test_what_the_server_could_only_refuse_is_refused_at_once(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
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
