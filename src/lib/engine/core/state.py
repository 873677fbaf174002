"""The fold of a run: what every algorithm needs, beside the algorithm's own state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final, Generic, Literal, NamedTuple, TypeVar, cast

from lib._util.json import canonical, digest
from lib._util.trace_context import TraceContext, trace_context_of
from lib.engine.core.algorithm import Algorithm
from lib.engine.core.budget import Budget, Spend
from lib.events import Event
from lib.events import kinds as k
from lib.events.kinds import Outcome
from lib.events.payloads import fits, readable
from lib.llm import Message, usage_from_json

S = TypeVar("S")

Approval = Literal["pending", "approved", "denied", "awaited", "answered"]

MAX_RESUMES = 10
"""How often a run may be taken over without a single new result before it counts as poison."""
_MOST_MALFORMED: Final = 32
_LLM_CALL: Final = Spend(llm_calls=1)
_NONE: Mapping[str, Any] = MappingProxyType({})


class Owners(NamedTuple):
    """The workers that have held a run since its last result, to count takeovers without progress.

    Attributes:
        takeovers: the epoch of each takeover, in their order, and whether it counts. The first one
            is that before the last result.
        living: epochs whose owners logged, after they lost the run, that they are alive.
        errors: logged failures, and takeovers without an epoch.
    """

    takeovers: tuple[tuple[int, bool], ...] = ()
    living: frozenset[int] = frozenset()
    errors: int = 0

    @property
    def failures(self) -> int:
        """The number of its failures and takeovers from owners that may be dead."""
        failures, before = self.errors, -1
        for epoch, counts in self.takeovers:
            if counts and not any(before <= owner < epoch for owner in self.living):
                failures += 1
            before = epoch
        return failures

    def taken_over(self, epoch: int | None, *, counts: bool) -> Owners:
        """Return this after a takeover; None for a failure, or an unknown epoch."""
        if epoch is None or (self.takeovers and epoch <= self.takeovers[-1][0]):
            return self._replace(errors=self.errors + counts)
        return self._replace(takeovers=(*self.takeovers, (epoch, counts)))

    def alive(self, epoch: int) -> Owners:
        """Return this after the owner of an epoch has logged that it is alive."""
        return self._replace(living=self.living | {epoch})

    def after_progress(self) -> Owners:
        """Return this after a result."""
        if not self.takeovers:
            return NO_OWNERS
        return Owners(((self.takeovers[-1][0], False),))


NO_OWNERS: Final = Owners()


class RunState(NamedTuple, Generic[S]):
    """The state of a run, folded from its log; every instance stays valid when the run goes on.

    A tuple, since a fold makes one for each event and tuples are made fastest.

    Attributes:
        root_id: the run that it and its relatives descend from; itself for a root run.
        head: the `seq` of the last event folded.
        at: the time of the last event that was no signal: those come at any time.
        loop: the algorithm's own state.
        open: requests without a result, by key, in the order in which they were made.
        approvals: decisions of people, made or pending, by the key of the call; of a call that the
            client of the run makes, whether its answer is awaited or there.
        comments: what they wrote with it.
        resumes: takeovers and failures since the last result, not counting those of workers that
            have logged since that they are alive, nor takeovers in which it only waited for child
            runs, which have counts of their own. It stays at the limit.
        finish: the payload of `lib.run.completed`, None while it is open.
        malformed: the `seq` of the first events whose payload cannot be read. They change nothing;
            stores refuse such events, and `verify` reports those in logs of older releases.
        unknown: the keys of the calls whose outcome is unknown, by `call_digest`.
        repeats: the keys of unknown calls, by those of the calls that repeat them and wait for
            an approval.
        settled: what a person has found out about unknown calls that happened, by `call_digest`:
            it answers the next equal call.
        trace: the application's span within which the root run was started, None for none.
        versions: those of the tools' definitions that people were shown, by the key of the call.
        client_tools: the tools whose calls the client of the run makes, as JSON.
        answers: what the client has answered, as the payload of its signal, by the key of the call.
    """

    run_id: str
    root_id: str
    head: int
    at: datetime
    tenant: str | None
    user: str | None
    budget: Budget
    loop: S
    spend: Spend = Spend()
    open: Mapping[str, Event] = _NONE
    approvals: Mapping[str, Approval] = _NONE
    comments: Mapping[str, str] = _NONE
    cancel_reason: str | None = None
    resumes: int = 0
    finish: Mapping[str, Any] | None = None
    malformed: tuple[int, ...] = ()
    owners: Owners = NO_OWNERS
    unknown: Mapping[str, str] = _NONE
    repeats: Mapping[str, str] = _NONE
    settled: Mapping[str, Mapping[str, Any]] = _NONE
    trace: TraceContext | None = None
    versions: Mapping[str, str] = _NONE
    client_tools: Sequence[Mapping[str, Any]] = ()
    answers: Mapping[str, Mapping[str, Any]] = _NONE

    @property
    def outcome(self) -> Outcome | None:
        """The outcome, None while it is open."""
        return self.finish["outcome"] if self.finish else None

    @property
    def granted(self) -> Spend:
        """The budgets of its child runs, as far as their spend is not accounted for yet."""
        granted = Spend()
        for request in self.open.values():
            if request.kind in k.SPAWNS_RUN:
                granted = granted.including(Spend.from_json(request.data.get("budget", {})))
        return granted

    @property
    def delegates(self) -> bool:
        """True if it waits for child runs only."""
        for request in self.open.values():
            if request.kind not in k.SPAWNS_RUN:
                return False
        return bool(self.open)

    @property
    def poisoned(self) -> bool:
        """True if it has been taken over too often to go on."""
        return self.resumes >= MAX_RESUMES

    @property
    def unreadable(self) -> bool:
        """True if its first event is malformed."""
        return 1 in self.malformed

    @property
    def cancelled(self) -> bool:
        """True once cancellation was requested."""
        return self.cancel_reason is not None


def begin(algorithm: Algorithm[S], started: Event, history: Sequence[Message] = ()) -> RunState[S]:
    """Return the state after a run's first event; `history` is what a turn goes on with."""
    malformed = () if fits(started.kind, started.data) else (started.seq,)
    started = readable(started)
    return RunState(
        run_id=started.run_id,
        root_id=started.data.get("root", started.run_id),
        head=started.seq,
        at=started.at,
        tenant=started.tenant,
        user=started.user,
        budget=Budget.from_json(started.data.get("budget", {})),
        loop=algorithm.initial(started, history) if history else algorithm.initial(started),
        malformed=malformed,
        trace=trace_context_of(started.data),
        client_tools=started.data.get("client_tools", ()),
    )


