"""Search through the API of Brave Search."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, cast

from lib._util.clock import SYSTEM_CLOCK, Clock
from lib._util.contexts import AsyncClosable
from lib.tools.builtin.search.endpoint import Answered, Endpoint, checked_address
from lib.tools.builtin.search.provider import SearchFailedError, SearchResult, SearchResults
from lib.tools.builtin.search.text import (
    MAX_NAME_CHARS,
    MAX_SNIPPET_CHARS,
    MAX_TITLE_CHARS,
    checked_max_results,
    checked_query,
    distinct,
    listed,
    objects,
    plain,
    web_url,
)

KEY_NAMES: Final = ("BRAVE_API_KEY", "BRAVE_SEARCH_API_KEY")
MAX_WORDS: Final = 50
MAX_COUNT: Final = 20
MAX_EXTRA: Final = 5

_WHAT: Final = "Brave Search"
_COUNTRY: Final = re.compile(r"[A-Z]{2}|ALL")
_KEY_REFUSED: Final = (
    f"{_WHAT} does not accept the key: the operator should check api_key or BRAVE_API_KEY"
)


class BraveSearchProvider(AsyncClosable):
    """Asks Brave Search. Queries leave the process; the key stands in a header and nowhere else.

    When the plan's requests of this second are used up, a search waits and asks once more, if its
    time allows; when those of the month are, it says so.

    Source: https://api-dashboard.search.brave.com/api-reference/web/search (2026-11).
    """

    def __init__(
        self,
        api_key: str | None = None,
        *,
        base_url: str = "https://api.search.brave.com",
        safesearch: Literal["off", "moderate", "strict"] | str = "moderate",  # noqa: PYI051 - the specification has a str
        country: str | None = None,
        timeout_s: float = 10.0,
        transport: Any = None,
        environment_proxy: bool = False,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Prepare a provider; nothing is opened before the first search.

        Args:
            api_key: defaults to BRAVE_API_KEY, then BRAVE_SEARCH_API_KEY.
            base_url: without `/res/v1/web/search`.
            safesearch: "off", "moderate" or "strict".
            country: two letters, or "ALL"; None for Brave's default.
            timeout_s: seconds for a whole search, both attempts and the wait between.
            transport: an httpx2 or httpx transport instead of the network.
            environment_proxy: whether a proxy of the environment (HTTPS_PROXY and so on) is used.
            clock: waits between the attempts.

        Raises:
            ValueError: no key, or an argument that Brave could only refuse.
        """
        if safesearch not in {"off", "moderate", "strict"}:
            raise ValueError(f"safesearch is 'off', 'moderate' or 'strict', not {safesearch!r}")
        self._parameters = {"safesearch": safesearch}
        if country is not None:
            if not _COUNTRY.fullmatch(country.upper()):
                raise ValueError(f"country is two letters or 'ALL', not {country!r}")
            self._parameters["country"] = country.upper()
        self._endpoint = Endpoint(
            f"{checked_address(base_url)}/res/v1/web/search",
            {"accept": "application/json", "x-subscription-token": _key(api_key)},
            what=_WHAT,
            timeout_s=timeout_s,
            transport=transport,
            environment_proxy=environment_proxy,
        )
        self._timeout_s, self._clock = timeout_s, clock

    async def search(self, query: str, *, max_results: int = 5) -> SearchResults:
        """Return the best pages.

        Args:
            query: at most 400 characters and 50 words.
            max_results: from 1 to 50; Brave sends at most 20.

        Raises:
            ToolError: `invalid_arguments` for a query that the service refuses; `timeout`,
                `rate_limited`, `too_large` or `unavailable` if Brave fails.
            ValueError: `max_results` is out of range.
        """
        parameters = {
            "q": _checked_words(checked_query(query)),
            "count": str(min(checked_max_results(max_results), MAX_COUNT)),
            "text_decorations": "false",
            "result_filter": "web",
            **self._parameters,
        }
        async with self._endpoint.deadline():
            answer = await self._get_with_one_retry(parameters)
        return SearchResults(distinct(_pages(_read(answer)), max_results))

    async def aclose(self) -> None:
        """Close the connections of this event loop; another search opens new ones."""
        await self._endpoint.aclose()

    async def _get_with_one_retry(self, parameters: Mapping[str, str]) -> Answered:
        began = self._clock.monotonic()
        answer = await self._endpoint.get(parameters)
        if answer.status != 429:  # noqa: PLR2004 - HTTP
            return answer
        delay_s = wait_s(answer.headers, answer.json())
        left_s = self._timeout_s - (self._clock.monotonic() - began)
        if delay_s is None or delay_s >= left_s:
            return answer
        await self._clock.sleep(delay_s)
        return await self._endpoint.get(parameters)


def _key(api_key: str | None) -> str:
    keys = [(key or "").strip() for key in (api_key, *map(os.environ.get, KEY_NAMES))]
    key = next(filter(None, keys), "")
    if not key:
        raise ValueError("BraveSearchProvider needs a key: set BRAVE_API_KEY or pass api_key=")
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise ValueError("the API key holds characters that no key has")
    return key


def _checked_words(query: str) -> str:
    words = len(query.split())
    if words > MAX_WORDS:
        message = f"the query has {words} words, {MAX_WORDS} are the most: shorten it"
        raise SearchFailedError("invalid_arguments", message)
    return query


def _read(answer: Answered) -> Mapping[str, Any]:
    body = answer.json()
    if answer.status != 200:  # noqa: PLR2004 - HTTP
        raise _failure(answer, body)
    if body is None:
        # It may be a challenge to a browser: nothing of it is shown.
        raise SearchFailedError("unavailable", f"{_WHAT} did not answer with a JSON object")
    return body


