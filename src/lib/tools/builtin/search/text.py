"""Results of engines as plain text and addresses. Everything is linear in what comes in."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from html import unescape
from typing import Any, Final, cast

from lib.content.hygiene import clean
from lib.content.links import with_ascii_host
from lib.tools.builtin.search.provider import SearchFailedError, SearchResult

MAX_TITLE_CHARS: Final = 200
MAX_SNIPPET_CHARS: Final = 1_000
MAX_URL_CHARS: Final = 2_000
MAX_NAME_CHARS: Final = 60
MAX_QUERY_CHARS: Final = 400
"""The limit of Brave, and more than a question needs: a query leaves the house."""
MAX_RESULTS: Final = 50

_RAW_PER_CHAR: Final = 10
_TAG: Final = re.compile(r"</?[A-Za-z!?][^<>]*>")
_BREAK: Final = re.compile(r"(?i)</?(?:br|p|div|li|tr|td|h[1-6])\b[^<>]*>")
# `unescape` raises ValueError from 4,301 digits on.
_HUGE_REFERENCE: Final = re.compile(r"&#(?:[0-9]{8,}|[xX][0-9A-Fa-f]{8,});?")
# Refused is whatever two readers could read differently: no user, backslash or white space.
_URL: Final = re.compile(
    r"(?i)https?://(?:[^\s/?#@\\<>\"^`{|}%\[\]:]+|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?(?:[/?#][^\s\\<>\"]*)?"
)
_ORIGIN: Final = re.compile(r"(?i)(https?://[^/?#]*)([^#]*)")


def plain(value: Any, max_chars: int) -> str:
    """Return text that may hold markup as one line without it; "" for what is no text."""
    if not isinstance(value, str):
        return ""
    text = _uncommented(value[: max_chars * _RAW_PER_CHAR])
    text = _TAG.sub("", _BREAK.sub(" ", text))
    text = unescape(_HUGE_REFERENCE.sub("\ufffd", text))
    return one_line(text, max_chars)


def one_line(text: str, max_chars: int) -> str:
    """Return the text cleaned, on one line, and cut with "…" where it is longer."""
    line = " ".join(clean(text).split())
    return line if len(line) <= max_chars else f"{line[: max_chars - 1].rstrip()}…"


def web_url(value: Any) -> str | None:
    """Return an address if a result may have it, with its host in ASCII, else None."""
    if not isinstance(value, str) or len(value) > MAX_URL_CHARS or clean(value) != value:
        return None
    return with_ascii_host(value) if _URL.fullmatch(value) else None


def distinct(results: Iterable[SearchResult], max_results: int) -> Iterator[SearchResult]:
    """Yield the first `max_results` of the results with different pages."""
    seen: set[str] = set()
    for result in results:
        if len(seen) == max_results:
            return
        page = _page(result.url)
        if page not in seen:
            seen.add(page)
            yield result


def checked_query(query: str) -> str:
    """Return the query cleaned and on one line.

    Raises:
        ToolError: it is empty or too long.
    """
    words = " ".join(clean(query).split())
    if not words:
        raise SearchFailedError("invalid_arguments", "the query is empty: say what to search for")
    if len(words) > MAX_QUERY_CHARS:
        message = (
            f"the query has {len(words)} characters, {MAX_QUERY_CHARS} are the most: shorten it"
        )
        raise SearchFailedError("invalid_arguments", message)
    return words


def checked_max_results(max_results: int) -> int:
    """Return the number.

    Raises:
        ValueError: it is not from 1 to `MAX_RESULTS`.
    """
    if not 1 <= max_results <= MAX_RESULTS:
        raise ValueError(f"max_results is from 1 to {MAX_RESULTS}, not {max_results}")
    return max_results


def listed(value: Any) -> list[Any]:
    """Return the value if it is a list, else none of it."""
    return cast(list[Any], value) if isinstance(value, list) else []


def objects(value: Any) -> list[dict[str, Any]]:
    """Return the objects of the value if it is a list."""
    return [cast(dict[str, Any], entry) for entry in listed(value) if isinstance(entry, dict)]


def _uncommented(text: str) -> str:
    """Return the text without comments; one that never ends reaches to the end."""
    kept: list[str] = []
    while text:
        before, _, comment = text.partition("<!--")
        kept.append(before)
        text = comment.partition("-->")[2]
    return "".join(kept)


def _page(url: str) -> str:
    """Return what is equal for two spellings of one page."""
    found = _ORIGIN.match(url)
    origin, rest = found.groups() if found else (url, "")
    return origin.casefold() + rest.rstrip("/")
