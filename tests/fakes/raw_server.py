"""A server on loopback whose answers a test writes byte by byte."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import TypeAlias

Accept: TypeAlias = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def raw_server(
    accept: Accept, *, context: ssl.SSLContext | None = None
) -> AsyncGenerator[int]:
    """Give the port of a server that leaves each connection to `accept`, and end all of them.

    Args:
        accept: what is done with a connection; that a client closes it ends it in peace.
        context: of TLS.
    """
    tasks: set[asyncio.Task[None]] = set()

    async def taken(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        # Python 3.11 logs a connection whose task was cancelled.
        quiet = (asyncio.CancelledError, asyncio.IncompleteReadError, ConnectionError, ssl.SSLError)
        with suppress(*quiet):
            await accept(reader, writer)
        with suppress(*quiet):
            writer.close()
            await writer.wait_closed()

    server = await asyncio.start_server(taken, "127.0.0.1", 0, ssl=context)
    port: int = server.sockets[0].getsockname()[1]
    try:
        yield port
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
