"""Serves one of the compared applications in a process of its own, and says what it costs.

The process prints one line of JSON, the port and the requests to send; then it answers commands,
one a line on its standard input, each with one line of JSON.
"""

from __future__ import annotations

import asyncio
import gc
import json
import re
import socket
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import uvicorn

from lib._util.clock import SYSTEM_CLOCK

Command = Callable[[int], Awaitable[Any]]
PSS = re.compile(r"^Pss:\s+(\d+) kB", re.MULTILINE)
TICK_S = 0.1
MARK = "@{}@"


async def cost(_: int) -> dict[str, Any]:
    """Return the CPU time of this process."""
    return {"cpu_s": time.process_time()}


async def memory(_: int) -> dict[str, Any]:
    """Collect garbage and return the memory of this process, its share of pages included."""
    gc.collect()
    return {"pss_kib": pss_kib()}


def pss_kib() -> int:
    return int(PSS.findall(Path("/proc/self/smaps_rollup").read_text(encoding="ascii"))[0])


async def at_once(_: int) -> None:
    """Return when no run is driven: with the answer of its request, where nothing else is said."""


async def tick(count: int, emit: Callable[[str], None]) -> None:
    """Emit so many texts that hold the time, ten a second."""
    for _ in range(count):
        emit(MARK.format(time.monotonic_ns()))
        await SYSTEM_CLOCK.sleep(TICK_S)


async def serve(
    running: uvicorn.Server,
    requests: Callable[[], Awaitable[dict[str, Any]]],
    commands: dict[str, Command],
) -> None:
    """Serve, say which requests to send once it has started, and answer commands until it ends."""
    listening = socket.create_server(("127.0.0.1", 0), backlog=2048)
    serving = asyncio.create_task(running.serve([listening]))
    while not running.started:  # uvicorn has no event for it
        await SYSTEM_CLOCK.sleep(0.01)
    say({"port": listening.getsockname()[1], **await requests()})
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    answering = asyncio.create_task(
        answer(reader, {"cost": cost, "memory": memory, "idle": at_once, **commands})
    )
    await serving
    answering.cancel()


async def answer(reader: asyncio.StreamReader, commands: dict[str, Command]) -> None:
    while line := (await reader.readline()).decode().split():
        command = commands.get(line[0]) or commands["follow"]
        say(await command(int(line[1]) if len(line) > 1 else 0))


def say(value: Any) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def url_of(running: uvicorn.Server) -> str:
    """Return the URL of a server that has started."""
    return f"http://127.0.0.1:{running.servers[0].sockets[0].getsockname()[1]}"


def plain_uvicorn(app: Any) -> uvicorn.Server:
    """Return uvicorn as its users run it, but without access log."""
    return uvicorn.Server(
        uvicorn.Config(app, http="httptools", lifespan="on", log_config=None, access_log=False)
    )
