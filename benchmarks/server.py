"""The cost of agents over HTTP: `lib_server`, agno's AgentOS and a bare Starlette application.

    scripts/bench server
    scripts/bench server --only requests --requests 20000

Each is served by uvicorn in a process of its own, under Python's own event loop; requests come from
this process. Counted is the CPU time of the serving process, so a busy machine changes little;
latencies say what this machine made of them, with its other work.

`requests`: a GET of a run with a key, and a POST that starts a run of an agent whose model answers
at once, until the run has ended. Bare Starlette compares a key and returns as many bytes; what the
engine takes for the same run without HTTP stands beside ours.
`streams`: memory of a stream of a run that waits, and how long the server takes to stop with all
of them open; then a reply in pieces, ten a second, to as many streams (agno's through `resume`).
`import`: CPU time of importing the server in a new process, over that of an empty one; the byte
code is there, as that of an installed package is.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import resource
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lib._util.clock import SYSTEM_CLOCK

SUBJECTS = {"lib_server": "ours", "bare Starlette": "bare", "agno AgentOS": "agno_os"}
IMPORTS = {"lib_server": "lib_server", "bare Starlette": "starlette.applications"}
IMPORTS |= {"agno AgentOS": "agno.os"}
LENGTH = re.compile(rb"(?i)\r\ncontent-length: *(\d+)\r\n")
MARKS = re.compile(rb"@(\d+)@")
LONGEST_EXIT_S = 10


# -- a served application, and what is sent to it ---------------------------------------------


@dataclass
class Subject:
    """A process that serves.

    Attributes:
        process: takes commands on its standard input.
        requests: what to send to it, and to which port.
    """

    process: asyncio.subprocess.Process
    requests: dict[str, Any] = field(default_factory=dict)

    async def ask(self, command: str) -> Any:
        """Return what it answers to a command."""
        assert self.process.stdin
        self.process.stdin.write(command.encode() + b"\n")
        return await self.line()

    async def line(self) -> Any:
        """Return what it says next."""
        assert self.process.stdout
        while not (line := await self.process.stdout.readline()).startswith((b"{", b"[", b"null")):
            assert line, "it has ended"
        return json.loads(line)

    async def cpu_s(self) -> float:
        return (await self.ask("cost"))["cpu_s"]

    def head(self, method: str, path: str, body: str = "", content_type: str = "") -> bytes:
        """Return a request."""
        streams = "events" in path or (method == "POST" and not content_type)
        accept = "text/event-stream" if streams else "*/*"
        lines = [f"{method} {path} HTTP/1.1", "host: 127.0.0.1", f"accept: {accept}"]
        lines += [f"{name}: {value}" for name, value in self.requests["headers"].items()]
        if method == "POST":
            kind = content_type or "application/x-www-form-urlencoded"
            lines += [f"content-type: {kind}", f"content-length: {len(body)}"]
        return "\r\n".join([*lines, "", body]).encode()


@asynccontextmanager
async def served(module: str) -> AsyncGenerator[Subject]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        f"peers.server.{module}",
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=Path(__file__).parent,
    )
    subject = Subject(process)
    try:
        subject.requests = await subject.line()
        yield subject
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


# -- requests ----------------------------------------------------------------------------------


class Sender(asyncio.Protocol):
    """Sends one request after the other on one connection."""

    def __init__(self, request: bytes, count: int) -> None:
        self.request, self.left = request, count
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.buffer = b""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        head, found, body = self.buffer.partition(b"\r\n\r\n")
        if not found:
            return
        length = LENGTH.search(head + b"\r\n")
        if head[9:10] != b"2" or length is None:
            self.done.set_exception(AssertionError(self.buffer[:500].decode()))
        elif len(body) >= int(length[1]):
            self.buffer, self.left = b"", self.left - 1
            if self.left:
                self.transport.write(self.request)
            else:
                self.transport.close()
                self.done.set_result(None)


async def send(subject: Subject, request: bytes, count: int, connections: int = 16) -> None:
    loop = asyncio.get_running_loop()
    port = subject.requests["port"]
    senders = [Sender(request, count // connections) for _ in range(connections)]
    for sender in senders:
        await loop.create_connection(lambda sender=sender: sender, "127.0.0.1", port)
    await asyncio.gather(*(sender.done for sender in senders))


async def per_request_us(subject: Subject, request: bytes, count: int, rounds: int = 5) -> float:
    """Return the CPU time of a request, runs that it started included: the median of rounds."""
    await send(subject, request, count // 10)
    await subject.ask("memory")
    costs: list[float] = []
    for _ in range(rounds):
        began = await subject.cpu_s()
        await send(subject, request, count // rounds)
        await subject.ask("idle")
        costs.append((await subject.cpu_s() - began) / (count // rounds // 16 * 16) * 1e6)
    return statistics.median(costs)


async def requests(count: int) -> None:
    gets: dict[str, float] = {}
    posts: dict[str, float] = {}
    directly = 0.0
    for name, module in SUBJECTS.items():
        async with served(module) as subject:
            sent = subject.requests
            gets[name] = await per_request_us(subject, subject.head("GET", sent["get"]), count)
            request = subject.head("POST", sent["post"], sent["body"], sent["content_type"])
            posts[name] = await per_request_us(subject, request, count // 5)
            if name == "lib_server":
                await subject.ask("memory")
                began = await subject.cpu_s()
                await subject.ask(f"directly {count // 5}")
                directly = (await subject.cpu_s() - began) / (count // 5 // 16 * 16) * 1e6
    print("\nCPU time in microseconds")
    bare, bare_post = gets["bare Starlette"], posts["bare Starlette"]
    for name in SUBJECTS:
        print(
            f"  {name:15} GET {gets[name]:8.0f} ({gets[name] / bare:5.1f} times bare)"
            f"   POST and run {posts[name]:8.0f}"
        )
    over = posts["lib_server"] - directly
    print(
        f"  the run without HTTP {directly:.0f}: HTTP adds {over:.0f} (goal: 250),"
        f" {over - bare_post:.0f} more than bare Starlette"
    )


# -- streams -----------------------------------------------------------------------------------


class Follower(asyncio.Protocol):
    """Reads one stream: how long each marked piece took, and whether an event ended it."""

    def __init__(self, request: bytes, lags: list[int]) -> None:
        self.request, self.lags, self.drained = request, lags, False
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: Any) -> None:
        transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        if not self.opened.done():
            self.opened.set_result(None)
        now = time.monotonic_ns()
        self.lags += [now - int(mark) for mark in MARKS.findall(data)]
        self.drained = self.drained or b"server.draining" in data


async def follow(subject: Subject, what: str, count: int, lags: list[int]) -> list[Follower]:
    loop = asyncio.get_running_loop()
    request, port = subject.head(*await subject.ask(what)), subject.requests["port"]
    followers = [Follower(request, lags) for _ in range(count)]
    for each in followers:
        await loop.create_connection(lambda each=each: each, "127.0.0.1", port)
    async with asyncio.timeout(120):
        await asyncio.gather(*(each.opened for each in followers))
    await SYSTEM_CLOCK.sleep(1)
    return followers


async def streams(count: int, pieces: int) -> None:
    print(f"\n{count:,} streams")
    for name, module in SUBJECTS.items():
        async with served(module) as subject:
            await follow(subject, "wait", 20, [])  # loads what the first streams load
            before = await subject.ask("memory")
            followers = await follow(subject, "wait", count, [])
            kib = ((await subject.ask("memory"))["pss_kib"] - before["pss_kib"]) / count
            exit_s = await terminated(subject)
            drained = sum(each.drained for each in followers)
        ended = f"{exit_s:.2f} s" if exit_s else f"more than {LONGEST_EXIT_S} s, killed"
        print(
            f"  {name:15} {kib:5.1f} KiB each (goal: 20); SIGTERM to exit {ended} (goal: 0.5),"
            f" {drained:,} had a last event"
        )
        async with served(module) as subject:
            lags: list[int] = []
            await follow(subject, "follow", count, lags)
            began = await subject.cpu_s()
            await subject.ask(f"emit {pieces}")
            await SYSTEM_CLOCK.sleep(3)
            cpu_s = await subject.cpu_s() - began
        if not lags:
            print(f"  {'':15} no piece came")
            continue
        cuts = statistics.quantiles(lags, n=100)
        print(
            f"  {'':15} a piece: {cpu_s / len(lags) * 1e6:.0f} us of CPU a stream; it comes after"
            f" {cuts[49] / 1e6:.0f} ms (p50), {cuts[98] / 1e6:.0f} ms (p99);"
            f" {len(lags) / pieces / count:.0%} came"
        )


async def terminated(subject: Subject) -> float | None:
    """Return the seconds from SIGTERM to the end of the process, None if it was killed."""
    began = time.perf_counter()
    subject.process.send_signal(signal.SIGTERM)
    try:
        async with asyncio.timeout(LONGEST_EXIT_S):
            await subject.process.wait()
    except TimeoutError:
        return None
    return time.perf_counter() - began


# -- imports -----------------------------------------------------------------------------------


def imports(rounds: int = 9) -> None:
    print("\nCPU time of the import, cold processes")
    nothing = import_s("")
    for name, module in IMPORTS.items():
        costs = [import_s(f"import {module}") for _ in range(rounds)]
        goal = " (goal: 0.35)" if name == "lib_server" else ""
        print(f"  {name:15} {statistics.median(costs) - nothing:5.2f} s{goal}")
    served_s = statistics.median([import_s("from lib_server import Server") for _ in range(rounds)])
    print(f"  {'':15} {served_s - nothing:5.2f} s with `from lib_server import Server`")


def import_s(program: str) -> float:
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-c", program]
    began = os.times()
    subprocess.run(command, env=environment, check=True)
    ended = os.times()
    return ended[2] + ended[3] - began[2] - began[3]


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", choices=["requests", "streams", "import"])
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument("--pieces", type=int, default=30)
    options = parser.parse_args(arguments)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    if options.only in (None, "import"):
        imports()
    if options.only in (None, "requests"):
        asyncio.run(requests(options.requests))
    if options.only in (None, "streams"):
        asyncio.run(streams(options.streams, options.pieces))


if __name__ == "__main__":
    main(sys.argv[1:])
