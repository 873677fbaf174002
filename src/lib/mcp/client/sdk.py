"""The client of the official SDK, or the error that names the extra which brings it."""

from __future__ import annotations

from lib.errors import MissingDriver

try:
    import mcp_types as types
    from mcp.client import Client
    from mcp.client.extension import advertise
    from mcp.client.session import ClientRequestContext, ClientSession, IncomingMessage
    from mcp.client.streamable_http import streamable_http_client
    from mcp.shared.exceptions import MCPError
    from mcp.shared.message import SessionMessage
except ModuleNotFoundError as _error:
    raise MissingDriver("lib.mcp.MCPTools", driver="mcp", extra="mcp") from _error

__all__ = [
    "Client",
    "ClientRequestContext",
    "ClientSession",
    "IncomingMessage",
    "MCPError",
    "SessionMessage",
    "advertise",
    "streamable_http_client",
    "types",
]
