"""Servers as processes, and what agents make of them."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import uvicorn

from fakes.mcp_servers.friendly import make
from fakes.mcp_servers.hostile import answer
from fakes.raw_server import raw_server
from lib.mcp.client.toolset import MCPTools
from lib.tools import OpenToolset, ToolContext

FAKES = Path(__file__).parent
CONTEXT = ToolContext(run_id="r", call_id="c", idempotency_key="key-1")


def friendly(*arguments: str, **options: Any) -> MCPTools:
    command = [sys.executable, str(FAKES / "friendly.py"), *arguments]
    options = {"connect_timeout_s": 120.0, **options}
    return MCPTools(command=command, **options)


def over_http(url: str, **options: Any) -> MCPTools:
    options = {"connect_timeout_s": 120.0, "allow_private_networks": True, **options}
    return MCPTools(url, **options)


def hostile(mode: str, *arguments: str, **options: Any) -> MCPTools:
    command = [sys.executable, "-I", "-S", str(FAKES / "hostile.py"), mode, *arguments]
    options = {"connect_timeout_s": 120.0, "timeout_s": 120.0, **options}
    return MCPTools(command=command, **options)


@asynccontextmanager
async def opened(server: MCPTools) -> AsyncGenerator[OpenToolset]:
    """Open a toolset, find its tools, and close it."""
    toolset = server.open_tools([])
    try:
        await toolset.refresh()
        yield toolset
    finally:
        await toolset.aclose()


async def call(toolset: OpenToolset, name: str, **arguments: Any) -> Any:
    tool = next(tool for tool in toolset.tools if tool.name == name)
    return await tool.call(arguments, CONTEXT)


@asynccontextmanager
async def hostile_http(mode: str, *, location: str = "") -> AsyncGenerator[HostileHTTP]:
    """Serve the hostile server over HTTP on loopback; see `hostile.answer`.

    Args:
        mode: how it misbehaves; "redirects" answers each request with a redirect to `location`,
            and "redirects-calls" only calls.
        location: of a redirect.
    """
    hostile_answers = HostileHTTP()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path, headers, message = await _request(reader)
        hostile_answers.requests.append((path, headers, message))
        method = message.get("method", "")
        status, more, body = "200 OK", "", b""
        if mode == "hangs" and method == "tools/call":
            await reader.read()  # until the client lets go
            hostile_answers.abandoned.set()
            return
        if mode == "redirects" or (mode == "redirects-calls" and method == "tools/call"):
            status, more = "307 Temporary Redirect", f"Location: {location}\r\n"
        elif method == "tools/call" and mode == "breaks-off":
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n")
            writer.write(b"Content-Length: 1000\r\n\r\n{")
            await writer.drain()
            return
        elif method == "tools/call" and mode == "bomb":
            more, body = "Content-Encoding: gzip\r\n", gzip.compress(b" " * 50_000_000)
        elif method == "tools/call" and mode == "too-much":
            body = b" " * 10_000_000
        elif "id" in message:
            body = json.dumps(answer(mode, message, hostile_answers.listed)).encode()
        else:
            status = "202 Accepted"
        head_out = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\n{more}"
        writer.write(f"{head_out}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        await writer.drain()

    async with raw_server(accept) as port:
        hostile_answers.url = f"http://127.0.0.1:{port}/mcp"
        yield hostile_answers


async def _request(reader: asyncio.StreamReader) -> tuple[str, dict[str, str], dict[str, Any]]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("ascii")
    headers = dict(line.split(": ", 1) for line in head.splitlines()[1:] if line)
    length = int(headers.get("content-length") or headers.get("Content-Length") or 0)
    return head.split()[1], headers, json.loads(await reader.readexactly(length) or "{}")


class HostileHTTP:
    """A running server: its URL, and the requests that it got as (path, headers, message)."""

    def __init__(self) -> None:
        self.url = ""
        self.abandoned = asyncio.Event()
        self.requests: list[tuple[str, dict[str, str], dict[str, Any]]] = []

    @property
    def listed(self) -> int:
        """The number of requests for its tools."""
        return sum(message.get("method") == "tools/list" for _, _, message in self.requests)


@asynccontextmanager
async def friendly_http(log: str = "", *, grows: bool = False) -> AsyncGenerator[str]:
    """Serve the friendly server over HTTP on loopback and yield its URL."""
    listening = socket.create_server(("127.0.0.1", 0))
    app = make(log, grows=grows).streamable_http_app()
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical", ws="none"))
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"
    finally:
        server.should_exit = True
        await serving
        listening.close()
