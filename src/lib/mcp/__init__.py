"""The Model Context Protocol: agents use tools of its servers, and its clients use ours.

Needs the extra `mcp`, which is loaded when a name is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lib._util.lazy import lazy_exports

if TYPE_CHECKING:
    from lib.mcp.client.inputs import Elicitation
    from lib.mcp.client.toolset import MCPTools
    from lib.mcp.functions import Prompt, Resource, prompt, resource
    from lib.mcp.inputs import InputRequired, ask, can_ask, form
    from lib.mcp.notices import close_response, log
    from lib.mcp.offered import Caller
    from lib.mcp.server import MCPToolServer
    from lib.mcp.stdio import serve_stdio
    from lib.mcp.task_tool import TaskTool

__all__ = [
    "Caller",
    "Elicitation",
    "InputRequired",
    "MCPToolServer",
    "MCPTools",
    "Prompt",
    "Resource",
    "TaskTool",
    "ask",
    "can_ask",
    "close_response",
    "form",
    "log",
    "prompt",
    "resource",
    "serve_stdio",
]

if not TYPE_CHECKING:  # type checkers are to see misspelt names
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "Caller": "lib.mcp.offered",
            "Elicitation": "lib.mcp.client.inputs",
            "InputRequired": "lib.mcp.inputs",
            "ask": "lib.mcp.inputs",
            "can_ask": "lib.mcp.inputs",
            "form": "lib.mcp.inputs",
            "close_response": "lib.mcp.notices",
            "log": "lib.mcp.notices",
            "MCPToolServer": "lib.mcp.server",
            "MCPTools": "lib.mcp.client.toolset",
            "Prompt": "lib.mcp.functions",
            "Resource": "lib.mcp.functions",
            "prompt": "lib.mcp.functions",
            "resource": "lib.mcp.functions",
            "serve_stdio": "lib.mcp.stdio",
            "TaskTool": "lib.mcp.task_tool",
        },
    )
