"""Whether a model is about to read for the first time what a run was given. Pure."""

from __future__ import annotations

from typing import Any

from lib.engine.core.state import RunState
from lib.events import kinds as k


def is_fresh(state: RunState[Any]) -> bool:
    """Tell whether a run that a caller has started has had no model call that came to its end.

    All that it was given is new then, even what it says that a model has replied. What went before
    a turn of a session is not: it was checked when it was said.
    """
    waiting = sum(request.kind == k.LLM_REQUESTED for request in state.open.values())
    return state.root_id == state.run_id and state.spend.llm_calls <= waiting
