"""Tools: functions that a model may call, each with its schema and its declared effect."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lib.errors import ToolError
from lib.tools.checks import CannotTell, CheckResult, DidNotHappen, Happened
from lib.tools.definition import (
    Deps,
    Effects,
    RepeatAfterUnknown,
    Tool,
    ToolAnnotations,
    ToolContext,
)
from lib.tools.registry import ToolRegistry

if TYPE_CHECKING:
    from lib.tools.function import FunctionTool, tool

__all__ = [
    "CannotTell",
    "CheckResult",
    "Deps",
    "DidNotHappen",
    "Effects",
    "FunctionTool",
    "Happened",
    "RepeatAfterUnknown",
    "Tool",
    "ToolAnnotations",
    "ToolContext",
    "ToolError",
    "ToolRegistry",
    "tool",
]


def __getattr__(name: str) -> Any:
    if name in ("FunctionTool", "tool"):
        from lib.tools import function  # noqa: PLC0415 - loads pydantic

        return getattr(function, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
