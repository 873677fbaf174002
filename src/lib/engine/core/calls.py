"""What a model is told of the calls that it has made: of tools, and of agents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lib.events import Event
from lib.events import kinds as k
from lib.llm import ToolResult


def call_result(event: Event) -> ToolResult:
    """Return the result of a call, from the event that closes its request.

    Args:
        event: `lib.tool.completed`, `lib.tool.failed` or `lib.child.completed`.
    """
    data = event.data
    call_id = data.get("call_id", "")
    if event.kind == k.CHILD_COMPLETED:
        completed = data.get("outcome") == "COMPLETED"
        content = data.get("output", "") if completed else _unfinished(data)
        return ToolResult(call_id, content, not completed)
    if event.kind == k.TOOL_FAILED:
        return ToolResult(call_id, data.get("message", ""), is_error=True)
    return ToolResult(call_id, data.get("output", ""))


def _unfinished(data: Mapping[str, Any]) -> str:
    """Say how an agent has ended that did not complete, and what there is of its answer."""
    error: Mapping[str, Any] = data.get("error") or {}
    message = error.get("message")
    reasons = ": ".join(str(each) for each in (data.get("reason"), message) if each)
    told = f"the agent ended as {data.get('outcome')}{f' ({reasons})' if reasons else ''}"
    output = data.get("output")
    return f"{told}; what there is of its answer:\n{output}" if output else told
