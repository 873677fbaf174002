"""The result of a run: how it ended, or its state while it is open."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar, cast

from typing_extensions import TypeVar as TypeVarWithDefault

from lib.engine.core.budget import Spend
from lib.engine.core.state import RunState
from lib.engine.core.waiting import WaitingFor
from lib.errors import NoOutput
from lib.events.kinds import Outcome

T = TypeVar("T")
T_co = TypeVarWithDefault("T_co", covariant=True, default=str)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result(Generic[T_co]):
    """The outcome of a run, or its state while it is open.

    Attributes:
        outcome: COMPLETED, FAILED, CANCELLED, BLOCKED or LIMITED; None while it is open.
        text: the answer as text; what there was of it when the run did not complete.
        reason: why it did not, in a word or two.
        error: the type and message of what failed.
        spend: what it has used.
        waiting_for: what an open run waits for, None once it has ended.
        parsed: the output of a type as a tuple of one, empty as long as there is none; None for
            output that is text.
    """

    run_id: str
    outcome: Outcome | None
    text: str
    reason: str
    error: Mapping[str, Any] | None
    spend: Spend
    waiting_for: WaitingFor | None = None
    parsed: tuple[Any, ...] | None = field(default=None, repr=False)

    @property
    def output(self) -> T_co:
        """The answer: text, or what an agent's `output=` makes of it.

        Raises:
            NoOutput: it is to be of a type, and the run has not completed; `text` is what there is.
        """
        if self.parsed is None:
            return cast("T_co", self.text)
        if not self.parsed:
            raise NoOutput(self.run_id, outcome=self.outcome, reason=self.reason)
        return cast("T_co", self.parsed[0])

    def typed(self, parse: Callable[[str], T]) -> Result[T]:
        """Return it with the output that a parser makes of the text, if the run has completed.

        Raises:
            InvalidReply: the text does not fit.
        """
        parsed = (parse(self.text),) if self.outcome == "COMPLETED" else ()
        return cast("Result[T]", replace(self, parsed=parsed))

    @staticmethod
    def of(state: RunState[Any]) -> Result:
        """Return the result that the state of a closed run holds."""
        finish = state.finish or {}
        return Result(
            run_id=state.run_id,
            outcome=finish.get("outcome", "FAILED"),
            text=finish.get("output", ""),
            reason=finish.get("reason", ""),
            error=finish.get("error"),
            spend=state.spend,
        )

    @staticmethod
    def unfinished(state: RunState[Any], waiting_for: WaitingFor) -> Result:
        """Return the state of a run that has not ended."""
        return Result(
            run_id=state.run_id,
            outcome=None,
            text="",
            reason="",
            error=None,
            spend=state.spend,
            waiting_for=waiting_for,
        )

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON for the log of the parent run; empty fields are left out."""
        texts = {"output": self.text, "reason": self.reason, "error": self.error}
        return {
            "run_id": self.run_id,
            "outcome": self.outcome,
            **{name: value for name, value in texts.items() if value},
            "spend": self.spend.to_json(),
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Result:
        """Return the result that `to_json` has written."""
        return Result(
            run_id=data["run_id"],
            outcome=data.get("outcome", "FAILED"),
            text=data.get("output", ""),
            reason=data.get("reason", ""),
            error=data.get("error"),
            spend=Spend.from_json(data.get("spend", {})),
        )
