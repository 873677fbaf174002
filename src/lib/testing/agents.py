"""An engine over a memory store in one line, for tests of tools, agents and prompts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from lib.algorithms import React
from lib.engine import Algorithm, Engine, LLMHandler, ToolHandler
from lib.events import Event, EventStore, MemoryEventStore
from lib.llm import LLMClient
from lib.resilience import RetryPolicy
from lib.tools import Tool


def make_engine(
    client: LLMClient,
    *tools: Tool,
    store: EventStore | None = None,
    agent: Algorithm[Any] | None = None,
    **options: Any,
) -> Engine:
    """Return an engine with these tools; model calls are tried once, and nothing waits long.

    Args:
        client: the model, usually a `ScriptedClient`.
        tools: what it may call.
        store: the logs; a new `MemoryEventStore` by default.
        agent: the algorithm; `React()` by default.
        options: passed to `Engine`.
    """
    handlers = [LLMHandler(client, retries=RetryPolicy(attempts=1)), ToolHandler(tools)]
    settings: dict[str, Any] = {"poll_s": 0.01, "grace_s": 60.0, **options}
    return Engine(store or MemoryEventStore(), handlers, algorithms=[agent or React()], **settings)


def kinds(events: Iterable[Event]) -> Sequence[str]:
    """Return what happened, without the prefix `lib.`."""
    return [event.kind.removeprefix("lib.") for event in events]
