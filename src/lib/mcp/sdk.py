"""The official SDK, or the error that names the extra which brings it."""

from __future__ import annotations

from lib.errors import MissingDriver

try:
    import mcp_types as types
    from mcp.server.context import ServerRequestContext as RequestContext
    from mcp.server.lowlevel import Server
    from mcp.server.models import InitializationOptions
    from mcp.server.stdio import stdio_server
    from mcp.shared.exceptions import MCPError
    from mcp.shared.inbound import MCP_NAME_HEADER, decode_header_value
    from mcp.shared.message import ServerMessageMetadata as RequestMetadata
    from mcp.shared.subscriptions import SUBSCRIPTION_ID_META_KEY
    from mcp.shared.uri_template import UriTemplate
    from mcp_types import LOG_LEVEL_META_KEY as LOG_LEVEL_KEY
    from mcp_types.version import MODERN_PROTOCOL_VERSIONS as MODERN_VERSIONS
except ModuleNotFoundError as _error:
    raise MissingDriver("lib.mcp", driver=_error.name or "mcp", extra="mcp") from _error

__all__ = [
    "LOG_LEVEL_KEY",
    "MCP_NAME_HEADER",
    "MODERN_VERSIONS",
    "SUBSCRIPTION_ID_META_KEY",
    "InitializationOptions",
    "MCPError",
    "RequestContext",
    "RequestMetadata",
    "Server",
    "UriTemplate",
    "decode_header_value",
    "stdio_server",
    "types",
]
