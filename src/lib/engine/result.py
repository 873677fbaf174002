"""How a run ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lib.engine.core.budget import Spend
from lib.engine.core.state import RunState


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """How a run ended.

    Attributes:
        outcome: COMPLETED, FAILED, CANCELLED, BLOCKED or LIMITED.
        output: the answer; what there was of it when the run did not complete.
        reason: why it did not, in a word or two.
        error: the type and message of what failed.
        spend: what it has used.
    """

    run_id: str
    outcome: str
    output: str
    reason: str
    error: Mapping[str, Any] | None
    spend: Spend

    @classmethod
    def of(cls, state: RunState[Any]) -> Result:
        """Return the result that the state of a closed run holds."""
        finish = state.finish or {}
        return cls(
            run_id=state.run_id,
            outcome=finish["outcome"],
            output=finish.get("output", ""),
            reason=finish.get("reason", ""),
            error=finish.get("error"),
            spend=state.spend,
        )
