"""What a run does next: the algorithm's decision, held against cancel, approvals and budget.

Pure and repeatable: the same state gives the same step. For every request in a log, the step of
the state just before it holds that request, under the same key (`lib.engine.check` verifies it).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lib.engine.core.algorithm import (
    Algorithm,
    Finish,
    LLMRequest,
    Request,
    ToolRequest,
    TurnRequest,
    Wait,
)
from lib.engine.core.budget import exhausted
from lib.engine.core.settle import (
    MADE_NO_CALL,
    OUTCOME_UNKNOWN,
    Draft,
    fail_open,
    never_made,
    settled_call,
)
from lib.engine.core.state import RunState, begin, call_digest, evolve
from lib.events import Event
from lib.events.kinds import DERIVING, REQUESTS, RESULTS
from lib.events.payloads import fits
from lib.llm import Message


@dataclass(frozen=True, slots=True)
class Step:
    """What comes next; an empty step waits.

    Attributes:
        requests: to be recorded as intents and then carried out.
        settled: facts to record without an effect.
        finish: how the run ends, after the facts.
    """

    requests: Sequence[Request] = ()
    settled: Sequence[Draft] = ()
    finish: Finish | None = None


WAIT = Step()
_UNREADABLE = Finish(
    outcome="FAILED",
    reason="malformed",
    error={"type": "InvalidEvent", "message": "the first event of the run cannot be read"},
)


def next_step(algorithm: Algorithm[Any], state: RunState[Any]) -> Step:
    """Return the next step of a run."""
    if state.outcome is not None:
        return WAIT
    if state.poisoned:
        return _poisoned(algorithm, state)
    if state.cancelled:
        return _cancelled(algorithm, state)
    if state.unreadable:
        return WAIT if state.open else Step(finish=_UNREADABLE)
    decision = algorithm.decide(state.loop)
    if isinstance(decision, Finish):
        return WAIT if state.open else Step(finish=decision)
    requests = () if isinstance(decision, Wait) else decision
    return _affordable(state, [each for each in requests if each.key not in state.open])


def _asked(algorithm: Algorithm[Any], state: RunState[Any]) -> Sequence[Request]:
    """Return what a run that ends for another reason asks for; nothing, if its algorithm fails."""
    try:
        decision = algorithm.decide(state.loop)
    except Exception:  # noqa: BLE001 - such a run could never be ended
        return ()
    return () if isinstance(decision, Finish | Wait) else decision


def _poisoned(algorithm: Algorithm[Any], state: RunState[Any]) -> Step:
    """End a run that was taken over, or has failed, again and again without getting anywhere.

    The runs that it has started are asked to stop, and it ends after them.
    """
    effects = [request for request in state.open.values() if request.kind not in DERIVING]
    settled = [fail_open(request, "unknown", OUTCOME_UNKNOWN) for request in effects]
    if len(effects) < len(state.open):
        return Step(settled=settled)
    message = f"taken over, or failed, {state.resumes} times without a new result"
    settled += never_made(_asked(algorithm, state), "cancelled", message)
    error = {"type": "poison", "message": message}
    return Step(settled=settled, finish=Finish(outcome="FAILED", reason="poison", error=error))


def _cancelled(algorithm: Algorithm[Any], state: RunState[Any]) -> Step:
    """End a cancelled run as soon as nothing is under way any more."""
    if state.open:
        return WAIT
    asked = _asked(algorithm, state)
    settled = never_made(asked, "cancelled", MADE_NO_CALL["cancelled"])
    finish = Finish(outcome="CANCELLED", reason=state.cancel_reason or "")
    return Step(settled=settled, finish=finish)


def _affordable(state: RunState[Any], asked: Sequence[Request]) -> Step:
    """Return what is allowed and paid for; a batch that cannot be paid in full is not begun."""
    answered = answers(state.settled, asked) if state.settled else []
    if answered:
        return Step(settled=answered)
    denied = [request for request in asked if state.approvals.get(request.key) == "denied"]
    if denied:
        return Step(settled=_denials(state, denied))
    due = [request for request in asked if state.approvals.get(request.key) != "pending"]
    if not due:
        return WAIT
    lacking = exhausted(
        state.budget,
        state.spend.including(state.granted) if state.open else state.spend,
        llm_calls=sum(isinstance(request, LLMRequest | TurnRequest) for request in due),
        tool_calls=sum(isinstance(request, ToolRequest) for request in due),
    )
    if lacking is None:
        return Step(requests=due)
    if state.open:
        return WAIT
    settled = never_made(asked, "cancelled", f"not called: the run's {lacking} budget is used up")
    return Step(settled=settled, finish=Finish(outcome="LIMITED", reason=lacking))


def answers(settled: Mapping[str, Mapping[str, Any]], asked: Sequence[Request]) -> list[Draft]:
    """Return the calls that are answered by what a person has found out about an equal one.

    Each settlement answers one call.
    """
    drafts: list[Draft] = []
    left = dict(settled)
    for request in asked:
        if isinstance(request, ToolRequest):
            data = left.pop(call_digest(request.name, request.arguments), None)
            if data is not None:
                drafts += settled_call(request, data)
    return drafts


def _denials(state: RunState[Any], denied: Sequence[Request]) -> list[Draft]:
    drafts: list[Draft] = []
    for request in denied:
        comment = state.comments.get(request.key)
        message = f"{MADE_NO_CALL['denied']}{f': {comment}' if comment else ''}"
        drafts += never_made([request], "denied", message)
    return drafts


def refold(
    algorithm: Algorithm[Any], log: Sequence[Event], history: Sequence[Message] = ()
) -> tuple[RunState[Any], dict[str, Request]]:
    """Return the state of a log, and its open requests as they were decided, by key.

    `history` is the conversation that the turn of a session goes on with.
    """
    refolding = Refolding(algorithm, begin(algorithm, log[0], history))
    refolding.extend(log[1:])
    return refolding.state, refolding.decided()


class Refolding:
    """A fold of a log that comes in pieces, and of its open requests.

    Attributes:
        state: the fold of what has come so far.
    """

    def __init__(self, algorithm: Algorithm[Any], state: RunState[Any]) -> None:
        """Begin with a state in which nothing is open."""
        self.state = state
        self._algorithm = algorithm
        self._before: dict[str, RunState[Any]] = {}

    def extend(self, events: Iterable[Event]) -> None:
        """Fold the next events."""
        algorithm, state, before = self._algorithm, self.state, self._before
        for event in events:
            if not fits(event.kind, event.data):
                pass  # as in every fold
            elif event.kind in REQUESTS:
                before[event.data["key"]] = state
            elif event.kind in RESULTS:
                before.pop(event.data.get("key", ""), None)
            state = evolve(algorithm, state, event)
        self.state = state

    def decided(self) -> dict[str, Request]:
        """Return the open requests as they were decided, by key.

        A request is not stored, it is decided again: from the state just before its event.
        """
        decided: dict[str, Request] = {}
        for state in self._before.values():
            step = next_step(self._algorithm, state)
            decided |= {request.key: request for request in step.requests}
        return decided
