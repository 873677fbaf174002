"""Tools that cannot be turned against their owner, and what they stand on.

Nothing is loaded before its name is asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lib.errors import FetchBlocked
    from lib.tools.builtin.fetch.fetcher import Page, SafeFetcher
    from lib.tools.builtin.fetch.policy import DEFAULT_CONTENT_TYPES, FetchPolicy
    from lib.tools.builtin.fetch.resolver import Resolver, SystemResolver
    from lib.tools.builtin.fetch.tool import http_fetch_tool
    from lib.tools.builtin.files import DENY, FileAccess, list_files_tool, read_file_tool
    from lib.tools.builtin.hygiene import clean, fenced
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

_WHERE = {
    "DENY": "lib.tools.builtin.files:DENY",
    "FileAccess": "lib.tools.builtin.files:FileAccess",
    "DEFAULT_CONTENT_TYPES": "lib.tools.builtin.fetch.policy:DEFAULT_CONTENT_TYPES",
    "FetchBlocked": "lib.errors:FetchBlocked",
    "FetchPolicy": "lib.tools.builtin.fetch.policy:FetchPolicy",
    "Page": "lib.tools.builtin.fetch.fetcher:Page",
    "Resolver": "lib.tools.builtin.fetch.resolver:Resolver",
    "SafeFetcher": "lib.tools.builtin.fetch.fetcher:SafeFetcher",
    "SystemResolver": "lib.tools.builtin.fetch.resolver:SystemResolver",
    "http_fetch_tool": "lib.tools.builtin.fetch.tool:http_fetch_tool",
    "clean": "lib.tools.builtin.hygiene:clean",
    "fenced": "lib.tools.builtin.hygiene:fenced",
    "list_files_tool": "lib.tools.builtin.files:list_files_tool",
    "read_file_tool": "lib.tools.builtin.files:read_file_tool",
    "BraveSearchProvider": "lib.tools.builtin.search.brave:BraveSearchProvider",
    "MetaSearchProvider": "lib.tools.builtin.search.searxng:SearXNGProvider",
    "SearXNGProvider": "lib.tools.builtin.search.searxng:SearXNGProvider",
    "SearchAnswer": "lib.tools.builtin.search.provider:SearchAnswer",
    "SearchApiProvider": "lib.tools.builtin.search.brave:BraveSearchProvider",
    "SearchProvider": "lib.tools.builtin.search.provider:SearchProvider",
    "SearchResult": "lib.tools.builtin.search.provider:SearchResult",
    "SearchResults": "lib.tools.builtin.search.provider:SearchResults",
    "web_search_tool": "lib.tools.builtin.search.tool:web_search_tool",
}


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        module, _, attribute = _WHERE[name].partition(":")
        return getattr(import_module(module), attribute)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
