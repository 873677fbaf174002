"""SearXNG: what becomes of each of its answers."""

from pathlib import Path
from typing import Any

import pytest

from lib.tools.builtin import SearchAnswer, SearchResult
from lib.tools.builtin.search.provider import SearchResults

from .searxng_kit import answering, refusal_of, search, served

REAL = (Path(__file__).parents[4] / "data" / "builtin" / "searxng-response.json").read_bytes()


async def test_a_real_answer_is_read() -> None:
    found = await search(answering(REAL), max_results=50)

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


async def test_only_as_many_results_come_as_are_wanted() -> None:
    assert [result.url[-9] for result in (await search(answering(REAL), max_results=3))] == [
        "0",
        "1",
        "2",
    ]


async def test_answers_of_older_servers_are_texts() -> None:
    found = await search(
        answering({"results": [], "answers": ["<b>42</b>", "", None, 7, {"answer": "x"}]})
    )

    assert found.answers == (SearchAnswer("42"), SearchAnswer("x"))


async def test_the_address_of_the_machine_is_not_shown_to_the_model() -> None:
    found, server = await served("ip")

    assert isinstance(found, SearchResults)
    assert (found.answers, server.queries[0].query) == ((), "ip")


async def test_an_infobox_may_hold_anything() -> None:
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

    assert (await search(answering({"infoboxes": boxes}))).answers == (
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
async def test_what_is_no_result_is_left_out(body: Any) -> None:
    found = await search(answering(body))

    assert (list(found), found.answers, found.unresponsive) == ([], (), ())


async def test_a_page_without_a_title_is_called_by_its_address() -> None:
    (result,) = await search(answering({"results": [{"url": "https://a.test/b", "title": 3}]}))

    assert result == SearchResult("https://a.test/b", "https://a.test/b")


async def test_an_empty_answer_of_dead_engines_is_no_empty_web() -> None:
    body = {"results": [], "unresponsive_engines": [["slow", "timeout"], ["boom"], [], 3]}

    error = await refusal_of(answering(body))

    assert (error.code, error.message) == (
        "unavailable",
        "nothing was found, and 2 engines did not answer",
    )


async def test_an_answer_of_many_megabytes_of_entries_is_read_in_little_time() -> None:
    entry = {"url": "javascript:x", "title": "<" * 300, "content": "&#" * 300}
    body = {"results": [entry] * 1_900, "answers": [{"answer": "<!--" * 500}] * 10}

    assert list(await search(answering(body))) == []
