"""What each kind of event means for the spans of its run: one reader per kind, in one table.

A kind without a reader changes nothing, whoever has written it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from lib.events import Event
from lib.events import kinds as k
from lib.observe import attributes as a
from lib.observe.span import RESUMED, Status
from lib.observe.spans.run import RunSpans

_WORD: Final = re.compile(r"[\w.:/-]{1,64}", re.ASCII)
_CALLED_OFF: Final = frozenset({"cancelled", "denied"})
_OUTCOME_STATUS: Final[Mapping[str, Status]] = {"COMPLETED": "ok", "CANCELLED": "ok"}


def word(value: Any) -> str | None:
    """Return the value if it is one of few words rather than a text, else None."""
    return value if isinstance(value, str) and _WORD.fullmatch(value) else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _object(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


# -- the run ---------------------------------------------------------------------------------------


def run_started(run: RunSpans, event: Event) -> None:
    """Describe the run's own span."""
    data = event.data
    if system := _object(data.get("config")).get("system"):
        run.conversation.add({"role": "system", "content": system})
    for message in data.get("input", ()):
        run.conversation.add(message)
    name = data["algorithm"]
    shown, omitted = run.content.newest(run.conversation)
    attributes = {
        a.OPERATION: "invoke_agent",
        a.AGENT_NAME: name,
        a.PARENT_RUN: _object(data.get("parent")).get("run_id"),
        a.OMITTED: omitted or None,
    }
    run.describe(f"invoke_agent {name}", attributes, input=shown)


def _run_resumed(run: RunSpans, event: Event) -> None:
    data = event.data
    run.moment(event, RESUMED, {a.WORKER: data.get("worker"), a.EPOCH: data.get("epoch")})
    run.resumed()


def _run_completed(run: RunSpans, event: Event) -> None:
    data = event.data
    outcome = data["outcome"]
    status = _OUTCOME_STATUS.get(outcome, "error")
    run.finish_all(event.at, "approval")  # whoever waited for a person waits no more
    attributes = {
        a.RUN_OUTCOME: outcome,
        # What a cancelled run has for a reason is what somebody has typed.
        a.REASON: run.content.show(data.get("reason"))
        if outcome == "CANCELLED"
        else word(data.get("reason")),
        a.ERROR_TYPE: None if status == "ok" else _error_type(data, outcome),
    }
    message = _text(_object(data.get("error")).get("message"))
    run.end(
        event.at,
        attributes,
        status=status,
        status_message=run.content.show(message),
        output=run.content.show(data.get("output")),
    )


def _error_type(data: Mapping[str, Any], outcome: str) -> str:
    if outcome != "FAILED":
        return outcome.lower()
    return word(_object(data.get("error")).get("type")) or word(data.get("reason")) or "failed"


def _cancel_requested(run: RunSpans, event: Event) -> None:
    run.moment(
        event, "cancel.requested", {a.REASON: run.content.show(_text(event.data.get("reason")))}
    )


# -- model calls -----------------------------------------------------------------------------------


def _llm_requested(run: RunSpans, event: Event) -> None:
    data = event.data
    run.use("llm_calls", 1)
    run.conversation.add_answers()
    shown, omitted = run.content.newest(run.conversation)
    settings = _object(data.get("settings"))
    attributes: dict[str, Any] = {
        name: value
        for setting, name in a.SETTINGS.items()
        if isinstance(value := settings.get(setting), int | float)
    }
    model = _text(data.get("model"))
    attributes |= {
        a.OPERATION: "chat",
        a.REQUEST_MODEL: model,
        a.OMITTED: omitted or None,
        a.KEY: data["key"],
    }
    run.begin(
        event,
        "llm",
        data["key"],
        name=f"chat {model}" if model else "chat",
        kind="llm",
        attributes=attributes,
        shown=shown,
    )


def _llm_completed(run: RunSpans, event: Event) -> None:
    data, reply = event.data, _object(event.data["reply"])
    model = _text(reply.get("model"))
    message = {"role": "assistant", "parts": reply.get("parts", [])}
    run.conversation.add(message)
    attributes = {
        a.RESPONSE_ID: _text(reply.get("id")),
        a.RESPONSE_MODEL: model,
        a.FINISH_REASONS: [reply.get("stop", "stop")],
        a.ATTEMPTS: data.get("attempts"),
        **run.usage(_object(reply.get("usage"))),
    }
    shown = run.content.show(message)
    run.finish(event.at, "llm", data["key"], attributes, model=model, shown=shown)


def _llm_failed(run: RunSpans, event: Event) -> None:
    data = event.data
    attributes = {a.ATTEMPTS: data.get("attempts")}
    _fail(run, event, "llm", _object(data.get("error")), attributes)


def _fail(
    run: RunSpans,
    event: Event,
    family: str,
    error: Mapping[str, Any],
    attributes: Mapping[str, Any],
) -> None:
    """Finish a call that has failed, or that was called off."""
    reason = event.data.get("reason", "error")
    called_off = reason in _CALLED_OFF
    kind = word(error.get("type")) if reason == "error" else None
    told = {
        a.REASON: word(reason),
        a.ERROR_TYPE: None if called_off else kind or word(reason),
        a.HTTP_STATUS: error.get("status"),
    }
    run.finish(
        event.at,
        family,
        event.data["key"],
        {**attributes, **told},
        status="ok" if called_off else "error",
        message=run.content.show(_text(error.get("message"))),
    )


# -- tool calls and approvals ----------------------------------------------------------------------


