"""Tools that cannot be turned against their owner, and what they stand on.

Modules are loaded when one of their names is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lib._util.lazy import lazy_exports

if TYPE_CHECKING:
    from lib.content.hygiene import clean, fenced
    from lib.errors import FetchBlocked
    from lib.tools.builtin.fetch.fetcher import Page, SafeFetcher
    from lib.tools.builtin.fetch.policy import DEFAULT_CONTENT_TYPES, FetchPolicy
    from lib.tools.builtin.fetch.resolver import Resolver, SystemResolver
    from lib.tools.builtin.fetch.tool import http_fetch_tool
    from lib.tools.builtin.files import DENY, FileAccess, list_files_tool, read_file_tool
    from lib.tools.builtin.search.brave import BraveSearchProvider
    from lib.tools.builtin.search.brave import BraveSearchProvider as SearchApiProvider
    from lib.tools.builtin.search.provider import (
        SearchAnswer,
        SearchProvider,
        SearchResult,
        SearchResults,
    )
    from lib.tools.builtin.search.searxng import SearXNGProvider
    from lib.tools.builtin.search.searxng import SearXNGProvider as MetaSearchProvider
    from lib.tools.builtin.search.tool import web_search_tool

__all__ = [
    "DEFAULT_CONTENT_TYPES",
    "DENY",
    "BraveSearchProvider",
    "FetchBlocked",
    "FetchPolicy",
    "FileAccess",
    "MetaSearchProvider",
    "Page",
    "Resolver",
    "SafeFetcher",
    "SearXNGProvider",
    "SearchAnswer",
    "SearchApiProvider",
    "SearchProvider",
    "SearchResult",
    "SearchResults",
    "SystemResolver",
    "clean",
    "fenced",
    "http_fetch_tool",
    "list_files_tool",
    "read_file_tool",
    "web_search_tool",
]

if not TYPE_CHECKING:  # type checkers are to see misspelt names
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "BraveSearchProvider": "lib.tools.builtin.search.brave",
            "DEFAULT_CONTENT_TYPES": "lib.tools.builtin.fetch.policy",
            "DENY": "lib.tools.builtin.files",
            "FetchBlocked": "lib.errors",
            "FetchPolicy": "lib.tools.builtin.fetch.policy",
            "FileAccess": "lib.tools.builtin.files",
            "MetaSearchProvider": "lib.tools.builtin.search.searxng:SearXNGProvider",
            "Page": "lib.tools.builtin.fetch.fetcher",
            "Resolver": "lib.tools.builtin.fetch.resolver",
            "SafeFetcher": "lib.tools.builtin.fetch.fetcher",
            "SearXNGProvider": "lib.tools.builtin.search.searxng",
            "SearchAnswer": "lib.tools.builtin.search.provider",
            "SearchApiProvider": "lib.tools.builtin.search.brave:BraveSearchProvider",
            "SearchProvider": "lib.tools.builtin.search.provider",
            "SearchResult": "lib.tools.builtin.search.provider",
            "SearchResults": "lib.tools.builtin.search.provider",
            "SystemResolver": "lib.tools.builtin.fetch.resolver",
            "clean": "lib.content.hygiene",
            "fenced": "lib.content.hygiene",
            "http_fetch_tool": "lib.tools.builtin.fetch.tool",
            "list_files_tool": "lib.tools.builtin.files",
            "read_file_tool": "lib.tools.builtin.files",
            "web_search_tool": "lib.tools.builtin.search.tool",
        },
    )