def evolve(algorithm: Algorithm[S], state: RunState[S], event: Event) -> RunState[S]:
    """Return the state after one more event, which changes nothing if it cannot be read."""
    if not fits(event.kind, event.data):
        malformed = (*state.malformed, event.seq)[:_MOST_MALFORMED]
        return state._replace(head=event.seq, malformed=malformed)
    signal = k.is_signal(event.kind)
    # Spelled out, since it is done for every event and `_replace` takes twice as long.
    grown = RunState(
        state.run_id,
        state.root_id,
        event.seq,
        state.at if signal else event.at,
        state.tenant,
        state.user,
        state.budget,
        algorithm.evolve(state.loop, event),
        state.spend if signal else _spend(state, event),
        state.open if signal else _open(state.open, event),
        state.approvals,
        state.comments,
        state.cancel_reason,
        state.resumes,
        state.finish,
        state.malformed,
        state.owners,
        _unknown(state, event) if event.kind == k.TOOL_FAILED else state.unknown,
        state.repeats,
        state.settled,
        state.trace,
        state.versions,
        state.client_tools,
        state.answers,
    )
    fold = _FOLDS.get(event.kind)
    return grown if fold is None else fold(grown, event)


def fold(
    algorithm: Algorithm[S], events: Iterable[Event], history: Sequence[Message] = ()
) -> RunState[S]:
    """Return the state after a whole log; `history` is what a turn goes on with.

    Raises:
        ValueError: there are no events.
    """
    iterator = iter(events)
    first = next(iterator, None)
    if first is None:
        raise ValueError("a run has at least one event")
    state = begin(algorithm, first, history)
    for event in iterator:
        state = evolve(algorithm, state, event)
    return state


