"""The result of a run: how it ended, or its state while it is open, and what it waits for then."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final, Generic, Self, TypeVar, cast

from typing_extensions import TypeVar as TypeVarWithDefault

from lib._util.json import canonical, digest
from lib.engine.core.budget import Spend
from lib.engine.core.state import RunState
from lib.errors import NoOutput
from lib.events import Event
from lib.events.kinds import Outcome

T = TypeVar("T")
T_co = TypeVarWithDefault("T_co", covariant=True, default=str)

_SHOWN: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingApproval:
    """A tool call that waits for a person.

    Attributes:
        key: names the call in its run; give it to `Run.approve` or `Run.deny`.
        reason: why the engine asks although the tool does not: the outcome of an equal call is
            unknown. "" where the tool asks for approval itself.
    """

    key: str
    call_id: str
    name: str
    arguments: Mapping[str, Any]
    reason: str = ""

    @classmethod
    def of(cls, requested: Event) -> Self:
        """Return the call that a `lib.approval.requested` is about."""
        return cls(**_call_fields(requested))

    @property
    def arguments_digest(self) -> str:
        """SHA-256 of the arguments, which names them where they must not be shown."""
        return digest(canonical(dict(self.arguments)))


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingCall(PendingApproval):
    """A tool call of any run of a store that waits for a person.

    Attributes:
        run_id: the run, for `Engine.run`.
        tenant: whose run it is.
        since: when the approval was requested.
    """

    run_id: str
    tenant: str | None
    since: datetime

    @classmethod
    def of(cls, requested: Event) -> Self:
        """Return the call that a `lib.approval.requested` is about."""
        run_id, tenant, since = requested.run_id, requested.tenant, requested.at
        return cls(**_call_fields(requested), run_id=run_id, tenant=tenant, since=since)


def _call_fields(event: Event) -> dict[str, Any]:
    data = event.data
    return {
        "key": data["key"],
        "call_id": data["call_id"],
        "name": data["name"],
        "arguments": data["args"],
        "reason": data.get("reason", ""),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingFor:
    """The reasons why an open run waits; none is set for a run between two steps.

    Attributes:
        approvals: tool calls that wait for a person, those of its child runs included; each says
            in which run it is decided.
        client_calls: tool calls that the run's client makes; see `Run.answer`.
        children: the ids of the child runs, or the turn, that have not ended.
        owner: the worker that holds the run's lease.
        lease_until: when that lease ends unless the worker renews it; past it, the worker counts
            as dead and any other may take the run over.
        ready: whether a worker would find something to do.
    """

    approvals: tuple[WaitingCall, ...] = ()
    client_calls: tuple[WaitingCall, ...] = ()
    children: tuple[str, ...] = ()
    owner: str | None = None
    lease_until: datetime | None = None
    ready: bool = False

    def __str__(self) -> str:
        """Return it as one line, without arguments of calls."""
        return "; ".join(self._reasons()) or "waits for a signal, such as a message to a session"

    def _reasons(self) -> Iterator[str]:
        if self.approvals:
            yield f"waits for a person to decide {_list(self.approvals)}"
        if self.client_calls:
            yield f"waits for its client to answer {_list(self.client_calls)}"
        if self.children and not (self.approvals or self.client_calls):
            yield f"waits for {', '.join(map(repr, self.children[:_SHOWN]))} to end"
        if self.owner is not None and self.lease_until is not None:
            until = f"{self.lease_until.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
            yield (
                f"worker {self.owner!r} holds its lease until {until}, and renews it while it "
                "works: if that worker is dead, the run can be taken over then"
            )
        elif self.ready and not (self.approvals or self.client_calls):
            yield "waits for a worker"


def _list(calls: Sequence[WaitingCall]) -> str:
    shown, more = ", ".join(_shown(call) for call in calls[:_SHOWN]), len(calls) - _SHOWN
    return f"{shown} and {more} more" if more > 0 else shown


def _shown(call: WaitingCall) -> str:
    return (
        f"call {call.key!r} of tool {call.name!r} in run {call.run_id!r} "
        f"(arguments {call.arguments_digest[:12]})"
        f"{f', because {call.reason}' if call.reason else ''}"
    )


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
