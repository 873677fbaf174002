"""Streamable HTTP of the SDK over a server of tools; loaded with the first request to it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.types import ASGIApp, Receive, Scope, Send

from lib.engine import Engine
from lib.mcp import Caller, MCPToolServer
from lib.mcp.offered import StartRun
from lib.mcp.server import CALLER_KEY

__all__ = ["CALLER_KEY", "Caller", "MakeServer", "StartRun", "opened"]

MakeServer = Callable[[Engine], MCPToolServer]


@asynccontextmanager
async def opened(
    engine: Engine, make: MakeServer | None, *, max_body_bytes: int
) -> AsyncGenerator[ASGIApp]:
    """Serve until the end of the block; requests of every version of the protocol are answered.

    Args:
        engine: of the HTTP server.
        make: makes the server of tools; None for one of the agents of the engine.
        max_body_bytes: of a request.
    """
    server = MCPToolServer(engine) if make is None else make(engine)
    manager = StreamableHTTPSessionManager(
        server.protocol, stateless=True, max_request_body_size=max_body_bytes
    )

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        # Some HTTP servers leave the white space around header values, which the SDK compares.
        headers = [(name, value.strip(b" \t")) for name, value in scope["headers"]]
        await manager.handle_request({**scope, "headers": headers}, receive, send)

    async with server, manager.run():
        yield answer
