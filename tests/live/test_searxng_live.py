"""A real SearXNG, named by the environment, with any engines or none.

    LIB_TEST_SEARXNG_URL=http://127.0.0.1:8888 pytest tests/live

Its settings list json under `search.formats`, and its limiter is off.
"""

import os

import httpx2
import pytest

from lib.errors import ToolError
from lib.tools.builtin import SearXNGProvider
from lib.tools.builtin.search.provider import SearchResults
from lib.tools.builtin.search.text import web_url

URL = os.environ.get("LIB_TEST_SEARXNG_URL", "")
pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(not URL, reason="LIB_TEST_SEARXNG_URL names no server"),
]


async def answer_to(parameters: dict[str, str]) -> httpx2.Response:
    async def main() -> httpx2.Response:
        async with httpx2.AsyncClient() as client:
            return await client.get(f"{URL}/search", params=parameters)

    return await main()


async def searched(query: str) -> SearchResults:
    try:
        return await SearXNGProvider(URL, timeout_s=20).search(query)
    except ToolError as error:
        assert error.message.startswith("nothing was found, and engines")  # noqa: PT017 - either will do
        return SearchResults()


async def test_a_search_brings_plain_results() -> None:
    for result in await searched("python"):
        assert web_url(result.url) == result.url
        assert "<b>" not in result.title + result.snippet


async def test_bangs_redirect_unless_they_are_taken_away() -> None:
    answer = await answer_to({"q": "my !!g secret", "format": "json"})

    assert (answer.status_code, answer.headers["location"][:23]) == (302, "https://www.google.com/")
    await searched("my !!g secret")


async def test_the_server_tells_clients_their_address_and_models_do_not_hear_it() -> None:
    answers = (await answer_to({"q": "ip", "format": "json"})).json()["answers"]

    assert [answer["engine"] for answer in answers] == ["plugin: self_info"]
    assert (await searched("ip")).answers == ()


async def test_refusals_are_what_the_stand_in_gives() -> None:
    assert (await answer_to({"q": "", "format": "json"})).status_code == 400
    assert (
        (await answer_to({"q": "x", "format": "xml"}))
        .headers["content-type"]
        .startswith("text/html")
    )
    assert (await answer_to({"q": "x", "format": "json", "safesearch": "7"})).json() == {
        "error": "Invalid value 7 for parameter safesearch"
    }
