"""A server gets little work of the event loop at a time, and not for long."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Self

import pytest

from fakes.hostile_server import HostileServer
from lib._util.clock import SYSTEM_CLOCK
from lib.errors import ToolError
from lib.testing.aio import run
from lib.tools.builtin.fetch.answer import CHUNKS_PER_TURN, Answer
from lib.tools.builtin.fetch.bounded_stream import (
    MAX_HEAD_READ_BYTES,
    MAX_HEAD_WIRE_BYTES,
    MAX_READ_BYTES,
    BoundedBackend,
    BoundedStream,
    TooMuchSentError,
    wire_limit,
)
from lib.tools.builtin.fetch.fetcher import Page, SafeFetcher
from lib.tools.builtin.fetch.policy import FetchPolicy

TLS = Path(__file__).parents[4] / "data" / "builtin" / "tls"


async def resolve(host: str, port: int) -> list[str]:
    return ["93.184.216.34"]


class Turns:
    """Count the turns that another task has."""

    def __init__(self) -> None:
        self.count = 0

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._take())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()

    async def _take(self) -> None:
        while True:
            self.count += 1
            await SYSTEM_CLOCK.sleep(0)


async def fetched(url: str, server: HostileServer, **policy: Any) -> tuple[Page | ToolError, Turns]:
    fetcher = SafeFetcher(FetchPolicy(**policy), resolver=resolve, verify=False)
    async with server, fetcher, Turns() as turns:
        try:
            return await fetcher.fetch(url), turns
        except ToolError as error:
            return error, turns


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("scenario", ["endless_tiny_chunks", "endless_extensions"])
async def test_a_body_that_is_mostly_framing_is_cut_and_others_run_meanwhile(
    scenario: str, scheme: str, internet: Any
) -> None:
    internet.server = HostileServer(certificate=TLS / "good.pem")

    page, turns = await fetched(
        f"{scheme}://a.example.com/{scenario}", internet.server, max_bytes=100_000
    )

    assert isinstance(page, Page)
    assert page.truncated
    assert 0 < len(page.body) <= (wire_limit(100_000) + MAX_HEAD_READ_BYTES) // 6
    # Each chunk of the body has one byte.
    assert turns.count >= max(
        len(page.body) / CHUNKS_PER_TURN, wire_limit(100_000) / MAX_READ_BYTES
    )


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_interim_answers_without_an_end_are_refused_and_others_run_meanwhile(
    scheme: str, internet: Any
) -> None:
    internet.server = HostileServer(certificate=TLS / "good.pem")

    error, turns = await fetched(f"{scheme}://a.example.com/endless_hints", internet.server)

    assert isinstance(error, ToolError)
    assert (error.code, str(error)) == (
        "too_large",
        "'a.example.com' sends too much before its answer",
    )
    assert turns.count >= MAX_HEAD_WIRE_BYTES / MAX_HEAD_READ_BYTES


@pytest.mark.parametrize("scenario", ["endless_tiny_chunks", "endless_hints"])
async def test_what_comes_through_a_proxy_is_limited_too(scenario: str) -> None:
    async def main() -> Page:
        async with HostileServer() as server:
            proxy = f"http://127.0.0.1:{server.http_port}"
            async with SafeFetcher(FetchPolicy(max_bytes=10_000), proxy=proxy) as fetcher:
                return await fetcher.fetch(f"http://example.com/{scenario}")

    if scenario == "endless_hints":
        with pytest.raises(ToolError, match="too much before its answer"):
            await main()
    else:
        assert (await main()).truncated


class Endless:
    """A connection that always has more to read."""

    async def read(self, max_bytes: int, timeout: float | None) -> bytes:
        return bytes(max_bytes)

    async def write(self, buffer: bytes, timeout: float | None) -> None:
        """Take a request."""


async def read_to_the_limit(stream: BoundedStream) -> int:
    total = 0
    while True:
        try:
            total += len(await stream.read(1 << 20))
        except TooMuchSentError:
            return total


async def test_each_request_of_a_connection_has_its_limits_anew() -> None:
    stream = BoundedStream(Endless())
    assert await read_to_the_limit(stream) == MAX_HEAD_WIRE_BYTES

    for _ in range(2):
        await stream.write(b"GET / HTTP/1.1")
        assert await read_to_the_limit(stream) == MAX_HEAD_WIRE_BYTES
        stream.expect_body(100)
        assert await read_to_the_limit(stream) == wire_limit(100)


def test_others_have_a_turn_between_small_chunks_of_any_transport() -> None:
    async def main() -> int:
        async def chunks() -> AsyncIterator[bytes]:
            for _ in range(1_000):
                yield b"x"

        async def close() -> None:
            pass

        async with Turns() as turns:
            async for _ in Answer(200, [], chunks(), close).chunks():
                pass
        return turns.count

    assert run(main()) >= 1_000 // CHUNKS_PER_TURN


async def test_a_proxy_that_is_paced_can_wait() -> None:
    await BoundedBackend().sleep(0)
