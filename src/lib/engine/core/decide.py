"""The next step of a run: the algorithm's decision, checked against cancel, approvals, budget.

Pure and repeatable: the same state gives the same step. For every request in a log, the step of
the state just before it holds that request, under the same key (see `lib.engine.api.check`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from lib.engine.core.algorithm import (
    Algorithm,
    Answer,
    Fact,
    Finish,
    LLMRequest,
    MemoryRequest,
    Note,
    Refuse,
    Request,
    ToolRequest,
    TurnRequest,
    Wait,
)
from lib.engine.core.budget import (
    DEPTH_LIMITED,
    UNLIMITED,
    Budget,
    Spend,
    exhausted,
    remaining,
)
from lib.engine.core.settle import (
    NOT_CALLED,
    OUTCOME_UNKNOWN,
    PendingEvent,
    answer_settled_call,
    calls_not_made,
    fact_events,
    fail_pending,
    not_remembered,
)
from lib.engine.core.state import RunState, begin, call_digest, evolve
from lib.errors import (
    BlobError,
    EngineError,
    MissingHandler,
    RunAbandoned,
    StoreError,
    UnknownAlgorithm,
)
from lib.events import Event
from lib.events.kinds import REQUESTS, RESULTS, SPAWNS_RUN
from lib.events.payloads import fits
from lib.llm import Message


@dataclass(frozen=True, slots=True)
class Step:
    """The next step of a run; an empty one waits.

    Attributes:
        requests: to be recorded as intents and then carried out.
        settled: facts to record without an effect.
        finish: how the run ends, after the facts.
    """

    requests: Sequence[Request] = ()
    settled: Sequence[PendingEvent] = ()
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
    return _begin(algorithm, state, () if isinstance(decision, Wait) else decision)


_RESTING: Final = frozenset({"pending", "awaited"})
_FACTS: Final = (Note, Answer, Refuse)  # a tuple is matched faster than a union


def _begin(
    algorithm: Algorithm[Any], state: RunState[Any], decided: Sequence[Request | Fact]
) -> Step:
    """Return the facts of a decision, or what of its requests is allowed to begin."""
    requests: list[Request] = []
    facts: list[Fact] = []
    for each in decided:
        if isinstance(each, _FACTS):
            facts.append(each)
        elif each.key not in state.open:
            requests.append(each)
    return _noted(algorithm, state, facts) if facts else _affordable(state, requests)


def _noted(algorithm: Algorithm[Any], state: RunState[Any], facts: Sequence[Fact]) -> Step:
    """Return the step that writes facts down; what else was decided is decided anew after it.

    Raises:
        EngineError: the algorithm would decide the same fact again, and so for ever.
    """
    settled = [event for fact in facts for event in fact_events(fact)]
    after = state.loop
    for seq, pending in enumerate(settled, state.head + 1):
        event = Event(
            state.run_id, seq, pending.kind, pending.data, state.at, state.tenant, state.user
        )
        after = algorithm.evolve(after, event)
    again = algorithm.decide(after)
    if not isinstance(again, Finish | Wait) and any(fact in again for fact in facts):
        raise EngineError(
            f"algorithm {algorithm.name!r} decides a fact again that is in the log already: "
            "let its evolve() take note of that event, and leave the fact out then"
        )
    return Step(settled=settled)


def _decided_requests(algorithm: Algorithm[Any], state: RunState[Any]) -> Sequence[Request]:
    """Return the requests of a run that ends for another reason; none, if its algorithm fails."""
    try:
        decision = algorithm.decide(state.loop)
    except Exception:  # noqa: BLE001 - such a run could never be ended
        return ()
    if isinstance(decision, Finish | Wait):
        return ()
    return [
        each.request if isinstance(each, Answer | Refuse) else each
        for each in decision
        if not isinstance(each, Note)
    ]


def _poisoned(algorithm: Algorithm[Any], state: RunState[Any]) -> Step:
    """End a run that was taken over, or has failed, again and again without getting anywhere.

    Its child runs are cancelled first, and it ends after them.
    """
    effects = [request for request in state.open.values() if request.kind not in SPAWNS_RUN]
    settled = [fail_pending(request, "unknown", OUTCOME_UNKNOWN) for request in effects]
    if len(effects) < len(state.open):
        return Step(settled=settled)
    message = f"taken over, or failed, {state.resumes} times without a new result"
    settled += calls_not_made(_decided_requests(algorithm, state), "cancelled", message)
    error = {"type": "poison", "message": message}
    return Step(settled=settled, finish=Finish(outcome="FAILED", reason="poison", error=error))


def _cancelled(algorithm: Algorithm[Any], state: RunState[Any]) -> Step:
    """End a cancelled run as soon as nothing is under way any more."""
    if state.open:
        return WAIT
    requests = _decided_requests(algorithm, state)
    settled = calls_not_made(requests, "cancelled", NOT_CALLED["cancelled"])
    finish = Finish(outcome="CANCELLED", reason=state.cancel_reason or "")
    return Step(settled=settled, finish=finish)


def _affordable(state: RunState[Any], requests: Sequence[Request]) -> Step:
    """Return what is approved and within budget; a batch is begun in full or not at all."""
    answered = answers(state.settled, requests) if state.settled else []
    if answered:
        return Step(settled=answered)
    denied = [request for request in requests if state.approvals.get(request.key) == "denied"]
    if denied:
        return Step(settled=_denials(state, denied))
    due = [request for request in requests if state.approvals.get(request.key) not in _RESTING]
    if not due:
        return WAIT
    if state.budget == UNLIMITED:
        return Step(requests=due)
    lacking = exhausted(
        state.budget,
        state.spend.including(state.granted) if state.open else state.spend,
        llm_calls=sum(isinstance(request, (LLMRequest, TurnRequest)) for request in due),
        tool_calls=sum(isinstance(request, ToolRequest) for request in due),
    )
    if lacking is None:
        return Step(requests=due)
    return WAIT if state.open else _unaffordable(requests, due, lacking)


def _unaffordable(requests: Sequence[Request], due: Sequence[Request], lacking: str) -> Step:
    """Return the end of a run by its budget, which the lack of a memory is not."""
    message = f"not called: the run's {lacking} budget is used up"
    memories = [each for each in due if isinstance(each, MemoryRequest)]
    if len(memories) == len(due):
        return Step(settled=[event for each in memories for event in not_remembered(each, message)])
    settled = calls_not_made(requests, "cancelled", message)
    return Step(settled=settled, finish=Finish(outcome="LIMITED", reason=lacking))


def answers(
    settled: Mapping[str, Mapping[str, Any]], requests: Sequence[Request]
) -> list[PendingEvent]:
    """Return the results of calls for which a person has settled an equal one.

    Each settlement answers one call.
    """
    pending_events: list[PendingEvent] = []
    left = dict(settled)
    for request in requests:
        if isinstance(request, ToolRequest):
            data = left.pop(call_digest(request.name, request.arguments), None)
            if data is not None:
                pending_events += answer_settled_call(request, data)
    return pending_events


def _denials(state: RunState[Any], denied: Sequence[Request]) -> list[PendingEvent]:
    pending_events: list[PendingEvent] = []
    for request in denied:
        comment = state.comments.get(request.key)
        message = f"{NOT_CALLED['denied']}{f': {comment}' if comment else ''}"
        pending_events += calls_not_made([request], "denied", message)
    return pending_events


def rehydrate(
    algorithm: Algorithm[Any], log: Sequence[Event], history: Sequence[Message] = ()
) -> tuple[RunState[Any], dict[str, Request]]:
    """Return the state of a log, and its open requests as they were decided, by key.

    `history` is the conversation that the turn of a session goes on with.
    """
    rehydration = Rehydration(algorithm, begin(algorithm, log[0], history))
    rehydration.extend(log[1:])
    return rehydration.state, rehydration.decided()


class Rehydration:
    """A fold of a log that comes in pieces, and of its open requests.

    Attributes:
        state: the fold of what has come so far.
    """

    def __init__(self, algorithm: Algorithm[Any], state: RunState[Any]) -> None:
        """Begin with a state in which nothing is open."""
        self.state: RunState[Any] = state
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


_OURS: Final = (StoreError, BlobError, RunAbandoned, MissingHandler, UnknownAlgorithm)


def is_run_error(error: BaseException) -> bool:
    """Return True if an error is a fault of the run: of its algorithm, a handler or a redactor.

    Another engine, or this one later, may do better where a store failed or something is not here.
    """
    return isinstance(error, Exception) and not isinstance(error, _OURS)


def remaining_after(state: RunState[Any], requests: Sequence[Request]) -> Budget:
    """Return what a run may still spend or grant once it has made these requests.

    What it has granted to runs that are still open is not there any more.
    """
    if state.budget == UNLIMITED:
        return DEPTH_LIMITED
    calls = Spend(
        llm_calls=sum(isinstance(each, LLMRequest) for each in requests),
        tool_calls=sum(isinstance(each, ToolRequest) for each in requests),
    )
    return remaining(state.budget, state.spend.including(state.granted).including(calls))
