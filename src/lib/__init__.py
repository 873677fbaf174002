"""Put LLM agents in front of customers: durable runs, one vector contract, traces from the log.

`from lib import Agent` is the front door. What else there is, is in `lib.engine`, `lib.events`,
`lib.llm`, `lib.tools`, `lib.guards`, `lib.vector`, `lib.observe` and `lib.ingest`. `import lib`
loads none of them before a name is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lib._util.lazy import lazy_exports

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

if not TYPE_CHECKING:  # type checkers are to see misspelt names
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "Agent": "lib.agent",
            "Budget": "lib.engine",
            "Engine": "lib.engine",
            "Result": "lib.engine",
            "Run": "lib.engine",
            "Session": "lib.engine",
            "ToolError": "lib.errors",
            "__version__": "lib._util.version",
            "open_store": "lib.events",
            "tool": "lib.tools",
        },
    )
