"""Shared by tests of spans: the start of a run, a call, and the span it becomes."""

from typing import Any

from lib.observe import span_id_of

START: dict[str, Any] = {
    "algorithm": "support",
    "input": [{"role": "user", "content": "refund my shoes"}],
    "config": {"system": "be nice"},
}
ROOT = span_id_of("run", "run", "")
FAILURE = {"code": "timeout", "message": "too slow"}


def call_payload(call: str, name: str, **more: Any) -> dict[str, Any]:
    return {"key": f"tool/1/{call}", "call_id": call, "name": name, "args": {"of": call}, **more}
