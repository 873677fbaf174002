"""The Model Context Protocol: tools, agents, resources and prompts for any client of it.

Needs the extra `mcp`, which is loaded when a name is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lib._util.lazy import lazy_exports

if TYPE_CHECKING:
    from lib.mcp.functions import Prompt, Resource, prompt, resource
    from lib.mcp.offered import Caller
    from lib.mcp.server import MCPToolServer
    from lib.mcp.stdio import serve_stdio

__all__ = [
    "Caller",
    "MCPToolServer",
    "Prompt",
    "Resource",
    "prompt",
    "resource",
    "serve_stdio",
]

if not TYPE_CHECKING:  # type checkers are to see misspelt names
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "Caller": "lib.mcp.offered",
            "MCPToolServer": "lib.mcp.server",
            "Prompt": "lib.mcp.functions",
            "Resource": "lib.mcp.functions",
            "prompt": "lib.mcp.functions",
            "resource": "lib.mcp.functions",
            "serve_stdio": "lib.mcp.stdio",
        },
    )