def _failure(answer: Answered, body: Mapping[str, Any] | None) -> SearchFailedError:
    if answer.status == 429:  # noqa: PLR2004 - HTTP
        if wait_s(answer.headers, body) is None:
            message = "the plan's searches of this month are used up: do not search again"
        else:
            message = "too many searches at once: search again later"
        return SearchFailedError("rate_limited", f"{_WHAT}: {message}")
    if answer.status in {401, 403} or _blames_the_key(body):
        return SearchFailedError("unavailable", _KEY_REFUSED)
    if answer.status in {400, 422}:
        message = f"{_WHAT} refused the query (status {answer.status}): put it otherwise"
        return SearchFailedError("invalid_arguments", message)
    if 300 <= answer.status < 400:  # noqa: PLR2004 - HTTP
        message = "redirects, which is not followed: the operator should check base_url"
        return SearchFailedError("unavailable", f"{_WHAT} {message}")
    return SearchFailedError("unavailable", f"{_WHAT} failed (status {answer.status})")


def _blames_the_key(body: Mapping[str, Any] | None) -> bool:
    """Return True if an error is about the key.

    It has status 422 as those of the query have. A wrong key has a code of its own; a missing one
    is a `VALIDATION` error that names the header. Some errors stand in a list.
    """
    for error in objects([(body or {}).get("error"), *listed((body or {}).get("errors"))]):
        if str(error.get("code")).startswith("SUBSCRIPTION_TOKEN"):
            return True
        meta: Any = error.get("meta")
        faults = objects(cast(dict[str, Any], meta).get("errors")) if isinstance(meta, dict) else []
        if any("x-subscription-token" in listed(fault.get("loc")) for fault in faults):
            return True
    return False


def _pages(body: Mapping[str, Any]) -> Iterator[SearchResult]:
    web: Any = body.get("web")  # not there if nothing was found
    for entry in objects(cast(dict[str, Any], web).get("results") if isinstance(web, dict) else []):
        url = web_url(entry.get("url"))
        if url is None:
            continue
        extra = [plain(text, MAX_SNIPPET_CHARS) for text in listed(entry.get("extra_snippets"))]
        yield SearchResult(
            title=plain(entry.get("title"), MAX_TITLE_CHARS) or url[:MAX_TITLE_CHARS],
            url=url,
            snippet=plain(entry.get("description"), MAX_SNIPPET_CHARS),
            published=plain(entry.get("page_age") or entry.get("age"), MAX_NAME_CHARS) or None,
            source="brave",
            extra=tuple(text for text in extra[:MAX_EXTRA] if text),
        )


SECOND_S: Final = 1.0
SHORT_S: Final = 60.0
"""What is counted over more than this is a quota, which is not waited for."""

_POLICY: Final = re.compile(r"\s*[0-9]+\s*;\s*w\s*=\s*([0-9]{1,9})\s*")
_NUMBER: Final = re.compile(r"\s*([0-9]{1,9})\s*")


@dataclass(frozen=True, slots=True)
class Window:
    """One of the spans of time over which requests are counted.

    Attributes:
        length_s: how long it is.
        limit: how many requests it takes; 0 is unlimited.
        remaining: how many are left.
        reset_s: when it begins anew.
    """

    length_s: float
    limit: float
    remaining: float
    reset_s: float

    @property
    def empty(self) -> bool:
        """True if no request is left in it."""
        return self.limit > 0 and self.remaining <= 0


def windows(headers: Mapping[str, str]) -> list[Window]:
    """Return the windows that an answer's headers tell of, none where they cannot be read.

    Source: https://api-dashboard.search.brave.com/documentation/guides/rate-limiting (2026-11):
    `X-RateLimit-Policy: 1;w=1, 15000;w=2592000`, and `-Limit`, `-Remaining` and `-Reset` in the
    same order.
    """
    resets = _numbers(headers, "reset", _NUMBER)
    lengths = _numbers(headers, "policy", _POLICY) or resets
    limits, remaining = (_numbers(headers, name, _NUMBER) for name in ("limit", "remaining"))
    return [Window(*window) for window in zip(lengths, limits, remaining, resets, strict=False)]


def wait_s(headers: Mapping[str, str], body: Mapping[str, Any] | None) -> float | None:
    """Return how long to wait after a 429, or None where a quota is used up.

    Args:
        headers: of the answer.
        body: its error, which holds the quota, too.
    """
    empty = [window for window in windows(headers) if window.empty]
    if _quota_used_up(body) or any(window.length_s > SHORT_S for window in empty):
        return None
    return max([SECOND_S, *(window.reset_s for window in empty)])


def _numbers(headers: Mapping[str, str], name: str, form: re.Pattern[str]) -> list[float]:
    header = headers.get(f"x-ratelimit-{name}", "")
    found = [form.fullmatch(part) for part in header.split(",")[:8]]
    numbers = [float(each[1]) for each in found if each]
    return numbers if len(numbers) == len(found) else []


def _quota_used_up(body: Mapping[str, Any] | None) -> bool:
    meta: Any = body
    for name in ("error", "meta"):
        meta = cast(dict[str, Any], meta).get(name) if isinstance(meta, dict) else None
    if not isinstance(meta, dict):
        return False
    limit, current = (cast(dict[str, Any], meta).get(f"quota_{n}") for n in ("limit", "current"))
    if not isinstance(limit, int) or not isinstance(current, int):
        return False
    return 0 < limit <= current
