"""A log that holds a text wherever people, models and tools can have put it."""

from __future__ import annotations

from typing import Any

from lib.events import Event
from lib.events import kinds as k
from lib.testing.logs import make_log


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
        (7, k.TOOL_REQUESTED, _call("b", secret)),
        (8, k.TOOL_CHECKED, {**_checked("b"), "reason": secret}),
        (8, k.TOOL_FAILED, {**_failed("b"), "code": "failed", "message": secret}),
        (9, k.LLM_REQUESTED, _model("llm/2")),
        (10, k.LLM_FAILED, {"key": "llm/2", "reason": "error", "error": error}),
        (11, k.MEMORY_REQUESTED, {**_MEMORY, "query": secret}),
        (12, k.MEMORY_COMPLETED, {"key": "memory/1", "records": [{"text": secret}]}),
        (13, k.CONTEXT_SUMMARY, {"covers": "cd34", "text": secret}),
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