def _spend(state: RunState[Any], event: Event) -> Spend:
    spend = state.spend
    if event.at > state.at and state.open and event.kind != k.RUN_RESUMED:
        spend = spend.later(_worked_s(state, event))
    spend_of = _SPENDS.get(event.kind)
    return spend if spend_of is None else spend_of(spend, event.data)


def _worked_s(state: RunState[Any], event: Event) -> float:
    """Return how long something was under way since the event before.

    While it only waits for runs that it has started, those know: one may wait for a person. Of what
    they worked at the same time, no more counts than has passed.
    """
    passed_s = (event.at - state.at).total_seconds()
    if not state.delegates:
        return passed_s
    return min(passed_s, Spend.from_json(event.data.get("spend", {})).seconds)


def _model_requested(spend: Spend, _data: Mapping[str, Any]) -> Spend:
    return spend.including(_LLM_CALL)


def _model_completed(spend: Spend, data: Mapping[str, Any]) -> Spend:
    return _used(spend, data["reply"])


def _tool_called(spend: Spend, data: Mapping[str, Any]) -> Spend:
    return spend if data.get("unstarted") else spend.with_tool_call()


def _used(spend: Spend, data: Mapping[str, Any]) -> Spend:
    """Add what a model has used: for a reply, one that was withheld, a guard, or a summary."""
    if not data.get("usage"):
        return spend
    usage = usage_from_json(data["usage"])
    return spend.including(Spend(usage.input_tokens + usage.output_tokens, usage.cost))


def _accounted(spend: Spend, data: Mapping[str, Any]) -> Spend:
    """Add what a run that this one has started has spent, and those that it has started."""
    return spend.including(Spend.from_json(data.get("spend", {})))


_SPENDS = {
    k.LLM_REQUESTED: _model_requested,
    k.LLM_COMPLETED: _model_completed,
    k.TOOL_REQUESTED: _tool_called,
    k.CHILD_REQUESTED: _tool_called,
    **dict.fromkeys((k.CHILD_COMPLETED, k.TURN_COMPLETED), _accounted),
    **dict.fromkeys((k.LLM_FAILED, k.GUARD_VERDICT), _used),
    **dict.fromkeys((k.CONTEXT_SUMMARY, k.CONTEXT_FAILED), _used),
    **dict.fromkeys((k.MEMORY_COMPLETED, k.MEMORY_FAILED), _used),
}


def _open(requests: Mapping[str, Event], event: Event) -> Mapping[str, Event]:
    if event.kind in k.REQUESTS:
        return {**requests, event.data["key"]: event}
    if event.kind in k.RESULTS:
        rest = {**requests}
        rest.pop(event.data.get("key", ""), None)
        return rest
    return requests


def call_digest(name: object, arguments: object) -> str:
    """Return what equal calls have in common: the tool, and the arguments as canonical JSON."""
    return digest(canonical([name, _integral(arguments)]))


