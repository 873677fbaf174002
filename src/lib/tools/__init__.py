"""Tools: functions that a model may call, each with its schema and its declared effect."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lib._util.lazy import lazy_exports
from lib.errors import ToolError
from lib.tools.checks import CannotTell, CheckResult, DidNotHappen, Happened
from lib.tools.definition import (
    Deps,
    Effects,
    RepeatAfterUnknown,
    Tool,
    ToolAnnotations,
    ToolContext,
    ToolRegistry,
)
from lib.tools.toolset import OpenToolset, Toolset

if TYPE_CHECKING:
    from lib.tools.function import FunctionTool, tool
    from lib.tools.resilient import resilient_tool

__all__ = [
    "CannotTell",
    "CheckResult",
    "Deps",
    "DidNotHappen",
    "Effects",
    "FunctionTool",
    "Happened",
    "OpenToolset",
    "RepeatAfterUnknown",
    "Tool",
    "ToolAnnotations",
    "ToolContext",
    "ToolError",
    "ToolRegistry",
    "Toolset",
    "resilient_tool",
    "tool",
]

if not TYPE_CHECKING:  # type checkers are to see misspelt names
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "FunctionTool": "lib.tools.function",
            "resilient_tool": "lib.tools.resilient",
            "tool": "lib.tools.function",
        },
    )
