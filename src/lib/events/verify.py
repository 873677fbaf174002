"""Checks the logs of a store against the rules of every log. Reads, and repairs nothing.

The rules of each log, checked by `log_faults`, which is pure:

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

And the rules between logs and their store:

    payload  every payload can be read, and has the fields that its readers rely on
    parent   a child names a request or a turn of its parent, and has its root and its tenant
    child    a child that is recorded as ended has ended, with that outcome
             (a parent or a child that was erased has a tombstone, and nothing to compare)
    blob     every referenced blob exists; deep: and has its content
    file     deep: the store's check of its storage (SQLite has one) finds no fault

Its memory is bounded by the largest run, and 8 bytes for each of the others.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import Any, Final

from lib.errors import BlobMissing, StoreCorrupt
from lib.events import kinds as k
from lib.events.blobs import BlobReference, BlobStore, blob_refs
from lib.events.event import Event
from lib.events.paging import each_run
from lib.events.payloads import payload_fault
from lib.events.runs import RunInfo, fold
from lib.events.store import ChecksIntegrity, EventStore


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
        elif event.kind == k.CONTEXT_SUMMARY and not key:
            pass  # one that another program has made answers no request
        elif event.kind in k.RESULTS and open_kind.pop(key, None) != family:
            yield event.seq, f"{event.kind!r} finds no open request {key!r}"


def _text(event: Event, name: str) -> str:
    value = event.data.get(name)
    return value if isinstance(value, str) else ""


def _call(_info: RunInfo, events: Sequence[Event]) -> Broken:
    unanswered: dict[str, set[str]] = {}
    for event in events:
        conversation = _conversation(event)
        calls = unanswered.get(conversation, set[str]())
        if event.kind == k.LLM_REQUESTED and calls:
            yield event.seq, f"the model is called before {sorted(calls)} have been answered"
        elif event.kind == k.LLM_COMPLETED:
            unanswered[conversation] = set(_calls(event.data))
        elif event.kind in k.RESULTS:
            calls.discard(_text(event, "call_id"))


_SCOPED: Final = re.compile(r"(.*?)(?:llm/[0-9]+|tool/[0-9]+/.*)", re.DOTALL)


def _conversation(event: Event) -> str:
    """Return the part of a key that names the conversation, where a run has several at once."""
    match = _SCOPED.fullmatch(_text(event, "key"))
    return match[1] if match else ""


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


__all__ = ["Check", "Fault", "VerifyReport", "verify_store"]

Check = Callable[[RunInfo, Sequence[Event]], Iterable[Fault] | Awaitable[Iterable[Fault]]]

_MAX_PARENTS: Final = 32


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """The number of runs and events that `verify_store` has read, and their faults."""

    runs: int
    events: int
    faults: list[Fault]


async def verify_store(
    store: EventStore,
    *,
    blobs: BlobStore | None = None,
    deep: bool = False,
    checks: Sequence[Check] = (),
) -> VerifyReport:
    """Check every run of a store against the rules, while writers may be at work.

    Args:
        store: the logs.
        blobs: the store of their blobs; None skips the check of blobs.
        deep: read every blob, and check the storage beneath the logs, too.
        checks: further rules, for runs without a fault so far.

    Raises:
        StoreError: the store cannot be read at all.
    """
    tree = _Tree(store)
    runs, seen, faults = 0, 0, await _storage_faults(store) if deep else []
    damaged = bool(faults)
    try:
        async for info in each_run(store):
            events, found = await _log(store, info)
            if not events and await store.run(info.run_id) is None:
                continue  # erased since it was listed
            found += log_faults(info, events)
            if not found:
                found = await tree.faults(info, events)
                for check in checks:
                    result = check(info, events)
                    found += await result if isinstance(result, Awaitable) else result
            if blobs is not None:
                found += await _blob_faults(blobs, events, deep=deep)
            faults += found
            runs += 1
            seen += len(events)
    except StoreCorrupt as error:
        if not damaged:
            raise
        faults.append(Fault("", 0, "file", f"the runs that follow cannot be read: {error}"))
    return VerifyReport(runs, seen, faults)


async def _storage_faults(store: EventStore) -> list[Fault]:
    """Return the faults of the storage, which belong to no single run."""
    if not isinstance(store, ChecksIntegrity):
        return []
    return [Fault("", 0, "file", message) for message in await store.integrity_faults()]


async def _log(store: EventStore, info: RunInfo) -> tuple[list[Event], list[Fault]]:
    """Return the log up to the listed head, or further if that head is wrong."""
    try:
        events = await store.read(info.run_id)
    except StoreCorrupt:
        return await _readable(store, info)
    if events and events[-1].seq > info.head:
        now = await store.run(info.run_id)
        if now is not None and now.head >= events[-1].seq:  # appended to since it was listed
            events = [event for event in events if event.seq <= info.head]
    return events, []


async def _readable(store: EventStore, info: RunInfo) -> tuple[list[Event], list[Fault]]:
    """Return the events that can be read, one by one, and a fault for each of the others."""
    events: list[Event] = []
    faults: list[Fault] = []
    for seq in range(1, info.head + 1):
        try:
            events += await store.read(info.run_id, after=seq - 1, limit=1)
        except StoreCorrupt as error:
            faults.append(Fault(info.run_id, seq, "payload", str(error)))
    return events, faults


async def _blob_faults(blobs: BlobStore, events: Sequence[Event], *, deep: bool) -> list[Fault]:
    faults: list[Fault] = []
    results: dict[BlobReference, str | None] = {}
    for event in events:
        for reference in blob_refs(event.kind, event.data):
            if reference not in results:
                results[reference] = await _blob_fault(blobs, reference, deep=deep)
            if (message := results[reference]) is not None:
                faults.append(Fault(event.run_id, event.seq, "blob", message))
    return faults


async def _blob_fault(blobs: BlobStore, reference: BlobReference, *, deep: bool) -> str | None:
    try:
        if not deep and await blobs.has(reference.digest):
            return None
        size = len(await blobs.get(reference.digest))
    except BlobMissing as error:
        return str(error)
    if size != reference.size:
        return f"blob {reference.digest} has {size} bytes, not {reference.size}"
    return None


class _Tree:
    """Compares parents and children."""

    def __init__(self, store: EventStore) -> None:
        self._store = store
        self._requested: dict[str, Mapping[str, str | None]] = {}

    async def faults(self, info: RunInfo, events: Sequence[Event]) -> list[Fault]:
        """Return the faults between a run and its relatives."""
        faults: list[Fault] = []
        parent = events[0].data.get("parent")
        if parent is not None:
            messages = await self._unless_erased(parent["run_id"], self._parent(info, parent))
            faults += [Fault(info.run_id, 1, "parent", message) for message in messages]
        for event in events:
            if event.data.get("unstarted"):
                continue  # a guard blocked the call before there was a run
            if event.kind in (k.CHILD_COMPLETED, k.TURN_COMPLETED):
                run_id = str(event.data.get("run_id"))
                messages = await self._unless_erased(run_id, self._child(event, run_id))
                faults += [Fault(info.run_id, event.seq, "child", message) for message in messages]
        return faults

    async def _unless_erased(self, run_id: str, messages: Awaitable[list[str]]) -> list[str]:
        """Return the faults of a relative; none if it has been erased, even just now."""
        found = await messages
        return [] if found and await self._store.tombstone(run_id) is not None else found

    async def _parent(self, info: RunInfo, named: Mapping[str, Any]) -> list[str]:
        parent = await self._store.run(named["run_id"])
        if parent is None:
            return [f"its parent {named['run_id']!r} is not in this store"]
        messages = [
            f"its {name} is {mine!r}, its parent's {theirs!r}"
            for name, mine, theirs in (
                ("root", info.root_id, parent.root_id),
                ("tenant", info.tenant, parent.tenant),
            )
            if mine != theirs
        ]
        key = str(named.get("key"))
        if not await self._was_requested(parent.run_id, key, info.run_id):
            messages.append(f"{parent.run_id!r} has no request for it under {key!r}")
        return messages

    async def _was_requested(self, parent: str, key: str, child: str) -> bool:
        """Return True if a run requested this child; reads the log if the cache lacks the key."""
        requested = self._requested.get(parent, {})
        if key not in requested:
            if len(self._requested) >= _MAX_PARENTS:
                self._requested.clear()
            requested = self._requested[parent] = _requested(await self._store.read(parent))
        return key in requested and requested[key] in (None, child)

    async def _child(self, event: Event, run_id: str) -> list[str]:
        outcome = event.data.get("outcome")
        child = await self._store.run(run_id)
        if child is None:
            return [f"its child {run_id!r} is not in this store"]
        messages: list[str] = []
        if child.parent_id != event.run_id:
            messages.append(f"{run_id!r} is a child of {child.parent_id!r}")
        if child.outcome != outcome:
            messages.append(f"{run_id!r} has the outcome {child.outcome!r}, not {outcome!r}")
        return messages


def _requested(events: Sequence[Event]) -> dict[str, str | None]:
    """Return the run id of the child that each request starts, by the key of the request.

    A turn that was requested and not started yet has None, which any child matches.
    """
    requested: dict[str, str | None] = {}
    for event in events:
        if event.kind in (k.CHILD_REQUESTED, k.TURN_STARTED):
            requested[str(event.data.get("key"))] = str(event.data.get("run_id"))
        elif event.kind == k.TURN_REQUESTED:
            requested.setdefault(str(event.data.get("signal_id")), None)
    return requested
