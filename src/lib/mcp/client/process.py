"""A server as a process of ours: lines on its stdin and stdout, and its certain end.

It gets a clean environment. On POSIX it runs under `supervisor.py`, so that it ends with this
process however that ends, and takes along what it has started in its process group.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator, Collection, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import anyio

from lib._util.tasks import cancelled
from lib.content.hygiene import clean
from lib.mcp.client.sdk import SessionMessage, types

_log = logging.getLogger("lib.mcp")

INHERITED: Final = (
    *("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "USER", "LOGNAME", "SHELL"),
    *("SYSTEMROOT", "SYSTEMDRIVE", "COMSPEC", "PATHEXT", "TEMP", "TMP", "USERPROFILE", "APPDATA"),
    *("LOCALAPPDATA", "PROGRAMFILES", "PROGRAMDATA"),
)
"""The variables that a server's process gets of ours, where they are set; no others."""

_SUPERVISOR: Final = str(Path(__file__).with_name("supervisor.py"))
_LOG_CHARS: Final = 2_000
_END_S: Final = 2.0  # for a server to end by itself once its stdin is closed
_KILL_S: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerProcess:
    """The command of a server and what it gets.

    Attributes:
        command: the program and its arguments.
        env: variables of its environment, on top of those of `INHERITED`.
        inherit: the names of further variables that it gets of ours.
        cwd: its directory, None for ours.
        max_bytes: how much it may write between two of our messages, and in one line.
    """

    command: tuple[str, ...]
    env: Mapping[str, str] = field(repr=False)
    inherit: Collection[str]
    cwd: str | None
    max_bytes: int

    def environment(self) -> dict[str, str]:
        """Return the variables that the process gets."""
        names = [*INHERITED, *self.inherit]
        return {**{name: os.environ[name] for name in names if name in os.environ}, **self.env}


@asynccontextmanager
async def process_streams(server: ServerProcess, ended: asyncio.Event) -> AsyncGenerator[Any]:
    """Run a server and yield the streams of its messages, as the SDK takes them.

    Args:
        server: what to run.
        ended: is set when nothing more comes of it.

    Raises:
        OSError: the process cannot be started.
    """
    lifeline, grip = os.pipe()
    try:
        try:
            process = await _start(server, lifeline)
        finally:
            os.close(lifeline)
        incoming, read_stream = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        write_stream, outgoing = anyio.create_memory_object_stream[SessionMessage](0)
        budget = _Budget(server.max_bytes)
        tasks = [
            asyncio.create_task(_read(process, incoming, budget, ended), name="lib.mcp.stdout"),
            asyncio.create_task(_write(process, outgoing, budget), name="lib.mcp.stdin"),
            asyncio.create_task(_log_stderr(process), name="lib.mcp.stderr"),
        ]
        try:
            yield read_stream, write_stream
        finally:
            try:
                await _end_by_itself(process)
            finally:
                os.close(grip)
                grip = -1
                await _reaped(process)
                for task in tasks:
                    await cancelled(task)
                for stream in (incoming, read_stream, write_stream, outgoing):
                    stream.close()
    finally:
        if grip >= 0:
            os.close(grip)


async def _start(server: ServerProcess, lifeline: int) -> Process:
    options: dict[str, Any] = {}
    command = list(server.command)
    if os.name == "posix":
        supervisor = [sys.executable, "-I", "-S", _SUPERVISOR, str(lifeline), str(os.getpid())]
        command = [*supervisor, *command]
        options = {"pass_fds": (lifeline,), "start_new_session": True}
    return await asyncio.create_subprocess_exec(
        *command,
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
        env=server.environment(),
        cwd=server.cwd,
        limit=server.max_bytes,
        **options,
    )


class _Budget:
    """Counts what a server writes between two of our messages."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = self.left = max_bytes

    def renew(self) -> None:
        self.left = self._max_bytes


async def _read(process: Process, incoming: Any, budget: _Budget, ended: asyncio.Event) -> None:
    """Hand on each line that is a message; what else a server prints is dropped."""
    assert process.stdout is not None  # noqa: S101 - it was started with pipes
    try:
        while line := await process.stdout.readline():
            budget.left -= len(line)
            if budget.left < 0:
                _log.warning("an MCP server writes more than is allowed: it is ended")
                return
            try:
                message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
            except ValueError:
                _log.debug("an MCP server has written a line that is no message")
                continue
            await incoming.send(SessionMessage(message))
    except ValueError:
        _log.warning("an MCP server has written a line of more than is allowed: it is ended")
    except (anyio.ClosedResourceError, anyio.BrokenResourceError):
        pass  # the session is gone
    finally:
        incoming.close()
        ended.set()


async def _write(process: Process, outgoing: Any, budget: _Budget) -> None:
    assert process.stdin is not None  # noqa: S101 - it was started with pipes
    with suppress(OSError, RuntimeError):  # it has ended; the reader notices
        async for message in outgoing:
            text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
            budget.renew()
            process.stdin.write(f"{text}\n".encode())
            await process.stdin.drain()


async def _log_stderr(process: Process) -> None:
    assert process.stderr is not None  # noqa: S101 - it was started with pipes
    while chunk := await process.stderr.read(_LOG_CHARS):
        _log.debug("an MCP server says: %s", clean(chunk.decode("utf-8", "replace")))


async def _end_by_itself(process: Process) -> None:
    """Close a server's stdin, which tells it to end, and wait a little."""
    assert process.stdin is not None  # noqa: S101 - it was started with pipes
    process.stdin.close()
    with suppress(TimeoutError):
        async with asyncio.timeout(_END_S):
            await process.wait()


async def _reaped(process: Process) -> None:
    """Wait for a process that is being killed."""
    if os.name != "posix":
        with suppress(ProcessLookupError):
            process.kill()
    try:
        async with asyncio.timeout(_KILL_S):
            await process.wait()
    except TimeoutError:  # a process that has left the group holds the pipes
        _log.warning("what an MCP server has started did not end with it")
    transport: Any = getattr(process, "_transport", None)
    if transport is not None:
        transport.close()
