"""The rules that every log keeps, as far as one log shows. Pure.

sequence    `seq` goes from 1 to the head without a gap
start       the first event is the start, and only the first
end         there is one end at most, and nothing but signals after it
request     each key is requested once, and a closed run has no open request
result      each result closes an open request of its own kind
check       the answer of a tool's check belongs to an open `once` call, and holds: a call that
            happened is not unknown afterwards, and a call without an answer has no output
call        each tool call of a reply is answered before the next model call
epoch       the epochs of intents never go back: a worker that has lost its run adds none
payload     every payload of a `lib.` event has the fields that its readers rely on
tenant      every event has the tenant of its run
projection  the store's list of runs agrees with the log
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import Any

from lib.events import kinds as k
from lib.events.event import Event
from lib.events.payloads import payload_fault
from lib.events.runs import RunInfo, fold


@dataclass(frozen=True, slots=True)
class Fault:
    """A rule that a log breaks.

    Attributes:
        seq: the event that breaks it, 0 for the run as a whole.
        rule: one of the rules above, or the name that an extra check gives.
    """

    run_id: str
    seq: int
    rule: str
    message: str


def log_faults(info: RunInfo, events: Sequence[Event]) -> list[Fault]:
    """Return the faults of a run's log, rule by rule."""
    run_id = info.run_id
    faults = [
        Fault(run_id, seq, rule, message)
        for rule, check in _RULES.items()
        for seq, message in check(info, events)
    ]
    if not faults:
        faults.extend(Fault(run_id, 0, "projection", text) for text in _projection(info, events))
    return faults


Broken = Iterator[tuple[int, str]]


def _sequence(info: RunInfo, events: Sequence[Event]) -> Broken:
    seqs = [0, *(event.seq for event in events), info.head + 1]
    for before, seq in pairwise(seqs):
        if seq != before + 1:
            yield before, f"event {before} is followed by {seq}, the list says {info.head} events"


def _start(_info: RunInfo, events: Sequence[Event]) -> Broken:
    for index, event in enumerate(events):
        if (index == 0) != (event.kind == k.RUN_STARTED):
            yield event.seq, f"{event.kind!r} is event {index + 1} of the log"


def _end(_info: RunInfo, events: Sequence[Event]) -> Broken:
    ended = False
    for event in events:
        if ended and not k.is_signal(event.kind):
            yield event.seq, f"{event.kind!r} comes after the end"
        ended = ended or event.kind == k.RUN_COMPLETED


def _request(info: RunInfo, events: Sequence[Event]) -> Broken:
    requested: set[str] = set()
    open_at: dict[str, int] = {}
    for event in events:
        key = _text(event, "key")
        if event.kind in k.REQUESTS:
            if not key or key in requested:
                yield event.seq, f"{event.kind!r} has the key {key!r}, which is not new"
            requested.add(key)
            open_at[key] = event.seq
        elif event.kind in k.RESULTS:
            open_at.pop(key, None)
    if info.status == "closed":
        for key, seq in open_at.items():
            yield seq, f"the run is closed, and {key!r} has no result"


def _result(_info: RunInfo, events: Sequence[Event]) -> Broken:
    open_kind: dict[str, str] = {}
    turns: set[str] = set()
    for event in events:
        key, family = _text(event, "key"), event.kind.rpartition(".")[0]
        if event.kind in k.REQUESTS:
            open_kind[key] = family
        elif event.kind == k.TURN_REQUESTED:
            turns.add(_text(event, "signal_id"))
        elif event.kind == k.TURN_COMPLETED and not key and _text(event, "signal_id") in turns:
            turns.remove(_text(event, "signal_id"))  # a log written by hand starts no turns
        elif event.kind in k.RESULTS and open_kind.pop(key, None) != family:
            yield event.seq, f"{event.kind!r} finds no open request {key!r}"


