"""What each kind of event means for the spans of its run: one reader per kind, in one table.

A kind without a reader changes nothing, whoever has written it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from lib.events import Event
from lib.events import kinds as k
from lib.observe.spans import agents, calls, lifecycle, moments
from lib.observe.spans.run import RunSpans

Reader = Callable[[RunSpans, Event, str], None]

_KEY: Final = "key"
_SIGNAL: Final = "signal_id"
_SEQ: Final = ""

READERS: Final[Mapping[str, tuple[Reader, str]]] = {
    k.RUN_RESUMED: (lifecycle.run_resumed, _SEQ),
    k.RUN_COMPLETED: (lifecycle.run_completed, _SEQ),
    k.CANCEL_REQUESTED: (lifecycle.cancel_requested, _SIGNAL),
    k.LLM_REQUESTED: (calls.llm_requested, _KEY),
    k.LLM_COMPLETED: (calls.llm_completed, _KEY),
    k.LLM_FAILED: (calls.llm_failed, _KEY),
    k.TOOL_REQUESTED: (calls.tool_requested, _KEY),
    k.TOOL_CHECKED: (calls.tool_checked, _KEY),
    k.TOOL_COMPLETED: (calls.tool_completed, _KEY),
    k.TOOL_FAILED: (calls.tool_failed, _KEY),
    k.APPROVAL_REQUESTED: (calls.approval_requested, _KEY),
    k.APPROVAL_DECIDED: (calls.approval_decided, _KEY),
    k.CHILD_REQUESTED: (agents.child_requested, _KEY),
    k.CHILD_COMPLETED: (agents.child_completed, _KEY),
    k.TURN_REQUESTED: (lifecycle.turn_requested, _SIGNAL),
    k.TURN_STARTED: (lifecycle.turn_started, _KEY),
    k.TURN_COMPLETED: (lifecycle.turn_completed, _SIGNAL),
    k.CONTEXT_SUMMARY: (moments.context_summary, _SEQ),
    k.MEMORY_REQUESTED: (calls.memory_requested, _KEY),
    k.MEMORY_COMPLETED: (calls.memory_completed, _KEY),
    k.MEMORY_FAILED: (calls.memory_failed, _KEY),
    k.GUARD_VERDICT: (moments.guard_verdict, _SEQ),
    k.EVAL_SCORE: (moments.eval_score, _SIGNAL),
    k.SWARM_HANDOFF: (moments.swarm_handoff, _SEQ),
    k.REFLEXION_FEEDBACK: (moments.reflexion_feedback, _SEQ),
    k.DEBATE_TURN: (moments.debate_turn, _SEQ),
}
"""For each kind its reader, and the payload field that tells its spans from others."""


def read(run: RunSpans, event: Event) -> None:
    """Let an event change the spans of its run; once that has ended, only scores do."""
    found = READERS.get(event.kind)
    if found is None or (run.ended and event.kind != k.EVAL_SCORE):
        return
    if kind := lifecycle.BECOME.get(event.kind):
        run.become(kind)
    reader, field = found
    key = event.data.get(field)
    reader(run, event, key if isinstance(key, str) else str(event.seq))
    if not k.is_signal(event.kind):
        run.heard_at = event.at
