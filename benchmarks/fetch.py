"""The cost of guarded fetches: `SafeFetcher` beside a plain httpx2 client, on loopback.

    make bench ARGS=fetch
    make bench ARGS="fetch --turns 3000 --bytes 0 20000"

A server in a process of its own answers over connections that are kept alive, as both clients use
them. They take turns request by request, so that both see the same machine. The plain client checks
nothing, limits nothing, and has no deadline over a whole answer. Only ratios within one run mean
anything.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from statistics import median

import httpx2

from lib.tools.builtin import FetchPolicy, SafeFetcher

WARM_UP = 50
CODINGS = {"plain": "", "gzip": "Content-Encoding: gzip\r\n"}


class Pages(asyncio.Protocol):
    """Answers every request with as many bytes as its path says, maybe compressed."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        _, coding, size = data.split(b" ", 2)[1].decode().split("/")
        self._transport.write(page(coding, int(size)))


def page(coding: str, size: int, made: dict[tuple[str, int], bytes] = {}) -> bytes:  # noqa: B006 - a cache
    if (coding, size) not in made:
        import gzip
        import random

        words = random.Random(7).choices(["quick", "brown", "fox", "jumps", "over"], k=size)
        body = " ".join(words).encode()[:size]
        if coding == "gzip":
            body = gzip.compress(body)
        head = f"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n{CODINGS[coding]}"
        made[coding, size] = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
    return made[coding, size]


async def serve() -> None:
    server = await asyncio.get_running_loop().create_server(Pages, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


async def timed(get: Callable[[str], Awaitable[int]], url: str, size: int) -> float:
    began = time.perf_counter()
    got = await get(url)
    took = time.perf_counter() - began
    if got != size:
        raise AssertionError(f"{got} bytes came, not {size}")
    return took


async def measure(port: int, sizes: list[int], turns: int) -> None:
    policy = FetchPolicy(
        allow_private_networks=True, allowed_ports=(port,), max_bytes=max(*sizes, 1)
    )
    async with httpx2.AsyncClient() as client, SafeFetcher(policy) as fetcher:

        async def plain(url: str) -> int:
            return len((await client.get(url)).content)

        async def guarded(url: str) -> int:
            return len((await fetcher.fetch(url)).body)

        print(f"{'body':>16} {'plain, us':>10} {'guarded, us':>12} {'overhead':>9}")
        for coding in CODINGS:
            for size in sizes:
                url = f"http://127.0.0.1:{port}/{coding}/{size}"
                times: dict[str, list[float]] = {"plain": [], "guarded": []}
                for turn in range(turns + WARM_UP):
                    first = turn % 2  # neither always runs in the caches that the other has filled
                    for name, get in (("plain", plain), ("guarded", guarded))[:: 1 - 2 * first]:
                        took = await timed(get, url, size)
                        if turn >= WARM_UP:
                            times[name].append(took)
                base, ours = (median(times[name]) * 1e6 for name in ("plain", "guarded"))
                print(f"{f'{size} {coding}':>16} {base:10.0f} {ours:12.0f} {ours / base - 1:+9.1%}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=1_000)
    parser.add_argument("--bytes", type=int, nargs="+", default=[0, 2_000, 50_000, 1_000_000])
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        asyncio.run(serve())
        return
    command = [sys.executable, __file__, "--serve"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, encoding="utf-8") as server:
        try:
            port = int((server.stdout or sys.stdin).readline())
            asyncio.run(measure(port, options.bytes, options.turns))
        finally:
            server.terminate()


if __name__ == "__main__":
    main()
