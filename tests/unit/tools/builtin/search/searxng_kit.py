"""Shared by tests of SearXNG: its answers, a server, and how it refuses."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import httpx2
import pytest

from fakes.search_server import SearXNGServer, WebPage
from lib.errors import ToolError
from lib.testing.http import Reaction
from lib.tools.builtin import SearXNGProvider
from lib.tools.builtin.search.provider import SearchResults

JSON = {"content-type": "application/json"}
PAGES = [
    WebPage(url="https://rust.example/book", title="The Rust book", text="Learn <b>rust</b>."),
    WebPage(
        url="https://oxide.example/", title="Oxide", text="Rust on iron.", published="2026-01-01"
    ),
]


def answering(body: bytes | Any, *, headers: dict[str, str] = JSON) -> SearXNGProvider:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()

    def serve(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers=headers, content=content)

    return SearXNGProvider("http://sx.test", transport=httpx2.MockTransport(serve))


async def search(
    provider: SearXNGProvider, query: str = "x", max_results: int = 5
) -> SearchResults:
    return await provider.search(query, max_results=max_results)


async def refusal_of(provider: SearXNGProvider, query: str = "x") -> ToolError:
    with pytest.raises(ToolError) as caught:
        await search(provider, query)
    assert caught.value.__cause__ is None
    return caught.value


async def served(
    query: str = "rust",
    *,
    script: Sequence[Reaction] = (),
    server: Callable[[], SearXNGServer] = lambda: SearXNGServer(PAGES),
    **options: Any,
) -> tuple[SearchResults | ToolError, SearXNGServer]:
    async def main() -> tuple[SearchResults | ToolError, SearXNGServer]:
        async with server() as searxng:
            searxng.script.extend(script)
            provider = SearXNGProvider(searxng.base_url, **options)
            try:
                return await provider.search(query), searxng
            except ToolError as error:
                return error, searxng
            finally:
                await provider.aclose()

    return await main()
