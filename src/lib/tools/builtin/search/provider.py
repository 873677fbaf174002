"""The protocol of search providers, and their results."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from lib.errors import ToolError


class SearchFailedError(ToolError):
    """A search could not be made; nothing in the message is a server's."""


@dataclass(frozen=True, slots=True)
class SearchResult:
    """One page that was found; every text is plain, on one line, and written by strangers.

    Attributes:
        title: at most 200 characters, without markup.
        url: http or https, without a user or password; what is there was not checked.
        snippet: at most 1,000 characters, without markup; may be empty.
        published: when, as the provider says it: an ISO date or words such as "3 days ago".
        source: who found it: an engine of SearXNG, or "brave".
        extra: further excerpts, each as long as a snippet may be.
    """

    title: str
    url: str
    snippet: str = ""
    published: str | None = None
    source: str = ""
    extra: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SearchAnswer:
    """A direct answer of an engine, beside the pages that it found.

    Attributes:
        text: at most 1,000 characters, plain, on one line.
        url: where it is from, None where the engine names none.
        source: who says so.
    """

    text: str
    url: str | None = None
    source: str = ""


class SearchResults(list[SearchResult]):
    """The pages that were found, best first, and what was said beside them.

    Attributes:
        answers: what engines answered at once.
        unresponsive: the engines that did not answer, each with the reason.
    """

    def __init__(
        self,
        results: Iterable[SearchResult] = (),
        *,
        answers: Iterable[SearchAnswer] = (),
        unresponsive: Iterable[str] = (),
    ) -> None:
        super().__init__(results)
        self.answers: tuple[SearchAnswer, ...] = tuple(answers)
        self.unresponsive: tuple[str, ...] = tuple(unresponsive)


class SearchProvider(Protocol):
    """Finds pages of the web."""

    async def search(self, query: str, *, max_results: int = 5) -> list[SearchResult]:
        """Return the best pages for the query, best first; none if nothing fits.

        A provider may return `SearchResults`, which carry more.

        Raises:
            ToolError: the search could not be made; the message names neither a key nor an address.
                A model reads it as the words of strangers.
        """
        ...
