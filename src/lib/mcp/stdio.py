"""Serves the program that has started this one, over its standard input and output."""

from __future__ import annotations

import asyncio
import io
import os
import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from threading import Thread
from typing import IO, ParamSpec, TypeVar

from anyio import wrap_file

from lib.mcp.offered import Source
from lib.mcp.sdk import stdio_server
from lib.mcp.server import MCPToolServer

P = ParamSpec("P")
T = TypeVar("T")


async def serve_stdio(served: MCPToolServer | Source, *, stdout: IO[bytes] | None = None) -> None:
    """Serve until the client closes the standard input of this process, or is gone.

    While it serves, whatever prints in this process prints to the standard error, and reads
    nothing: only messages of the protocol are on the wire. A function that hangs in a thread does
    not keep the process.

    Args:
        served: a server, or what it takes as `tools`.
        stdout: where messages go; None for the standard output of this process.

    Raises:
        Exception: as `MCPToolServer` does.
    """
    server = served if isinstance(served, MCPToolServer) else MCPToolServer(served)
    asyncio.get_running_loop().set_default_executor(_DaemonThreads())
    text = None if stdout is None else wrap_file(io.TextIOWrapper(stdout, encoding="utf-8"))
    protocol = server.protocol
    try:
        async with server, stdio_server(stdout=text) as (read, write):
            await protocol.run(read, write, server.initialization_options())
    except* (BrokenPipeError, ConnectionResetError):
        pass  # the client has gone


def divert_stdout() -> IO[bytes]:
    """Return the standard output, and let all that prints from now on print to standard error."""
    sys.stdout.flush()
    wire = os.dup(1)
    os.dup2(2, 1)
    return os.fdopen(wire, "wb")


class _DaemonThreads(ThreadPoolExecutor):
    """Runs each function in a thread of its own, for which the end of the process does not wait."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Call the function in a thread."""
        future: Future[T] = Future()

        def work() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                result = fn(*args, **kwargs)
            # Around a function of the application: the one that waits for it gets its error.
            except BaseException as error:  # noqa: BLE001 - see above
                future.set_exception(error)
            else:
                with suppress(RuntimeError):  # the loop has closed
                    future.set_result(result)

        Thread(target=work, name="lib.mcp", daemon=True).start()
        return future