def _text(event: Event, name: str) -> str:
    value = event.data.get(name)
    return value if isinstance(value, str) else ""


def _call(_info: RunInfo, events: Sequence[Event]) -> Broken:
    unanswered: set[str] = set()
    for event in events:
        if event.kind == k.LLM_REQUESTED and unanswered:
            yield event.seq, f"the model is called before {sorted(unanswered)} have been answered"
        elif event.kind == k.LLM_COMPLETED:
            unanswered = set(_calls(event.data))
        elif event.kind in k.RESULTS:
            unanswered.discard(_text(event, "call_id"))


def _calls(data: dict[str, Any]) -> Iterator[str]:
    match data:
        case {"reply": {"parts": [*parts]}}:
            for part in parts:
                match part:
                    case {"type": "tool_call", "id": str(call_id)}:
                        yield call_id
                    case _:
                        pass
        case _:
            pass


def _check(_info: RunInfo, events: Sequence[Event]) -> Broken:
    open_calls: dict[str, Event] = {}
    answers: dict[str, str] = {}
    for event in events:
        key = _text(event, "key")
        if event.kind == k.TOOL_REQUESTED:
            open_calls[key] = event
        elif event.kind == k.TOOL_CHECKED:
            answers[key] = _text(event, "answer")
            request = open_calls.get(key)
            if request is None or request.data.get("effects", "once") != "once":
                yield event.seq, f"{event.kind!r} finds no open call {key!r} with the effect 'once'"
            if answers[key] not in k.CHECK_ANSWERS:
                yield (
                    event.seq,
                    f"a check answers {', '.join(k.CHECK_ANSWERS)}, not {answers[key]!r}",
                )
        elif event.kind in k.RESULTS:
            open_calls.pop(key, None)
            if (answer := answers.pop(key, "")) and _contradicts(event, answer):
                yield event.seq, f"{event.kind!r} of {key!r}, whose check answered {answer!r}"


def _contradicts(result: Event, answer: str) -> bool:
    unknown = result.data.get("reason") == "unknown"
    return (answer == "happened" and unknown) or (
        answer == "cannot_tell" and result.kind == k.TOOL_COMPLETED
    )


def _epoch(_info: RunInfo, events: Sequence[Event]) -> Broken:
    last = 0
    for event in events:
        epoch = event.data.get("epoch") if event.kind in k.REQUESTS else None
        if not isinstance(epoch, int):
            continue  # of an older release, or malformed
        if epoch < last:
            yield event.seq, f"{event.kind!r} has the epoch {epoch}, after an intent of {last}"
        last = max(last, epoch)


def _tenant(info: RunInfo, events: Sequence[Event]) -> Broken:
    for event in events:
        if event.tenant != info.tenant:
            yield event.seq, f"the event has the tenant {event.tenant!r}, the run {info.tenant!r}"


def _payload(_info: RunInfo, events: Sequence[Event]) -> Broken:
    for event in events:
        if (fault := payload_fault(event.kind, event.data)) is not None:
            yield event.seq, f"{event.kind!r} is malformed and changes nothing: {fault}"


_RULES = {
    "sequence": _sequence,
    "start": _start,
    "end": _end,
    "request": _request,
    "result": _result,
    "check": _check,
    "call": _call,
    "epoch": _epoch,
    "payload": _payload,
    "tenant": _tenant,
}


def _projection(info: RunInfo, events: Sequence[Event]) -> Iterator[str]:
    try:
        folded = fold(events)
    except ValueError as error:
        yield f"the log cannot be folded: {error}"
        return
    # The log does not show the lease, nor whether an open run is ready.
    listed = replace(info, owner=None, lease_until=None, ready=info.ready or folded.ready)
    for name in (field.name for field in fields(RunInfo)):
        if getattr(listed, name) != getattr(folded, name):
            both = f"{getattr(listed, name)!r}, the log says {getattr(folded, name)!r}"
            yield f"the list says {name}={both}"
