"""Streamable HTTP of the SDK over a server of tools; loaded with the first request to it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Final

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from lib.engine import Engine
from lib.mcp import Caller, MCPToolServer
from lib.mcp.offered import StartRun
from lib.mcp.server import CALLER_KEY
from lib_server.limits import Limits
from lib_server.mcp.legacy import LegacyEndpoint

__all__ = ["BODY_KEY", "CALLER_KEY", "Caller", "MakeServer", "StartRun", "opened"]

BODY_KEY: Final = "lib.mcp.body"
MakeServer = Callable[[Engine], MCPToolServer]


@asynccontextmanager
async def opened(
    engine: Engine, make: MakeServer | None, *, limits: Limits
) -> AsyncGenerator[ASGIApp]:
    """Serve until the end of the block: `POST` of every version, `GET` and `DELETE`.

    Scopes have the caller (`CALLER_KEY`) and the body (`BODY_KEY`), which is received, too.

    Args:
        engine: of the HTTP server.
        make: makes the server of tools; None for one of the agents of the engine.
        limits: of the HTTP server.

    Raises:
        ValueError: the server of tools has another engine.
    """
    server = MCPToolServer(engine) if make is None else make(engine)
    if server.engine not in (None, engine):
        raise ValueError("the agents have another engine: use MCPToolServer(…, engine=engine)")
    manager = StreamableHTTPSessionManager(
        server.protocol, stateless=True, max_request_body_size=limits.body_bytes
    )

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        # Some HTTP servers leave the white space around header values, which the SDK compares.
        stripped = [(name, value.strip(b" \t")) for name, value in scope["headers"]]
        scope = {**scope, "headers": stripped}
        version = Headers(scope=scope).get(MCP_PROTOCOL_VERSION_HEADER)
        is_legacy = version is None or version in HANDSHAKE_PROTOCOL_VERSIONS
        if scope["method"] == "GET":
            await legacy.listen(scope, receive, send)
        elif scope["method"] == "DELETE":
            await legacy.end(scope, receive, send)
        elif not (is_legacy and await legacy.answer(scope, receive, send, scope[BODY_KEY])):
            await manager.handle_request(scope, receive, send)

    protocol = server.protocol
    async with server, protocol.lifespan(protocol) as state, manager.run():
        legacy = LegacyEndpoint(server, state, limits, engine.clock)
        yield answer
