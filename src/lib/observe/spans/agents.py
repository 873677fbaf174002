"""What a call of an agent means for the spans of the run that makes it. Pure.

To the model it is the call of a tool. What the agent does has spans of its own below this one.
"""

from __future__ import annotations

from dataclasses import replace

from lib.engine.core.settle import call_result
from lib.events import Event
from lib.observe import attributes as a
from lib.observe.spans.calls import answer, begin_call
from lib.observe.spans.lifecycle import OUTCOME_STATUS, UNKNOWN, error_type
from lib.observe.spans.run import RunSpans
from lib.observe.spans.values import mapping, text, word


def child_requested(run: RunSpans, event: Event, key: str) -> None:
    """Begin the call of an agent, and end the waiting for somebody who was to allow it."""
    run.use("tool_calls", 1)
    run.conversation.call(key)
    run.finish(event.at, "approval", key, {})
    begin_call(run, event, "tool", key, {a.OPERATION: "execute_tool", a.TOOL_TYPE: "function"})


def child_completed(run: RunSpans, event: Event, key: str) -> None:
    """Finish the call as the agent's run has ended."""
    data = event.data
    outcome = word(data.get("outcome")) or UNKNOWN
    status = OUTCOME_STATUS.get(outcome, "error")
    message, output = text(mapping(data.get("error")).get("message")), text(data.get("output"))
    told = {
        "call_id": data.get("call_id"),
        "outcome": outcome,
        "output": output or "",
        "reason": text(data.get("reason")),
        "error": {"message": message},
    }
    result = call_result(replace(event, data=told))  # what the model is told, in these words
    answer(run, event, key, {"content": result.content, "is_error": result.is_error})
    attributes = {
        a.RUN_OUTCOME: outcome,
        a.ERROR_TYPE: None if status == "ok" else error_type(data, outcome),
    }
    shown, told = run.content.show(output), run.content.show(message)
    run.finish(event.at, "tool", key, attributes, status=status, message=told, shown=shown)
