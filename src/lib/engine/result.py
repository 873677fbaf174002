"""How a run ended, or what is known of it while it is open."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lib.engine.core.budget import Spend
from lib.engine.core.state import RunState
from lib.engine.waiting import WaitingFor


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """How a run ended, or what is known of it while it is open.

    Attributes:
        outcome: COMPLETED, FAILED, CANCELLED, BLOCKED or LIMITED; None while it is open.
        output: the answer; what there was of it when the run did not complete.
        reason: why it did not, in a word or two.
        error: the type and message of what failed.
        spend: what it has used.
        waiting_for: what an open run waits for, None once it has ended.
    """

    run_id: str
    outcome: str | None
    output: str
    reason: str
    error: Mapping[str, Any] | None
    spend: Spend
    waiting_for: WaitingFor | None = None

    @classmethod
    def of(cls, state: RunState[Any]) -> Result:
        """Return the result that the state of a closed run holds."""
        finish = state.finish or {}
        return cls(
            run_id=state.run_id,
            outcome=finish.get("outcome", "FAILED"),
            output=finish.get("output", ""),
            reason=finish.get("reason", ""),
            error=finish.get("error"),
            spend=state.spend,
        )

    @classmethod
    def unfinished(cls, state: RunState[Any], waiting_for: WaitingFor) -> Result:
        """Return what is known of a run that has not ended."""
        return cls(
            run_id=state.run_id,
            outcome=None,
            output="",
            reason="",
            error=None,
            spend=state.spend,
            waiting_for=waiting_for,
        )

    def to_json(self) -> dict[str, Any]:
        """Return it for the log of the run that waited for it; nothing for what there is none."""
        told = {"output": self.output, "reason": self.reason, "error": self.error}
        return {
            "run_id": self.run_id,
            "outcome": self.outcome,
            **{name: value for name, value in told.items() if value},
            "spend": self.spend.to_json(),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Result:
        """Return the result that `to_json` has written."""
        return cls(
            run_id=data["run_id"],
            outcome=data.get("outcome", "FAILED"),
            output=data.get("output", ""),
            reason=data.get("reason", ""),
            error=data.get("error"),
            spend=Spend.from_json(data.get("spend", {})),
        )
