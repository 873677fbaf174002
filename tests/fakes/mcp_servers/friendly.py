"""A friendly MCP server, made with the SDK's own server: `python friendly.py`."""

import os
import sys
from pathlib import Path
from typing import Any

from mcp.server import MCPServer
from mcp.server.caching import CacheHint
from mcp.server.mcpserver import Context
from mcp.types import ToolAnnotations


def make(log: str = "", *, grows: bool = False) -> MCPServer[Any]:
    """Return the server.

    Args:
        log: a file to which `note` appends, which is its effect.
        grows: whether it has a tool that adds one; its list may be kept for an hour, and it says
            when that changes.
    """
    hints: Any = {"tools/list": CacheHint(ttl_ms=3_600_000)} if grows else None
    server = MCPServer("friendly", cache_hints=hints)
    if grows:
        let_grow(server)

    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @server.tool(annotations=ToolAnnotations(idempotent_hint=True))
    def put(name: str) -> str:
        """Put a name."""
        return f"put {name}"

    @server.tool(name="note.it")
    def note(text: str) -> str:
        """Note a text."""
        with Path(log).open("a", encoding="utf-8") as file:
            file.write(f"{text}\n")
        return f"noted {text}"

    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    def environment() -> list[str]:
        """Return the names of the variables of the environment."""
        return sorted(os.environ)

    @server.tool()
    def fail() -> str:
        """Fail."""
        raise RuntimeError("out of paper")

    return server


def let_grow(server: MCPServer[Any]) -> None:
    """Add the tool that adds one."""

    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    async def grow(context: Context) -> str:
        """Offer one tool more, and say so."""
        if "more" not in [each.name for each in await server.list_tools()]:
            server.add_tool(lambda: "more", name="more", description="More.")
        await context.notify_tools_changed()
        return "grown"


if __name__ == "__main__":
    make(*sys.argv[1:]).run("stdio")
