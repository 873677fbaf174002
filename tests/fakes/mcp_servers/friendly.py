"""A friendly MCP server, made with the SDK's own server: `python friendly.py`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from mcp.server import MCPServer
from mcp.types import ToolAnnotations


def make(log: str = "") -> MCPServer[Any]:
    """Return the server.

    Args:
        log: a file to which `note` appends, which is its effect.
    """
    server = MCPServer("friendly")

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


if __name__ == "__main__":
    make(*sys.argv[1:]).run("stdio")
