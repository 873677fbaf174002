"""The official SDK, or the error that names the extra which brings it."""

from __future__ import annotations

from lib.errors import MissingDriver

try:
    import mcp_types as types
    from mcp.server.context import ServerRequestContext as RequestContext
    from mcp.server.lowlevel import Server
    from mcp.server.stdio import stdio_server
    from mcp.shared.exceptions import MCPError
    from mcp.shared.message import ServerMessageMetadata as RequestMetadata
    from mcp.shared.uri_template import UriTemplate
    from mcp_types.version import MODERN_PROTOCOL_VERSIONS as MODERN_VERSIONS
except ModuleNotFoundError as _error:
    raise MissingDriver("lib.mcp", driver=_error.name or "mcp", extra="mcp") from _error

__all__ = [
    "MODERN_VERSIONS",
    "MCPError",
    "RequestContext",
    "RequestMetadata",
    "Server",
    "UriTemplate",
    "stdio_server",
    "types",
]
