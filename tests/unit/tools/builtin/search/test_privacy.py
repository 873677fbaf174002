"""Tests that a search server gets the query alone: no cookies, no proxy."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from fakes.raw_server import raw_server
from lib.tools.builtin import BraveSearchProvider, SearXNGProvider

Make = Callable[..., Any]


def searxng(url: str, **options: Any) -> Any:
    return SearXNGProvider(url, **options)


def brave(url: str, **options: Any) -> Any:
    return BraveSearchProvider("key", base_url=url, **options)


async def requests_of(make: Make, *, through: bool = False, **options: Any) -> list[str]:
    """Return the heads of two searches' requests as a server gets them.

    Args:
        make: the provider.
        through: whether the server is the proxy of the environment, and not the one that searches.
        options: of the provider.
    """
    heads: list[str] = []

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            heads.append((await reader.readuntil(b"\r\n\r\n")).decode().lower())
            body = json.dumps({"results": []}).encode()
            writer.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
                b"Set-Cookie: session=1; Path=/\r\nContent-Length: %d\r\n\r\n" % len(body)
            )
            writer.write(body)

    async def search_twice(address: str) -> None:
        with pytest.MonkeyPatch.context() as patch:
            for name in ("NO_PROXY", "no_proxy"):
                patch.delenv(name, raising=False)
            for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
                patch.setenv(name, address if through else "http://127.0.0.1:9")
            provider = make("http://searx.test" if through else address, **options)
            for _ in range(2):
                assert await provider.search("rust") == []
            await provider.aclose()

    async with raw_server(accept) as port:
        await search_twice(f"http://127.0.0.1:{port}")
    return heads


@pytest.mark.parametrize("make", [searxng, brave])
async def test_a_cookie_of_a_search_server_is_not_kept(make: Make) -> None:
    heads = await requests_of(make)

    assert len(heads) == 2
    assert not [head for head in heads if "cookie" in head]


@pytest.mark.parametrize("make", [searxng, brave])
async def test_a_proxy_of_the_environment_is_used_only_on_request(make: Make) -> None:
    assert len(await requests_of(make)) == 2  # the environment's proxy would not have answered

    heads = await requests_of(make, through=True, environment_proxy=True)
    assert [head.startswith("get http://searx.test") for head in heads] == [True, True]