def _integral(value: Any) -> Any:
    """Return plain data in which 5.0 is 5: models write either."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        mapping = cast("Mapping[str, Any]", value)
        return {name: _integral(item) for name, item in mapping.items()}
    if isinstance(value, list):
        return [_integral(item) for item in cast("list[Any]", value)]
    return value


def _unknown(state: RunState[Any], event: Event) -> Mapping[str, str]:
    """Return the calls of unknown outcome after a call has failed."""
    key = event.data.get("key", "")
    request = state.open.get(key)
    if event.data.get("reason") != "unknown" or request is None:
        return state.unknown
    call = call_digest(request.data.get("name"), request.data.get("args"))
    return {**state.unknown, call: key}


def _result(state: RunState[S], _event: Event) -> RunState[S]:
    if state.owners is NO_OWNERS or state.poisoned:
        return state
    return state._replace(resumes=0, owners=state.owners.after_progress())


def _approval_requested(state: RunState[S], event: Event) -> RunState[S]:
    key, repeated = event.data["key"], event.data.get("repeats")
    if repeated:
        state = state._replace(repeats={**state.repeats, key: repeated})
    version = event.data.get("version", "")
    if version != state.versions.get(key, ""):
        state = state._replace(versions={**state.versions, key: version})
    return state._replace(approvals={**state.approvals, key: "pending"})


def _call_settled(state: RunState[S], event: Event) -> RunState[S]:
    """Take what a person has found out; calls that repeat this one are decided anew."""
    key = event.data["key"]
    call = next((call for call, unknown in state.unknown.items() if unknown == key), None)
    if call is None:
        return state  # the first settlement counts, and one of another call counts for nothing
    return state._replace(
        unknown={name: unknown for name, unknown in state.unknown.items() if name != call},
        settled={**state.settled, call: event.data} if event.data["happened"] else state.settled,
        approvals={
            name: decision
            for name, decision in state.approvals.items()
            if decision != "pending" or state.repeats.get(name) != key
        },
    )


def _tool_requested(state: RunState[S], event: Event) -> RunState[S]:
    """Let a settlement answer one equal call, which is not made."""
    if not state.settled or not event.data.get("unstarted"):
        return state
    call = call_digest(event.data.get("name"), event.data.get("args"))
    rest = {name: data for name, data in state.settled.items() if name != call}
    return state._replace(settled=rest)


def _approval_decided(state: RunState[S], event: Event) -> RunState[S]:
    key = event.data["key"]
    if state.approvals.get(key) != "pending":
        return state  # the first decision counts, and one for no waiting call counts for nothing
    decision: Approval = "approved" if event.data["approved"] else "denied"
    return state._replace(
        approvals={**state.approvals, key: decision},
        comments={**state.comments, key: event.data.get("comment", "")},
    )


def _tool_awaited(state: RunState[S], event: Event) -> RunState[S]:
    return state._replace(approvals={**state.approvals, event.data["key"]: "awaited"})


def _tool_answered(state: RunState[S], event: Event) -> RunState[S]:
    key = event.data["key"]
    if state.approvals.get(key) != "awaited":
        return state  # the first answer counts, and one to no awaited call counts for nothing
    return state._replace(
        approvals={**state.approvals, key: "answered"}, answers={**state.answers, key: event.data}
    )


def _cancel_requested(state: RunState[S], event: Event) -> RunState[S]:
    if state.cancelled or "key" in event.data:  # the turn of this key alone is to stop
        return state
    return state._replace(cancel_reason=event.data.get("reason", ""))


def _resumed(state: RunState[S], event: Event) -> RunState[S]:
    counts = "error" in event.data or not state.delegates
    epoch = None if "error" in event.data else event.data.get("epoch")
    return _counted(state, state.owners.taken_over(epoch, counts=counts))


def _lost(state: RunState[S], event: Event) -> RunState[S]:
    return _counted(state, state.owners.alive(event.data["epoch"]))


def _counted(state: RunState[S], owners: Owners) -> RunState[S]:
    resumes = state.resumes if state.poisoned else owners.failures
    return state._replace(resumes=resumes, owners=owners)


def _completed(state: RunState[S], event: Event) -> RunState[S]:
    return state._replace(finish=event.data)


_FOLDS = {
    **dict.fromkeys(k.RESULTS, _result),
    k.APPROVAL_REQUESTED: _approval_requested,
    k.APPROVAL_DECIDED: _approval_decided,
    k.TOOL_AWAITED: _tool_awaited,
    k.TOOL_ANSWERED: _tool_answered,
    k.CALL_SETTLED: _call_settled,
    k.TOOL_REQUESTED: _tool_requested,
    k.CANCEL_REQUESTED: _cancel_requested,
    k.RUN_RESUMED: _resumed,
    k.LEASE_LOST: _lost,
    k.RUN_COMPLETED: _completed,
}