def _tool_requested(run: RunSpans, event: Event) -> None:
    data = event.data
    unstarted = data.get("unstarted")
    if not unstarted:
        run.use("tool_calls", 1)
    run.conversation.call(data["key"])
    run.finish(event.at, "approval", data["key"], {})
    attributes = {
        a.OPERATION: "execute_tool",
        a.TOOL_NAME: data["name"],
        a.TOOL_CALL_ID: data["call_id"],
        a.TOOL_TYPE: "function",
        a.TOOL_EFFECTS: word(data.get("effects")),
        a.TOOL_UNSTARTED: unstarted,
        a.KEY: data["key"],
    }
    run.begin(
        event,
        "tool",
        data["key"],
        name=f"execute_tool {data['name']}",
        kind="tool",
        attributes=attributes,
        shown=run.content.show(data.get("args")),
    )


def _tool_completed(run: RunSpans, event: Event) -> None:
    data = event.data
    _answer(run, data, {"content": data["output"]})
    attributes = {a.TOOL_TRUNCATED: data.get("truncated")}
    run.finish(event.at, "tool", data["key"], attributes, shown=run.content.show(data["output"]))


def _tool_failed(run: RunSpans, event: Event) -> None:
    data = event.data
    _answer(run, data, {"content": data["message"], "is_error": True})
    _fail(run, event, "tool", {"type": data["code"], "message": data["message"]}, {})


def _answer(run: RunSpans, data: Mapping[str, Any], result: Mapping[str, Any]) -> None:
    part = {"type": "tool_result", "call_id": data["call_id"], **result}
    run.conversation.answer(data["key"], {"role": "tool", "parts": [part]})


def _approval_requested(run: RunSpans, event: Event) -> None:
    data = event.data
    run.begin(
        event,
        "approval",
        data["key"],
        name=f"approval {data['name']}",
        kind="internal",
        attributes={
            a.TOOL_NAME: data["name"],
            a.TOOL_CALL_ID: data["call_id"],
            a.KEY: data["key"],
        },
        shown=run.content.show(data.get("args")),
    )


def _approval_decided(run: RunSpans, event: Event) -> None:
    data = event.data
    run.finish(
        event.at,
        "approval",
        data["key"],
        {a.APPROVED: data["approved"], a.APPROVED_BY: event.user},
        shown=run.content.show(_text(data.get("comment"))),
    )


# -- the rest --------------------------------------------------------------------------------------


def _turn_requested(run: RunSpans, event: Event) -> None:
    data = event.data
    run.begin(
        event,
        "turn",
        data["signal_id"],
        name="turn",
        kind="internal",
        attributes={a.KEY: data["signal_id"]},
        shown=run.content.show(data.get("input")),
    )


def _turn_completed(run: RunSpans, event: Event) -> None:
    data = event.data
    outcome = data["outcome"]
    status: Status = _OUTCOME_STATUS.get(outcome, "error")
    attributes = {
        a.RUN_OUTCOME: outcome,
        a.ERROR_TYPE: None if status == "ok" else _error_type(data, outcome),
    }
    run.finish(event.at, "turn", data["signal_id"], attributes, status=status)


def _memory_requested(run: RunSpans, event: Event) -> None:
    data = event.data
    operation = word(data.get("operation"))
    rest = {name: data[name] for name in data if name not in ("key", "operation")}
    run.begin(
        event,
        "memory",
        data["key"],
        name=operation or "memory",
        kind="memory",
        attributes={a.OPERATION: operation, a.KEY: data["key"]},
        shown=run.content.show(rest or None),
    )


def _memory_completed(run: RunSpans, event: Event) -> None:
    rest = {name: value for name, value in event.data.items() if name != "key"}
    run.finish(event.at, "memory", event.data["key"], {}, shown=run.content.show(rest or None))


def _memory_failed(run: RunSpans, event: Event) -> None:
    _fail(run, event, "memory", _object(event.data.get("error")), {})


def _guard_verdict(run: RunSpans, event: Event) -> None:
    data, key = event.data, str(event.seq)
    attributes = {
        a.GUARD_NAME: data["guard"],
        a.GUARD_STAGE: word(data.get("stage")),
        a.GUARD_VERDICT: word(data.get("verdict")),
        a.GUARD_CONTENT: word(data.get("content_hash")),
        **run.usage(_object(data.get("usage"))),
    }
    name = f"guard {data['guard']}"
    run.begin(event, "guard", key, name=name, kind="guardrail", attributes=attributes)
    run.finish(event.at, "guard", key, {})


READERS: Final[Mapping[str, Callable[[RunSpans, Event], None]]] = {
    k.RUN_RESUMED: _run_resumed,
    k.RUN_COMPLETED: _run_completed,
    k.CANCEL_REQUESTED: _cancel_requested,
    k.LLM_REQUESTED: _llm_requested,
    k.LLM_COMPLETED: _llm_completed,
    k.LLM_FAILED: _llm_failed,
    k.TOOL_REQUESTED: _tool_requested,
    k.TOOL_COMPLETED: _tool_completed,
    k.TOOL_FAILED: _tool_failed,
    k.APPROVAL_REQUESTED: _approval_requested,
    k.APPROVAL_DECIDED: _approval_decided,
    k.TURN_REQUESTED: _turn_requested,
    k.TURN_COMPLETED: _turn_completed,
    k.MEMORY_REQUESTED: _memory_requested,
    k.MEMORY_COMPLETED: _memory_completed,
    k.MEMORY_FAILED: _memory_failed,
    k.GUARD_VERDICT: _guard_verdict,
}
