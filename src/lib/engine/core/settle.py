"""Results that the engine logs without an effect, for calls never made or never finished.

Every request gets exactly one result, whatever happens, so that no conversation is left with a
call without a result: providers refuse those.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from lib._util.json import canonical, copied
from lib.engine.core.algorithm import (
    RECALL,
    Answer,
    Fact,
    Finish,
    MemoryRequest,
    Note,
    Refuse,
    Request,
    ToolRequest,
)
from lib.errors import ToolError, ToolErrorCode
from lib.events import Event
from lib.events import kinds as k
from lib.events.kinds import Reason
from lib.llm import ToolResult

OUTCOME_UNKNOWN: Final = (
    "outcome unknown: the process stopped while this call ran, so it may or may not have had its "
    "effect; verify before you repeat it"
)
HAPPENED: Final = "not called again: a person has found out that the call before had its effect"
NOT_CALLED: Final[Mapping[Reason, str]] = {
    "cancelled": "not called: the run was cancelled",
    "denied": "not called: a person denied it",
}
_CODES: Final[Mapping[Reason, ToolErrorCode]] = {"cancelled": "cancelled", "denied": "denied"}


@dataclass(frozen=True, slots=True)
class PendingEvent:
    """An event before it has its time and its sequence number."""

    kind: str
    data: dict[str, Any]


def tool_failed(
    request: Mapping[str, Any], reason: Reason, code: ToolErrorCode, message: str
) -> PendingEvent:
    """Return the failure of a tool call, from the payload of its request."""
    failure = {"reason": reason, "code": code, "message": message}
    return PendingEvent(
        k.TOOL_FAILED, {"key": request["key"], "call_id": request["call_id"], **failure}
    )


def fail_pending(request: Event, reason: Reason, message: str) -> PendingEvent:
    """Return the failure of a request that is open in the log.

    Raises:
        ValueError: it has started another run.
    """
    if request.kind == k.TOOL_REQUESTED:
        return tool_failed(request.data, reason, _CODES.get(reason, "unknown"), message)
    if request.kind in k.SPAWNS_RUN:
        raise ValueError(f"{request.kind!r} has no failure: the run that it started ends by itself")
    error = {"type": reason, "message": message}
    kind = request.kind.replace(".requested", ".failed")
    return PendingEvent(kind, {"key": request.data["key"], "reason": reason, "error": error})


def calls_not_made(
    requests: Iterable[Request],
    reason: Reason,
    message: str,
    *,
    code: ToolErrorCode | None = None,
) -> list[PendingEvent]:
    """Return request and failure of each tool call that will not be made.

    Args:
        requests: what was decided; what is no tool call is left out.
        reason: why, in one word.
        message: why, for the model.
        code: what kind of failure it is to the model; by default what the reason says.
    """
    code = code or _CODES[reason]
    pending_events: list[PendingEvent] = []
    for request in requests:
        if isinstance(request, ToolRequest):
            intent = tool_requested(request, unstarted=True)
            pending_events += [intent, tool_failed(intent.data, reason, code, message)]
    return pending_events


def memory_requested(request: MemoryRequest, **more: Any) -> PendingEvent:
    """Return the intent to recall or to remember."""
    query = {"query": request.texts[0]} if request.operation == RECALL else {}
    data = {"key": request.key, "operation": request.operation, **query, **more}
    return PendingEvent(k.MEMORY_REQUESTED, data)


def memory_failed(key: str, type_: str, message: str) -> PendingEvent:
    """Return the failure of a memory, which fails no run."""
    error = {"type": type_, "message": message}
    return PendingEvent(k.MEMORY_FAILED, {"key": key, "reason": "error", "error": error})


def not_remembered(request: MemoryRequest, message: str) -> list[PendingEvent]:
    """Return request and failure of what is not recalled or remembered."""
    intent = memory_requested(request, unstarted=True)
    return [intent, memory_failed(request.key, "NotCalled", message)]


def answer_settled_call(request: ToolRequest, settled: Mapping[str, Any]) -> list[PendingEvent]:
    """Return request and result of a call that is not made, since an equal one happened.

    Args:
        request: the call.
        settled: the payload of `lib.call.settled` about the equal one.
    """
    result = settled.get("result", HAPPENED)
    output = result if isinstance(result, str) else canonical(result)
    return _answered(request, output)


def _answered(request: ToolRequest, output: str) -> list[PendingEvent]:
    intent = tool_requested(request, unstarted=True)
    completed = {"key": request.key, "call_id": request.call_id, "output": output}
    return [intent, PendingEvent(k.TOOL_COMPLETED, completed)]


def fact_events(fact: Fact) -> list[PendingEvent]:
    """Return what an algorithm has decided without an effect, as events to be."""
    match fact:
        case Note(kind, data):
            return [PendingEvent(kind, copied(dict(data)))]
        case Answer(request, output):
            return _answered(request, output)
        case Refuse(request, message):
            return calls_not_made([request], "denied", message)


def reason_of(error: ToolError) -> Reason:
    """Return the reason that a failed tool call has in the log."""
    return cast("Reason", error.code) if error.code in ("blocked", "denied") else "error"


def tool_requested(request: ToolRequest, **more: Any) -> PendingEvent:
    """Return the intent to make a tool call."""
    data = {
        "key": request.key,
        "call_id": request.call_id,
        "name": request.name,
        "args": copied(dict(request.arguments)),  # a copy: the conversation keeps its own
        **more,
    }
    if request.agent is not None:
        data["agent"] = request.agent
    return PendingEvent(k.TOOL_REQUESTED, data)


def run_completed(finish: Finish) -> PendingEvent:
    """Return the end of a run."""
    data: dict[str, Any] = {"outcome": finish.outcome}
    for name in ("output", "reason", "error"):
        value = getattr(finish, name)
        if value:
            data[name] = value
    return PendingEvent(k.RUN_COMPLETED, data)


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
    """Return how an agent ended that did not complete, with what there is of its answer."""
    error: Mapping[str, Any] = data.get("error") or {}
    message = error.get("message")
    reasons = ": ".join(str(each) for each in (data.get("reason"), message) if each)
    summary = f"the agent ended as {data.get('outcome')}{f' ({reasons})' if reasons else ''}"
    output = data.get("output")
    return f"{summary}; what there is of its answer:\n{output}" if output else summary
