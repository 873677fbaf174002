"""Logs written by hand, for tests of what reads logs: sinks, observers, folds."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from lib.events import Event, EventStore, NewEvent
from lib.events import kinds as k

_START: Final = datetime(2026, 1, 1, 12, tzinfo=UTC)


def make_log(
    *entries: tuple[float, str, dict[str, Any]],
    run_id: str = "run",
    tenant: str | None = "acme",
    user: str | None = "ann",
) -> list[Event]:
    """Return a log written by hand: for each event its time, kind and payload.

    Args:
        entries: times are seconds after noon of 2026-01-01, in UTC.
        run_id: the run.
        tenant: the owner of the run.
        user: the user of every event.
    """
    return [
        Event(run_id, seq, kind, data, at(seconds), tenant, user)
        for seq, (seconds, kind, data) in enumerate(entries, 1)
    ]


def at(seconds: float) -> datetime:
    """Return the time that `make_log` gives to an event so many seconds after noon."""
    return _START + timedelta(seconds=seconds)


async def store_log(store: EventStore, log: Sequence[Event]) -> None:
    """Append a whole log to a store, as its owner would have."""
    events = [NewEvent(event.kind, event.data, event.at, event.tenant, event.user) for event in log]
    await store.append(log[0].run_id, events, expected=0)


def talkative_log(secret: str, *, run_id: str = "run") -> list[Event]:
    """Return the log of a run that has ended and in whose every content there is `secret`.

    It is in prompts, replies, arguments, results, the texts of errors and summaries, what a person
    has typed, and in the comment and meta of a score.
    """
    message = {"role": "user", "content": secret}
    parts: list[Any] = [
        {"type": "text", "text": secret},
        {"type": "tool_call", "id": "a", "name": "search", "arguments": {"query": secret}},
    ]
    error = {"type": "SomeError", "message": secret}
    score = {"name": "quality", "value": 0.5, "comment": secret, "meta": {"why": secret}}
    return make_log(
        (0, k.RUN_STARTED, _started(message, secret)),
        (1, k.GUARD_VERDICT, {"guard": "pii", "stage": "input", "verdict": "allow"}),
        (1, k.LLM_REQUESTED, {**_model("llm/1"), "settings": {"stop": [secret], "seed": 1}}),
        (2, k.LLM_COMPLETED, {"key": "llm/1", "reply": {"parts": parts, "usage": _USAGE}}),
        (3, k.APPROVAL_REQUESTED, _call("a", secret)),
        (4, k.APPROVAL_DECIDED, {**_decided("a"), "comment": secret}),
        (5, k.TOOL_REQUESTED, _call("a", secret)),
        (6, k.TOOL_COMPLETED, {"key": "tool/a", "call_id": "a", "output": secret}),
        (6, k.TOOL_AWAITED, _call("c", secret)),
        (6, k.TOOL_ANSWERED, {"signal_id": "a-c", "key": "tool/c", "output": secret}),
        (7, k.TOOL_REQUESTED, _call("b", secret)),
        (8, k.TOOL_CHECKED, {**_checked("b"), "reason": secret}),
        (8, k.TOOL_FAILED, {**_failed("b"), "code": "failed", "message": secret}),
        (9, k.LLM_REQUESTED, _model("llm/2")),
        (10, k.LLM_FAILED, {"key": "llm/2", "reason": "error", "error": error}),
        (11, k.MEMORY_REQUESTED, {**_MEMORY, "query": secret}),
        (12, k.MEMORY_COMPLETED, {"key": "memory/1", "records": [{"text": secret}]}),
        (13, k.CONTEXT_SUMMARY, {"covers": "cd34", "text": secret}),
        (13, k.CONTEXT_REQUESTED, {**_model("summary/2"), "covers": "ef56", "messages": 2}),
        (13, k.CONTEXT_FAILED, {"key": "summary/2", "reason": "error", "error": error}),
        (14, k.REFLEXION_FEEDBACK, {"text": secret}),
        (15, k.DEBATE_TURN, {"agent": "alpha", "round": 1, "text": secret}),
        (16, k.EVAL_SCORE, {"signal_id": "s", **score}),
        (17, k.CANCEL_REQUESTED, {"signal_id": "c", "reason": secret}),
        (18, k.RUN_COMPLETED, {"outcome": "FAILED", "output": secret, "error": error}),
        run_id=run_id,
    )


_USAGE = {"input_tokens": 100, "output_tokens": 20}
_MEMORY = {"key": "memory/1", "operation": "search_memory"}


def _started(message: dict[str, str], secret: str) -> dict[str, Any]:
    return {"algorithm": "react", "input": [message], "config": {"system": secret}}


def _model(key: str) -> dict[str, Any]:
    return {"key": key, "upto": 1, "digest": "ef56", "model": "m-1"}


def _call(name: str, secret: str) -> dict[str, Any]:
    call = {"key": f"tool/{name}", "call_id": name, "name": "search", "args": {"query": secret}}
    return {**call, "effects": "none"}


def _decided(name: str) -> dict[str, Any]:
    return {"signal_id": f"d-{name}", "key": f"tool/{name}", "approved": True}


def _checked(name: str) -> dict[str, Any]:
    return {"key": f"tool/{name}", "call_id": name, "answer": "did_not_happen"}


def _failed(name: str) -> dict[str, Any]:
    return {"key": f"tool/{name}", "call_id": name, "reason": "error"}
