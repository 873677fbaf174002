"""Search through SearXNG, on a server that the operator runs."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

from lib._util.contexts import AsyncClosable
from lib.tools.builtin.search.endpoint import Answered, Endpoint, checked_address
from lib.tools.builtin.search.provider import (
    SearchAnswer,
    SearchFailedError,
    SearchResult,
    SearchResults,
)
from lib.tools.builtin.search.text import (
    MAX_NAME_CHARS,
    MAX_SNIPPET_CHARS,
    MAX_TITLE_CHARS,
    checked_max_results,
    checked_query,
    distinct,
    listed,
    objects,
    one_line,
    plain,
    web_url,
)

_log = logging.getLogger(__name__)

MAX_ANSWERS: Final = 5
MAX_UNRESPONSIVE: Final = 10
_WHAT: Final = "the SearXNG server"
_LANGUAGE: Final = re.compile(r"[A-Za-z]{2,4}([-_][A-Za-z0-9]{2,8}){0,3}")
_REFUSALS: Final[Mapping[int, str]] = {
    400: "refused the request: its operator should check categories, language and safesearch",
    403: "refused to answer as JSON: its operator must list json under search.formats",
    404: "has no search there: its operator should check base_url",
    429: (
        "limits the rate of requests: its operator should pass-list this client "
        "in limiter.toml, or switch the limiter off"
    ),
}


class SearXNGProvider(AsyncClosable):
    """Asks a SearXNG server.

    Its address is trusted and may be private; the addresses that it finds are not. The words of a
    query cannot command the server: what "!", ":" and "<" mean to it is taken away. An instance
    must list `json` under `search.formats` in its settings.

    Source: https://docs.searxng.org/dev/search_api.html and `searx/query.py` (2026-08).
    """

    def __init__(
        self,
        base_url: str,
        *,
        categories: str | None = None,
        language: str | None = None,
        safesearch: int | None = None,
        timeout_s: float = 10.0,
        transport: Any = None,
        environment_proxy: bool = False,
    ) -> None:
        """Prepare a provider; nothing is opened before the first search.

        Args:
            base_url: where the server is, without `/search`.
            categories: some of the server's, separated by commas; None for its default.
            language: such as "de", "en-US" or "all"; None for the server's default.
            safesearch: 0 is off, 1 moderate, 2 strict; None for the server's default.
            timeout_s: seconds for a whole search.
            transport: an httpx2 or httpx transport instead of the network.
            environment_proxy: whether a proxy of the environment (HTTPS_PROXY and so on) is used.

        Raises:
            ValueError: an argument that the server could only refuse.
        """
        if safesearch not in {None, 0, 1, 2}:
            raise ValueError(f"safesearch is 0, 1, 2 or None, not {safesearch!r}")
        if language is not None and not _LANGUAGE.fullmatch(language):
            raise ValueError(f"language is a code such as 'de' or 'en-US', not {language!r}")
        options = {
            "categories": categories,
            "language": language,
            "safesearch": None if safesearch is None else str(safesearch),
        }
        self._parameters = {name: value for name, value in options.items() if value is not None}
        self._endpoint = Endpoint(
            f"{checked_address(base_url)}/search",
            # The limiter turns away who does not take HTML or names no language.
            {
                "accept": "application/json, text/html;q=0.1",
                "accept-language": (language or "en").replace("_", "-").replace("all", "en"),
            },
            what=_WHAT,
            timeout_s=timeout_s,
            transport=transport,
            environment_proxy=environment_proxy,
        )

    async def search(self, query: str, *, max_results: int = 5) -> SearchResults:
        """Return the best pages, and what engines answered at once.

        Args:
            query: at most 400 characters.
            max_results: from 1 to 50; a server sends some 10 to 30.

        Raises:
            ToolError: `invalid_arguments` for a query that the server refuses; `timeout`,
                `rate_limited`, `too_large` or `unavailable` if the server or all its engines fail.
            ValueError: `max_results` is out of range.
        """
        wanted = checked_max_results(max_results)
        parameters = {"q": obedient(query), "format": "json", **self._parameters}
        async with self._endpoint.deadline():
            answer = await self._endpoint.get(parameters)
        found = _results(_read(answer), wanted)
        if not found and not found.answers and found.unresponsive:
            _log.info("engines of %s that did not answer: %s", _WHAT, found.unresponsive)
            message = f"nothing was found, and {len(found.unresponsive)} engines did not answer"
            raise SearchFailedError("unavailable", message)
        return found

    async def aclose(self) -> None:
        """Close the connections of this event loop; another search opens new ones."""
        await self._endpoint.aclose()


def obedient(query: str) -> str:
    """Return the query without the words that command a SearXNG server, wherever they stand.

    "!!g x" would send the client to another site, "!x" choose an engine, ":x" a language, and "<9"
    a time limit.

    Raises:
        ToolError: nothing is left of it, or it is too long.
    """
    words = (_harmless(word) for word in checked_query(query).split())
    return checked_query(" ".join(word for word in words if word))


def _harmless(word: str) -> str:
    word = word.lstrip("!:")
    return word[1:] if word.startswith("<") and word[1:].isdigit() else word


def _read(answer: Answered) -> Mapping[str, Any]:
    if answer.status == 429:  # noqa: PLR2004 - HTTP
        raise SearchFailedError("rate_limited", f"{_WHAT} {_REFUSALS[429]}")
    if 300 <= answer.status < 400:  # noqa: PLR2004 - HTTP
        message = f"{_WHAT} redirects, which is not followed: its operator should check base_url"
        raise SearchFailedError("unavailable", message)
    if answer.status != 200:  # noqa: PLR2004 - HTTP
        message = _REFUSALS.get(answer.status, "failed")
        raise SearchFailedError("unavailable", f"{_WHAT} {message} (status {answer.status})")
    body = answer.json()
    if body is None:
        message = f"{_WHAT} did not answer with a JSON object: its operator should check base_url"
        raise SearchFailedError("unavailable", message)
    return body


def _results(body: Mapping[str, Any], wanted: int) -> SearchResults:
    return SearchResults(
        distinct(_pages(body), wanted),
        answers=_answers(body),
        unresponsive=_unresponsive(body),
    )


def _pages(body: Mapping[str, Any]) -> Iterator[SearchResult]:
    for entry in objects(body.get("results")):
        url = web_url(entry.get("url"))
        if url is None:  # as of tables of keys and values, which have none
            continue
        yield SearchResult(
            title=plain(entry.get("title"), MAX_TITLE_CHARS) or url[:MAX_TITLE_CHARS],
            url=url,
            snippet=plain(entry.get("content"), MAX_SNIPPET_CHARS),
            published=plain(entry.get("publishedDate"), MAX_NAME_CHARS) or None,
            source=plain(entry.get("engine"), MAX_NAME_CHARS),
        )


def _answers(body: Mapping[str, Any]) -> list[SearchAnswer]:
    """Return the answers, texts in older versions, then the infoboxes.

    Those of `self_info` tell a client its own address, maybe an internal one: they are left out.
    """
    answers = [_answer(entry) for entry in listed(body.get("answers"))[:MAX_ANSWERS]]
    boxes = [_infobox(box) for box in objects(listed(body.get("infoboxes"))[:MAX_ANSWERS])]
    shown = [answer for answer in (*answers, *boxes) if answer.text]
    return [answer for answer in shown if "self_info" not in answer.source][:MAX_ANSWERS]


def _answer(entry: Any) -> SearchAnswer:
    if not isinstance(entry, dict):
        return SearchAnswer(plain(entry, MAX_SNIPPET_CHARS))
    fields = cast(dict[str, Any], entry)
    return SearchAnswer(
        plain(fields.get("answer"), MAX_SNIPPET_CHARS),
        web_url(fields.get("url")),
        plain(fields.get("engine"), MAX_NAME_CHARS),
    )


def _infobox(box: Mapping[str, Any]) -> SearchAnswer:
    name = plain(box.get("infobox"), MAX_TITLE_CHARS)
    facts = [
        f"{label}: {value}"
        for fact in objects(listed(box.get("attributes"))[:MAX_UNRESPONSIVE])
        if (label := plain(fact.get("label"), MAX_NAME_CHARS))
        and (value := plain(fact.get("value"), MAX_TITLE_CHARS))
    ]
    about = [plain(box.get("content"), MAX_SNIPPET_CHARS), *facts]
    details = ". ".join(part.rstrip(".") for part in about if part)
    text = ": ".join(part for part in (name, details) if part)
    pages = [box.get("id"), *(link.get("url") for link in objects(box.get("urls")))]
    urls = [url for url in map(web_url, pages) if url]
    return SearchAnswer(
        one_line(text, MAX_SNIPPET_CHARS),
        urls[0] if urls else None,
        plain(box.get("engine"), MAX_NAME_CHARS),
    )


def _unresponsive(body: Mapping[str, Any]) -> list[str]:
    """Return names with reasons, which come as pairs."""
    pairs = [listed(entry) for entry in listed(body.get("unresponsive_engines"))[:MAX_UNRESPONSIVE]]
    named = [[plain(part, MAX_NAME_CHARS) for part in pair[:2]] for pair in pairs]
    return [f"{pair[0]} ({pair[-1]})" if len(pair) > 1 else pair[0] for pair in named if pair]
