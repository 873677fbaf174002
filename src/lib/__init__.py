"""Put LLM agents in front of customers: durable runs, one vector contract, traces from the log.

`from lib import Agent` is the front door. What else there is, is in `lib.engine`, `lib.events`,
`lib.llm`, `lib.tools`, `lib.guards`, `lib.vector`, `lib.observe` and `lib.ingest`. `import lib`
alone loads nothing but this page.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from lib._util.version import __version__
    from lib.agent import Agent
    from lib.engine import Budget, Engine, Result, Run, Session
    from lib.errors import ToolError
    from lib.events import open_store
    from lib.tools import tool

__all__ = [
    "Agent",
    "Budget",
    "Engine",
    "Result",
    "Run",
    "Session",
    "ToolError",
    "__version__",
    "open_store",
    "tool",
]

_HOMES: Final = {
    "Agent": "lib.agent",
    "Budget": "lib.engine",
    "Engine": "lib.engine",
    "Result": "lib.engine",
    "Run": "lib.engine",
    "Session": "lib.engine",
    "__version__": "lib._util.version",
    "ToolError": "lib.errors",
    "open_store": "lib.events",
    "tool": "lib.tools",
}

if not TYPE_CHECKING:  # a type checker is to see misspelt names

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module  # noqa: PLC0415 - only what is used is loaded

        return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return [*globals(), *_HOMES]
